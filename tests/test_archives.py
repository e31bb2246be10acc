"""What would be uploaded to PyPI: both archives are built, accepted by twine, and complete."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import factored_scaling

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the source archive, built from a copy: setuptools writes beside what it builds."""
    place = tmp_path_factory.mktemp("package")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "src", "pyproject.toml", "README.md", "LICENSE"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            copy = place / "source" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place / "dist"), str(place / "source")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.suffix: path for path in (place / "dist").iterdir()}


def test_twine_accepts_both_archives(archives: dict[str, Path]) -> None:
    assert set(archives) == {".whl", ".gz"}
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_every_file_of_the_package(archives: dict[str, Path]) -> None:
    with zipfile.ZipFile(archives[".whl"]) as wheel:
        names = set(wheel.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = message_from_string(wheel.read(metadata).decode())
    package = SOURCE / "factored_scaling"
    files = {path.relative_to(SOURCE).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} <= names
    assert fields["Version"] == factored_scaling.__version__
    assert fields["License-Expression"] == "MIT"
    with tarfile.open(archives[".gz"]) as source:
        held = {name.partition("/")[2] for name in source.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "src/factored_scaling/py.typed"} <= held
