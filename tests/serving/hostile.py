"""Messages that ask for more than they hold, and messages that are no values of the protocol."""

from __future__ import annotations

from typing import Any

import msgpack


def number(data: Any, dtype: Any) -> bytes:
    """A map that claims to be one number of numpy's."""
    return bytes(msgpack.packb({"state": {b"__npgeneric__": True, b"data": data, b"dtype": dtype}}))


def array(data: Any, dtype: Any, shape: Any) -> bytes:
    """A map that claims to be an array."""
    whole = {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape}
    return bytes(msgpack.packb({"state": whole}))


HOSTILE: dict[str, bytes] = {
    "a scalar text of 4 GB": number(4_000_000_000, "|S1"),
    "a scalar text of a type of 2 GB": number("x", "|S2000000000"),
    "a scalar of characters of 2 GB": number("x", "<U500000000"),
    "an array of texts": array(b"abc", "|S3", [1]),
    "an array of characters": array(b"abcd", "<U1", [1]),
    "a scalar that is a list": number([1] * 1000, "<f4"),
    "a scalar that is a text": number("12", "<f8"),
    "a scalar that is bytes": number(b"12", "<i8"),
    "a whole number too large for its type": number(300, "|u1"),
    "a negative number without a sign": number(-1, "<u8"),
    "a fraction as a whole number": number(2.5, "<i8"),
    "an infinite whole number": number(float("inf"), "<i8"),
    "a number too large for its type": number(1e300, "<f2"),
    "a complex number": number(1.0, "<c16"),
    "an object": number(1, "O"),
    "a date": number(1, "<M8[s]"),
    "a record": number(1, "f4,f4"),
    "a type of many fields": number(1, ",".join(["f4"] * 10_000)),
    "no data": number(None, "<f4"),
    "an array without bytes": array(b"", "<f4", [2**40]),
    "an array whose size overflows": array(b"", "<f8", [2**63, 2**63]),
    "an empty array with an endless side": array(b"", "<f4", [0, 2**63]),
    "an empty array with a long side": array(b"", "<f4", [0, 2**40]),
    "an array of a thousand axes": array(b"", "<f4", [0] * 1000),
    "an array of a hundred thousand long axes": array(b"", "<f4", [2**62] * 100_000),
    "an array of long doubles": array(bytes(16), "<f16", [1]),
    "a list that claims 4 billion entries": b"\x81\xa1a\xdd\xff\xff\xff\xff",
    "a map that claims 4 billion entries": b"\x81\xa1a\xdf\xff\xff\xff\xff",
    "a text that claims 4 GB": b"\x81\xa1a\xdb\xff\xff\xff\xff",
    "bytes that claim 4 GB": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "an extension that claims 4 GB": b"\x81\xa1a\xc9\xff\xff\xff\xff\x01",
    "a small extension": b"\x81\xa1a\xd4\x01\x00",
    "a list in a list, 200 deep": b"\x81\xa1a" + b"\x91" * 200 + b"\xc0",
    "a list in a list, 100,000 deep": b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0",
    "long lists in long lists": b"\x81\xa1a" + b"\xdd\x00\x00\xff\xff" * 20_000,
    "ten million empty maps": b"\x81\xa1a\xdd\x00\x98\x96\x80" + b"\x80" * 10_000_000,
    "ten million small numbers": b"\x81\xa1a\xdd\x00\x98\x96\x80" + b"\x01" * 10_000_000,
    "a text of twenty million characters": b"\x81\xa1a\xdb" + (20_000_000).to_bytes(4, "big") + b"a" * 20_000_000,
    "a key that is a list": b"\x81\x90\x01",
    "bytes after the end": b"\x80\x80",
    "nothing": b"",
    "half a message": msgpack.packb({"state": [1, 2, 3]})[:-1],
    "text that is not UTF-8": b"\x81\xa1a\xa2\xff\xfe",
    "a byte that has no meaning": b"\x81\xa1a\xc1",
}
