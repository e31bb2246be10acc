"""Checkpoints: safetensors for numbers, JSON for everything else, never pickle.

A checkpoint is a pair `NAME.safetensors` + `NAME.json`. The JSON is written last and carries the digest of the tensors
and of itself, so a truncated, mixed-up or damaged pair is detected when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from factored_scaling.errors import CheckpointError
from factored_scaling.io.atomic import whole

VERSION = 1
RESUME = re.compile(r"resume-(\d{9})\.json")


def write(folder: Path, name: str, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write the pair; after a crash there is the old pair, the new pair, or one that is detected as damaged."""
    data = safetensors.torch.save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
    content = {**description, "version": VERSION, "tensors_digest": hashlib.sha256(data).hexdigest()}
    content["digest"] = _digest(content)
    with whole(folder / f"{name}.safetensors") as partial:
        partial.write_bytes(data)
    with whole(folder / f"{name}.json") as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(folder: Path, name: str, hint: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors (on the CPU) and the description of a pair; CheckpointError when it is missing or damaged."""
    path = folder / f"{name}.safetensors"
    description = read_description(folder, name, hint)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError("the file is missing", where=str(path), hint=hint) from None
    if hashlib.sha256(data).hexdigest() != description["tensors_digest"]:
        raise CheckpointError("the file was cut short or changed since it was written", where=str(path), hint=hint)
    return safetensors.torch.load(data), description


def read_description(folder: Path, name: str, hint: str = "") -> dict[str, Any]:
    """The JSON half of a pair, checked against its own digest."""
    path = folder / f"{name}.json"
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError("the file is missing", where=str(path), hint=hint) from None
    except (ValueError, RecursionError):
        raise CheckpointError("the file is not JSON; it was cut short or changed", where=str(path), hint=hint) from None
    if not isinstance(content, dict) or content.get("digest") != _digest(content):
        raise CheckpointError("the file was changed since it was written", where=str(path), hint=hint)
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"format version {content.get('version')} is not the one this release reads ({VERSION})", where=str(path)
        )
    return content


def is_intact(folder: Path, name: str) -> bool:
    """Whether the pair exists and is intact."""
    try:
        read(folder, name)
    except CheckpointError:
        return False
    return True


class ResumePoints:
    """The last two states of a running training, so that a damaged one costs only the updates since the other."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def steps(self) -> list[int]:
        """Steps that a description exists for, oldest first."""
        matches = (RESUME.fullmatch(path.name) for path in self.folder.glob("resume-*.json"))
        return sorted(int(match[1]) for match in matches if match)

    def save(self, step: int, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
        """Add a state and remove the oldest ones beyond `keep`."""
        write(self.folder, f"resume-{step:09d}", tensors, {**description, "step": step})
        current = {f"resume-{one:09d}" for one in self.steps()[-self.keep :]}
        for old in self.steps()[: -self.keep]:
            self._remove(old)
        for stray in self.folder.glob("*resume-*"):  # left by a kill during writing; as large as a state
            if stray.stem not in current:
                stray.unlink(missing_ok=True)

    def newest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest intact state, or None. Damaged states are removed."""
        for step in reversed(self.steps()):
            try:
                return read(self.folder, f"resume-{step:09d}")
            except CheckpointError:
                self._remove(step)
        return None

    def clear(self) -> None:
        """Remove every state; the finished model has been written."""
        for step in self.steps():
            self._remove(step)
        for stray in (*self.folder.glob("resume-*"), *self.folder.glob("*.tmp")):
            stray.unlink(missing_ok=True)

    def _remove(self, step: int) -> None:
        # The description first: without it the tensors no longer count as a state.
        for suffix in ("json", "safetensors"):
            (self.folder / f"resume-{step:09d}.{suffix}").unlink(missing_ok=True)


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` with `prefix.` before each key."""
    return {f"{prefix}.{key}": value for key, value in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under `prefix`, with their own keys: the inverse of `prefixed`."""
    return {key[len(prefix) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{prefix}.")}


def digest_of(*parts: Any) -> str:
    """A short digest of plain data and tensors, to check that a checkpoint belongs to this training."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            part = part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        digest.update(part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def _digest(content: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
