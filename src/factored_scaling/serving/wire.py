"""Values on the wire: msgpack, with numpy arrays and numbers as small maps that openpi understands."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import numpy as np

from factored_scaling.errors import InvalidInput

_KINDS = "biufSU"  # what arrays may hold: no objects, which would be code, and no records
_ARRAY, _NUMBER = b"__ndarray__", b"__npgeneric__"


def pack(value: Any) -> bytes:
    """Bytes of plain data and arrays."""
    try:
        packed: bytes = msgpack.packb(value, default=_encoded)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"cannot be sent ({error})") from None
    return packed


def unpack(data: bytes) -> Any:
    """What `pack` packed; InvalidInput for anything else. Arrays are views of `data` and cannot be written to."""
    try:
        return msgpack.unpackb(data, object_hook=_decoded)
    except InvalidInput:
        raise
    except (msgpack.exceptions.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"is not a message of this protocol ({type(error).__name__}: {error})") from None


def _encoded(value: object) -> dict[bytes, Any]:
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        return {_ARRAY: True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
        return {_NUMBER: True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"{type(value).__name__} is neither plain data nor an array of numbers")


def _decoded(value: dict[Any, Any]) -> Any:
    if _ARRAY in value:
        dtype, shape, data = _dtype(value), value.get(b"shape"), value.get(b"data")
        if not isinstance(shape, list | tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise InvalidInput(f"an array of shape {shape!r}")
        if not isinstance(data, bytes) or len(data) != dtype.itemsize * math.prod(shape):
            size = len(data) if isinstance(data, bytes) else 0
            raise InvalidInput(f"an array of shape {tuple(shape)} and type {dtype} in {size} bytes")
        return np.ndarray(tuple(shape), dtype, data)
    if _NUMBER in value:
        return _dtype(value).type(value.get(b"data"))
    return value


def _dtype(value: dict[Any, Any]) -> np.dtype[Any]:
    name = value.get(b"dtype")
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise InvalidInput(f"an array of type {name!r}")
    return dtype
