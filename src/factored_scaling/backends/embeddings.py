"""Embeddings that an external program writes for its policy, as input for FSC-Proxy."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from factored_scaling.core.proxy import nearest_means
from factored_scaling.errors import InvalidInput, UnknownFactor

LARGEST = 1e30  # of an embedding; the sum of larger squares overflows
ARRAYS = ("trained", "held_out", "factors")
_HINT = (
    "numpy.savez with `trained` and `held_out`, one row per observation, and `factors`, one name per row of held_out"
)


def similarities(path: Path, factors: Sequence[str]) -> dict[str, Any]:
    """Similarities of the file's held-out observations to the training set, in the form that workers store."""
    arrays = _arrays(path)
    varied = [str(name) for name in arrays["factors"].tolist()] if "factors" in arrays else []
    if varied and len(varied) != len(arrays["held_out"]):
        raise InvalidInput(f"{len(varied)} factors for {len(arrays['held_out'])} rows of held_out", hint=_HINT)
    for name in varied:
        if name not in ("", "nominal", *factors):
            raise UnknownFactor(name, factors, where="factors")
    nearest = nearest_means(arrays["held_out"], arrays["trained"])
    return {"nearest": nearest, "factors": [None if name in ("", "nominal") else name for name in varied]}


def _arrays(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = {name: file[name] for name in ARRAYS if name in file}
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, NotImplementedError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"cannot be read ({reason[:200]})", hint=_HINT) from None
    for name in ("trained", "held_out"):
        if name not in found:
            raise InvalidInput(f"no array {name!r}", hint=_HINT)
        rows = found[name]
        if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "fiu" or not rows.size:
            raise InvalidInput("expected rows of numbers", where=name, hint=_HINT)
        if np.isfinite(rows).all() and np.abs(rows.astype(np.float64)).max() > LARGEST:
            raise InvalidInput(f"expected numbers from -{LARGEST:g} to {LARGEST:g}", where=name)
    if "factors" in found and np.ndim(found["factors"]) != 1:
        raise InvalidInput("expected one name per row of held_out", where="factors", hint=_HINT)
    return found
