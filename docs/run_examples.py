"""Run the examples of the documentation: python docs/run_examples.py [--write] [PAGE.md …]

A page's blocks run from top to bottom in one empty folder:

- ```sh        runs under `bash -e`; it must succeed
- ```python    runs in one namespace per page
- ```text      right after either of them is what it prints (stdout and stderr); `…` stands for anything
- <!-- file: NAME --> before any other block writes that block to NAME first
- ```console and all others are shown, not run

`--write` puts what was printed into the pages. The tests run the same pages without it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
_BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\s*\n)?^```(?P<kind>[\w-]*)[^\n]*\n(?P<body>.*?)^```[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block. `expected` is the span of the text that follows it and must equal its output."""

    kind: str
    body: str
    line: int
    file: str | None
    expected: tuple[int, int] | None


@dataclass(frozen=True)
class Ran:
    """A block and what it printed."""

    block: Block
    output: str
    error: str | None = None


def blocks(text: str) -> list[Block]:
    """The page's blocks in order; an output block belongs to the block before it."""
    found = list(_BLOCK.finditer(text))
    made = []
    for match, following in itertools.zip_longest(found, found[1:]):
        runs = match["kind"] in ("sh", "python")
        near = following is not None and not text[match.end() : following.start()].strip()
        expected = following.span("body") if runs and near and following and following["kind"] == "text" else None
        line = text.count("\n", 0, match.start("kind")) + 1
        made.append(Block(match["kind"], match["body"], line, match["file"], expected))
    return made


def run_page(text: str) -> Iterator[Ran]:
    """Run the page's examples, one after another, in a folder of their own."""
    namespace: dict[str, Any] = {"__name__": "page"}
    with tempfile.TemporaryDirectory(prefix="fsc-docs-") as folder, contextlib.chdir(folder):
        for block in blocks(text):
            if block.file is not None:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.body, encoding="utf-8")
            elif block.kind == "sh":
                yield _shell(block)
            elif block.kind == "python":
                yield _python(block, namespace)


def matches(expected: str, output: str) -> bool:
    """Whether the output is what the page shows; `…` stands for anything, spaces at line ends do not count."""
    wanted = re.escape(_trimmed(expected)).replace("…", ".*")
    return re.fullmatch(wanted, _trimmed(output), re.DOTALL) is not None


def rewritten(text: str) -> str:
    """The page with its outputs as they are now."""
    for ran in reversed(list(run_page(text))):
        if ran.error is not None:
            raise SystemExit(f"line {ran.block.line}: {ran.error}")
        if ran.block.expected is not None:
            start, end = ran.block.expected
            if not matches(text[start:end], ran.output):
                text = text[:start] + _trimmed(ran.output) + "\n" + text[end:]
    return text


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def _shell(block: Block) -> Ran:
    here = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}", "PYTHONIOENCODING": "utf-8"}
    ended = subprocess.run(
        ["bash", "-e", "-c", block.body],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=300,
    )
    failed = f"exit code {ended.returncode}: {ended.stdout}" if ended.returncode else None
    return Ran(block, ended.stdout, failed)


def _python(block: Block, namespace: dict[str, Any]) -> Ran:
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * block.line + block.body, "page", "exec"), namespace)
    except Exception as error:
        return Ran(block, out.getvalue(), f"{type(error).__name__}: {error}")
    return Ran(block, out.getvalue())


def main(arguments: list[str]) -> None:
    write = "--write" in arguments
    pages = [Path(name).resolve() for name in arguments if name != "--write"] or PAGES
    for page in pages:
        text = page.read_text(encoding="utf-8")
        try:
            new = rewritten(text)
        except SystemExit as stop:
            sys.exit(f"{page}: {stop}")
        if new != text and write:
            page.write_text(new, encoding="utf-8")
        print(f"{page.name}: {'as it was' if new == text else 'rewritten' if write else 'differs'}")


if __name__ == "__main__":
    main(sys.argv[1:])
