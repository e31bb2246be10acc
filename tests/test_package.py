"""What the package shows to others, and what importing it must not cost."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import factored_scaling
from factored_scaling.cli.group import _EXTRAS

HEAVY = (
    "torch",
    "torchvision",
    "fastapi",
    "uvicorn",
    "starlette",
    "ray",
    "mani_skill",
    "sapien",
    "gymnasium",
    "pyarrow",
    "av",
    "lightgbm",
)

EXPORTED = [
    "Backend",
    "Combination",
    "Context",
    "Curve",
    "Dataset",
    "Episode",
    "Estimate",
    "Factor",
    "FscError",
    "InvalidInput",
    "Measurement",
    "Posterior",
    "Recommendation",
    "Result",
    "Results",
    "Run",
    "RunSpec",
    "StrategyInput",
    "Study",
    "StudySpec",
    "Trial",
    "__version__",
    "fit_curves",
    "fit_posterior",
    "fit_power_law",
    "plan",
    "read_results",
    "read_study",
    "recommend",
]


def loaded(code: str) -> set[str]:
    """The modules that are loaded in a fresh interpreter after `code`."""
    report = "import sys; print('\\n' + ' '.join(sys.modules))"
    script = f"try:\n    {code}\nexcept SystemExit:\n    pass\n{report}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.splitlines()[-1].split())


def test_the_exported_names_are_these() -> None:
    assert factored_scaling.__all__ == EXPORTED
    assert dir(factored_scaling) == sorted(EXPORTED)


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(factored_scaling, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'recomend'"):
        _ = factored_scaling.recomend


def test_importing_the_package_loads_nothing_but_itself() -> None:
    modules = loaded("import factored_scaling")
    assert not modules & {*HEAVY, "numpy", "scipy", "sqlalchemy", "matplotlib", "yaml", "click"}


def test_every_exported_name_loads_nothing_heavy() -> None:
    assert not loaded("from factored_scaling import *") & set(HEAVY)


def test_help_loads_nothing_heavy() -> None:
    modules = loaded("from factored_scaling.cli import main; main(['--help'])")
    assert "factored_scaling.cli" in modules
    assert not modules & {*HEAVY, "numpy", "scipy", "matplotlib", "sqlalchemy"}


def test_showing_runs_needs_no_web_server() -> None:
    assert not loaded("import factored_scaling.cli.runs, factored_scaling.web.overview") & set(HEAVY)


def test_workers_load_no_statistics() -> None:
    assert "scipy.stats" not in loaded("import factored_scaling.runner.worker")


@pytest.mark.parametrize("module", ["factored_scaling", "factored_scaling.cli"])
def test_help_is_printed(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr == ""
    for command in ("plan", "fit", "recommend"):
        assert command in done.stdout


def test_core_and_model_need_only_numpy() -> None:
    packages = {name: importlib.import_module(f"factored_scaling.{name}") for name in ("core", "model")}
    names = [
        f"factored_scaling.{package}.{module.name}"
        for package, found in packages.items()
        for module in pkgutil.iter_modules(found.__path__)
    ]
    assert {"factored_scaling.core.curves", "factored_scaling.model.recommend"} <= set(names)
    modules = loaded("import " + ", ".join(names))
    assert not modules & {*HEAVY, "sqlalchemy", "matplotlib", "yaml", "click", "rich", "jinja2"}


@pytest.mark.parametrize("command", ["sim list", "quickstart --tiny", "reproduce main", "run {}", "remix {}"])
def test_without_torch_a_command_that_needs_it_says_what_to_install(command: str, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("factors: {lighting: 4, camera_pose: 4}\ntask: tabletop/pick-place\n")
    program = (
        "import sys\n"
        "class WithoutTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError('not here', name=name)\n"
        "sys.meta_path.insert(0, WithoutTorch())\n"
        "from factored_scaling.cli import main\n"
        "main(sys.argv[1:])"
    )
    words = command.format(tmp_path).split()
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    said = "fsc: this needs torch, which is not installed; `pip install '.[sim]'` in a clone of factored-scaling\n"
    assert done.stderr == said
    assert not (tmp_path / "quickstart").exists()


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["plan", "nowhere"], 2)])
def test_a_process_ends_with_its_code_after_what_others_registered(arguments: list[str], code: int) -> None:
    program = (
        "import sys, threading, time\n"
        "from factored_scaling.cli import process\n"
        "import atexit\n"
        "run = atexit.register\n"
        "atexit.register = lambda *given: (run(*given), run(print, 'registered'))\n"  # as modules loaded later do
        "threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "process()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stdout.splitlines()[-2:] == ["thread", "registered"]


def test_hints_name_extras_that_there_are() -> None:
    root = Path(factored_scaling.__file__).parent
    extras = tomllib.loads((root.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for path in root.rglob("*.py") for extra in re.findall(r'installs\("(\w+)"\)', path.read_text())}
    assert {"lerobot", "postgres", "web"} <= named <= set(extras)
    assert set(_EXTRAS.values()) <= set(extras)
    assert any(need.startswith("imageio-ffmpeg") for need in extras["sim"]), "what `fsc sim video` asks for"
