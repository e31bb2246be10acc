"""Compiled templates are kept by the rules of Python's own bytecode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from factored_scaling.report.templating import templates

NAME = "report.html.j2"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The templates that were compiled; bytecode is kept in a folder of the test."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    names: list[str] = []
    generate = Environment._generate

    def counted(self: Environment, source: Any, name: str, *rest: Any, **options: Any) -> str:
        names.append(name)
        return generate(self, source, name, *rest, **options)

    monkeypatch.setattr(Environment, "_generate", counted)
    return names


def test_a_template_is_compiled_once(compiled: list[str], tmp_path: Path) -> None:
    templates().get_template(NAME)
    templates().get_template(NAME)
    assert compiled == [NAME]
    assert len([*tmp_path.rglob("template-*")]) == 1


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5])
def test_damaged_bytecode_is_compiled_again(compiled: list[str], tmp_path: Path, part: float) -> None:
    templates().get_template(NAME)
    (file,) = tmp_path.rglob("template-*")
    whole = file.read_bytes()
    file.write_bytes(whole[: int(part * len(whole))])
    templates().get_template(NAME)
    assert compiled == [NAME, NAME]
    assert file.read_bytes() == whole


def test_nothing_is_written_where_python_writes_no_bytecode(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    templates().get_template(NAME)
    assert compiled == [NAME]
    assert [*tmp_path.rglob("template-*")] == []


def test_a_folder_that_cannot_be_written_to_is_no_error(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    assert templates().get_template(NAME).name == NAME
