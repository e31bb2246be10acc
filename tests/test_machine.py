"""What is said of this machine."""

from __future__ import annotations

import pytest
import torch

from factored_scaling.machine import in_url, is_loopback, limit_threads, processor


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


def test_threads_are_limited_on_a_cpu_and_never_raised() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        limit_threads("cuda")
        assert torch.get_num_threads() == 3
        for most, expected in ((8, 3), (2, 2), (4, 2)):  # OMP_NUM_THREADS may say less than the cores
            limit_threads("cpu", most)
            assert torch.get_num_threads() == expected
        limit_threads("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
