"""What is said of this machine."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from factored_scaling.machine import in_url, is_loopback, prepare_cpu, processor


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
        prepare_cpu("cuda")
        assert torch.get_num_threads() == 3
        for most, expected in ((8, 3), (2, 2), (4, 2)):  # OMP_NUM_THREADS may say less than the cores
            prepare_cpu("cpu", most)
            assert torch.get_num_threads() == expected
        prepare_cpu("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only GNU's C library can be asked to keep memory")
def test_memory_that_was_freed_is_not_fetched_again() -> None:
    script = """
import resource, torch
from factored_scaling.machine import prepare_cpu

prepare_cpu("cpu")
def work():
    [torch.zeros(4 << 20, dtype=torch.uint8) for _ in range(8)]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(10):
    work()
before = faults()
for _ in range(20):
    work()
print(faults() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8 << 10, "fewer pages than one round of the blocks has"
