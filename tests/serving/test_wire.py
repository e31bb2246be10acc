"""Values survive the wire, in the form that openpi uses; what does not belong there is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from factored_scaling.errors import InvalidInput
from factored_scaling.serving.wire import pack, unpack

KINDS = st.sampled_from(["u1", "<i4", ">i8", "<f4", "<f8", "?"])


@given(arrays.arrays(KINDS, arrays.array_shapes(min_dims=0, min_side=0)))
def test_arrays_come_back_equal(array: Any) -> None:
    back = unpack(pack({"a": {"b": [array]}}))["a"]["b"][0]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


def test_numbers_keep_their_type() -> None:
    back = unpack(pack({"x": np.float32(0.5), "n": np.int64(3), "plain": 3, "none": None, "text": "é"}))
    assert type(back["x"]) is np.float32
    assert type(back["n"]) is np.int64
    assert (back["plain"], back["none"], back["text"]) == (3, None, "é")


def test_the_form_is_openpis() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    theirs = {b"__ndarray__": True, b"data": array.tobytes(), b"dtype": "<f4", b"shape": (2, 3)}
    assert pack({"actions": array}) == msgpack.packb({"actions": theirs})
    number = {b"__npgeneric__": True, b"data": 7, b"dtype": "<i8"}
    assert pack({"n": np.int64(7)}) == msgpack.packb({"n": number})


@pytest.mark.parametrize(
    "value", [{"a": np.array([object()])}, {"a": np.array([1 + 2j])}, {"a": {1, 2}}, {"a": np.zeros(2, [("x", "f4")])}]
)
def test_what_is_no_plain_data_is_not_sent(value: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot be sent"):
        pack(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"dtype": "O"}, "type 'O'"),
        ({b"dtype": "|V8"}, "type"),
        ({b"dtype": "nonsense"}, "type 'nonsense'"),
        ({b"dtype": 3}, "type 3"),
        ({b"shape": (2, 2)}, r"shape \(2, 2\) .* in 24 bytes"),
        ({b"shape": (-2, -3)}, "shape"),
        ({b"shape": 6}, "shape 6"),
        ({b"shape": (2**30, 2**30)}, "in 24 bytes"),
        ({b"shape": (2**40, 2**40)}, "shape"),
        ({b"dtype": "|S4"}, r"type '\|S4'.*send numbers or bools"),
        ({b"data": "text"}, "in 0 bytes"),
    ],
)
def test_arrays_that_are_none_are_refused(change: dict[bytes, Any], message: str) -> None:
    good = {b"__ndarray__": True, b"data": bytes(24), b"dtype": "<f4", b"shape": (2, 3)}
    with pytest.raises(InvalidInput, match=message):
        unpack(msgpack.packb({"a": {**good, **change}}))


@given(st.binary(max_size=200))
def test_noise_is_an_error_and_nothing_worse(data: bytes) -> None:
    with contextlib.suppress(InvalidInput):
        unpack(data)
