"""What is said of this machine."""

from __future__ import annotations

import pytest

from factored_scaling.machine import in_url, is_loopback, processor


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.0.0.5", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.7", False),
        ("robot", False),
    ],
)
def test_loopback_is_told_from_a_network(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_addresses_with_colons_stand_in_brackets_before_a_port() -> None:
    assert (in_url("::1"), in_url("robot")) == ("[::1]", "robot")


def test_the_processor_has_a_name() -> None:
    assert processor().strip()
