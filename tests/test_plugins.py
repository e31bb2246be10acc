"""Extension points: built-in names, entry points of installed packages, and references."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from factored_scaling.errors import InvalidInput, UnknownName, UnknownTask
from factored_scaling.plugins import Registry
from factored_scaling.sim import load_task


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An importable package with metadata, as pip installs one."""
    (tmp_path / "somelab").mkdir()
    (tmp_path / "somelab" / "__init__.py").write_text(
        "class Box:\n    def make(name, image_size=None):\n        return name, image_size\n"
    )
    (tmp_path / "somelab" / "broken.py").write_text("raise RuntimeError('no licence')\n")
    metadata = tmp_path / "somelab-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somelab\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[factored_scaling.test]\nsomelab/box = somelab:Box.make\nmean = somelab:Box\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "somelab"
    for name in [name for name in sys.modules if name.startswith("somelab")]:
        del sys.modules[name]


def registry() -> Registry:
    return Registry("factored_scaling.test", "thing", {"mean": "statistics:mean"})


def test_names_come_from_the_registry_and_from_installed_packages(package: str) -> None:
    things = registry()
    assert set(things) == {"mean", "somelab/box"}
    assert "mean" in things
    assert things.load("somelab/box")("somelab/box") == ("somelab/box", None)
    assert things.load("somelab:Box.make")("x", 3) == ("x", 3)


def test_an_installed_package_does_not_replace_a_built_in(package: str) -> None:
    assert registry().load("mean")([1, 2, 3]) == 2


def test_mistakes_name_the_thing_and_the_remedy(package: str) -> None:
    things = registry()
    with pytest.raises(UnknownName, match="did you mean mean"):
        things.load("maen")
    with pytest.raises(UnknownTask, match=r"study\.yaml: unknown thing 'maen'"):
        things.load("maen", UnknownTask, "study.yaml")
    for reference, reason in (
        ("nowhere:x", "ModuleNotFoundError"),
        ("somelab:Nothing", "AttributeError"),
        ("somelab.broken:x", "RuntimeError: no licence"),
        ("somelab:", "AttributeError"),
        (":x", "ValueError"),
    ):
        with pytest.raises(InvalidInput, match=f"thing {reference!r} cannot be loaded.*{reason}"):
            things.load(reference)


def test_tasks_come_from_anywhere(package: str) -> None:
    assert load_task("somelab:Box.make", 7) == ("somelab:Box.make", 7)  # type: ignore[comparison-overlap]
