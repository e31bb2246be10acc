"""Values on the wire: msgpack, with numpy arrays and numbers as small maps that openpi understands.

`_check` first walks over the headers of a message, so that no memory is allocated for false claims. It refuses more
values, text or nesting than an observation has, and lengths beyond the received bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from factored_scaling.core.checks import shown
from factored_scaling.errors import InvalidInput

_KINDS = "biuf"  # kinds of arrays: numbers and bools; objects would allow code
_LARGEST_ITEM = 8  # bytes; long doubles differ from machine to machine
_MOST_AXES = 32
_ARRAY, _NUMBER = b"__ndarray__", b"__npgeneric__"

MOST_VALUES = 100_000  # in one message; an array counts as several
MOST_TEXT = 1_000_000  # bytes of all texts in one message
DEEPEST = 32  # maps and lists inside each other

# by the first byte of a value: how many bytes its length has, and how many bytes follow it where there is no length
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_SIZES = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8} | {start + k: 2**k for start in (0xCC, 0xD0) for k in range(4)}


def pack(value: Any) -> bytes:
    """Bytes of plain data and arrays."""
    try:
        packed: bytes = msgpack.packb(value, default=_encoded)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"cannot be sent ({error})") from None
    return packed


def unpack(data: bytes) -> Any:
    """What `pack` packed; InvalidInput for anything else. Arrays are views of `data` and cannot be written to."""
    _check(data)
    try:
        return msgpack.unpackb(data, object_hook=_decoded)
    except InvalidInput:
        raise
    except (msgpack.exceptions.UnpackException, ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"is not a message of this protocol ({type(error).__name__}: {shown(str(error))})") from None


def numbers(value: Any, where: str) -> np.ndarray[Any, Any]:
    """`value` of a message as an array of numbers or bools."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        array = np.asarray(None)
    if not _is_numeric(array.dtype):
        raise InvalidInput(f"expected numbers, not {shown(value)}", where=where)
    return array


def flag(observation: Mapping[str, Any], name: str) -> bool:
    """The flag `name` of an observation: a bool or a number, also numpy's; false if missing."""
    value = observation.get(name)
    if value is None:
        return False
    array = numbers(value, f"observation.{name}")
    if array.size != 1:
        raise InvalidInput(f"expected true or false, not shape {array.shape}", where=f"observation.{name}")
    return bool(array.item())


def _check(data: bytes) -> None:
    """Walk over the headers of a message without building anything."""
    at, text, values = 0, 0, 0
    open_: list[int] = [1]  # remaining values in each open list and map
    while open_:
        if open_[-1] == 0:
            open_.pop()
            continue
        open_[-1] -= 1
        values += 1
        if values > MOST_VALUES:
            raise InvalidInput(f"has more than {MOST_VALUES:,} values", hint="send numbers as arrays")
        kind, at, size, children = _header(data, at)
        if at + size + children > len(data):
            raise InvalidInput("is cut short: it claims more than has arrived")
        at += size
        if kind == "text":
            text += size
            if text > MOST_TEXT:
                raise InvalidInput(f"has more than {MOST_TEXT:,} bytes of text")
        if children:
            open_.append(children)
            if len(open_) > DEEPEST:
                raise InvalidInput(f"is nested more than {DEEPEST} deep")
    if at != len(data):
        raise InvalidInput(f"has {len(data) - at} bytes after its end")


def _header(data: bytes, at: int) -> tuple[str, int, int, int]:
    """The header of a value: its type, start and bytes of its content, and its number of values."""
    if at >= len(data):
        raise InvalidInput("is cut short: it claims more than has arrived")
    first = data[at]
    at += 1
    if first <= 0x7F or first >= 0xE0:
        return "number", at, 0, 0
    if first <= 0x8F:
        return "map", at, 0, 2 * (first & 0x0F)
    if first <= 0x9F:
        return "list", at, 0, first & 0x0F
    if first <= 0xBF:
        return "text", at, first & 0x1F, 0
    if first in _SIZES:
        return "number", at, _SIZES[first], 0
    if first not in _LENGTHS:
        raise InvalidInput(f"holds a value of a type that this protocol does not have ({first:#x})")
    end = at + _LENGTHS[first]
    if end > len(data):
        raise InvalidInput("is cut short: it claims more than has arrived")
    length = int.from_bytes(data[at:end], "big")
    if first <= 0xC6:
        return "bytes", end, length, 0
    if first <= 0xDB:
        return "text", end, length, 0
    return ("list", end, 0, length) if first <= 0xDD else ("map", end, 0, 2 * length)


def _encoded(value: object) -> dict[bytes, Any]:
    if isinstance(value, np.ndarray) and _is_numeric(value.dtype):
        return {_ARRAY: True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic) and _is_numeric(value.dtype):
        return {_NUMBER: True, b"data": value.item(), b"dtype": value.dtype.str}
    kind = f"{type(value).__name__} of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(f"{kind} is neither plain data nor an array of numbers")


def _decoded(value: dict[Any, Any]) -> Any:
    if _ARRAY in value:
        return _array(value)
    if _NUMBER in value:
        return _number(value)
    return value


def _array(value: dict[Any, Any]) -> np.ndarray[Any, Any]:
    dtype, shape, data = _dtype(value), value.get(b"shape"), value.get(b"data")
    if (
        not isinstance(shape, list)
        or len(shape) > _MOST_AXES
        or not all(type(size) is int and 0 <= size < 2**31 for size in shape)
    ):
        raise InvalidInput(f"an array of shape {shown(shape)}")
    if not isinstance(data, bytes) or len(data) != dtype.itemsize * math.prod(shape):
        size = len(data) if isinstance(data, bytes) else 0
        raise InvalidInput(f"an array of shape {tuple(shape)} and type {dtype} in {size} bytes")
    return np.ndarray(tuple(shape), dtype, data)


def _number(value: dict[Any, Any]) -> Any:
    """A number of numpy, whose value must fit its type."""
    dtype, data = _dtype(value), value.get(b"data")
    plain = {"b": (bool,), "i": (int,), "u": (int,), "f": (float, int)}[dtype.kind]
    if type(data) not in plain:
        raise InvalidInput(f"a number of type {dtype} from {shown(data)}")
    try:
        with np.errstate(over="raise"):
            return dtype.type(data)
    except (OverflowError, FloatingPointError):
        raise InvalidInput(f"{shown(data)} is too large for the type {dtype}") from None


def _dtype(value: dict[Any, Any]) -> np.dtype[Any]:
    name = value.get(b"dtype")
    try:
        # a number's type is written in a few characters; longer ones are texts of gigabytes and records of many fields
        dtype = np.dtype(name) if isinstance(name, str) and len(name) <= 16 else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or not _is_numeric(dtype):
        raise InvalidInput(f"an array of type {shown(name)}", hint="send numbers or bools of at most 64 bits")
    return dtype


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _KINDS and dtype.itemsize <= _LARGEST_ITEM
