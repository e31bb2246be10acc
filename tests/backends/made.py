"""Backends as a study.yaml would name them, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from factored_scaling.backends import BackendRequest, make_backend


def backend_of(
    settings: Mapping[str, Any],
    policy: Mapping[str, Any],
    folder: Path,
    device: str | None,
    evaluation: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """The backend of these settings. Its class is not known to the type checker."""
    return make_backend(BackendRequest(settings, policy, evaluation, None, folder, device))
