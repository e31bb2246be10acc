"""The documentation is true: its examples run, its reference is the code's own, its links lead somewhere."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import factored_scaling
from factored_scaling import errors

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINKING = sorted([*PAGES, *(ROOT / "results").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])


def load(name: str) -> ModuleType:
    """A program of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


examples = load("run_examples")
WITH_EXAMPLES = [
    page for page in PAGES if any(b.kind in ("sh", "python") for b in examples.blocks(page.read_text(encoding="utf-8")))
]


LONG_PAGES = ("own-trainer.md", "real-robot-day.md", "examples.md", "policy-tables.md", "export-import.md")


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def marked(page: Path) -> Any:
    """Pages that go through whole rounds take longest."""
    long = page.name.startswith("tutorial") or page.name in LONG_PAGES
    return pytest.param(page, id=title(page), marks=[pytest.mark.slow] if long else [])


@pytest.mark.parametrize("page", [marked(page) for page in WITH_EXAMPLES])
def test_examples_print_what_the_page_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for ran in examples.run_page(text):
        assert ran.error is None, f"{title(page)}, line {ran.block.line}: {ran.error}"
        if ran.block.expected is not None:
            start, end = ran.block.expected
            shown = text[start:end]
            hint = f"{title(page)}, line {ran.block.line}: `python docs/run_examples.py --write {title(page)}`"
            assert examples.matches(shown, ran.output), f"{hint}\nshown:\n{shown}\nprinted:\n{ran.output}"


def test_the_pages_that_must_have_examples_have_them() -> None:
    must = {"README.md", "docs/tutorial.md", "docs/howto/own-trainer.md", "docs/howto/csv-only.md"}
    must |= {"docs/tutorial-lerobot.md", "docs/howto/lerobot.md"}
    assert must <= {title(page) for page in WITH_EXAMPLES}


def test_output_blocks_may_leave_parts_open() -> None:
    assert examples.matches("wrote …/study.db\n", "wrote a/b/study.db\n")
    assert examples.matches("first\n…\nlast", "first\nand\nso on\nlast  \n")
    assert not examples.matches("wrote a.*", "wrote abc")


def test_the_command_line_reference_is_the_command_lines_own() -> None:
    reference = load("make_reference")
    committed = reference.PAGE.read_text(encoding="utf-8")
    assert committed == reference.page(), "run `python docs/make_reference.py`"


def test_every_exported_name_is_in_the_python_reference() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    missing = [name for name in factored_scaling.__all__ if f"`{name}" not in text]
    assert not missing


def test_signatures_in_the_python_reference_are_the_codes_own() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"\*\*`(\w+)\(([^`]*)\)`\*\*", text))
    assert {"StudySpec", "Factor", "RunSpec", "Trial", "plan", "recommend"} <= set(told)
    for name, given in told.items():
        made = ast.parse(f"(lambda {given}: 0)", mode="eval").body
        assert isinstance(made, ast.Lambda)
        shown = [argument.arg for argument in (*made.args.args, *made.args.kwonlyargs)]
        assert shown == list(inspect.signature(getattr(factored_scaling, name)).parameters), name


def test_every_command_with_json_is_in_its_reference() -> None:
    reference = load("make_reference")
    text = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    headings = "\n".join(re.findall(r"^## (.+)$", text, re.MULTILINE))
    commands = re.findall(r"^##+ (fsc [\w -]+)$(.*?)(?=^##+ fsc |\Z)", reference.page(), re.MULTILINE | re.DOTALL)
    named = [name for name, body in commands if "| `--json` |" in body]
    assert len(named) > 10
    assert not [name for name in named if name not in headings]


def test_every_error_is_in_the_error_reference() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    kinds = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]
    assert not [name for name in kinds if f"`{name}`" not in text]


def test_every_key_of_a_study_is_in_its_reference() -> None:
    text = (ROOT / "docs" / "reference" / "study.yaml.md").read_text(encoding="utf-8")
    keys = [*factored_scaling.StudySpec.__dataclass_fields__, *factored_scaling.Factor.__dataclass_fields__]
    assert not [key for key in keys if f"`{key}`" not in text]


@pytest.mark.parametrize("page", LINKING, ids=title)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)", text):
        other = page.parent / target if target else page
        assert other.exists(), f"{title(page)} links to {target}"
        if anchor and other.suffix == ".md":
            assert anchor in anchors(other), f"{title(page)} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Where a page's headings can be linked to, by GitHub's rule."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
