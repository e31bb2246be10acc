"""What is said of this machine."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from factored_scaling.machine import in_url, is_loopback, prepare_device, processor


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
        prepare_device("cuda")
        assert torch.get_num_threads() == 3
        for most, expected in ((8, 3), (2, 2), (4, 2)):  # OMP_NUM_THREADS may say less than the cores
            prepare_device("cpu", most)
            assert torch.get_num_threads() == expected
        prepare_device("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def driver_of(devices: int, calls: list[tuple[int, int]]) -> SimpleNamespace:
    """A driver of so many GPUs that notes which flags were set on which."""

    def get(device: Any, index: int) -> int:
        device._obj.value = index
        return 0 if index < devices else 101  # no such device

    def set_flags(device: Any, flags: int) -> int:
        calls.append((device.value, flags))
        return 0

    start = 0 if devices else 100  # no device
    return SimpleNamespace(cuInit=lambda flags: start, cuDeviceGet=get, cuDevicePrimaryCtxSetFlags_v2=set_flags)


def test_waits_for_a_gpu_are_set_to_block_on_that_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for devices, name, expected in ((2, "cuda", [(0, 4)]), (2, "cuda:1", [(1, 4)]), (1, "cuda:1", []), (0, "cuda", [])):
        calls: list[tuple[int, int]] = []
        driver = driver_of(devices, calls)
        monkeypatch.setattr(ctypes, "CDLL", lambda library, driver=driver: driver)
        prepare_device(name)
        assert calls == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_process_sleeps_while_the_gpu_works() -> None:
    script = """
import time, torch
from factored_scaling.machine import prepare_device

prepare_device("cuda")
a = torch.randn(8192, 8192, device="cuda")
for _ in range(2):
    began, used = time.perf_counter(), time.process_time()
    for _ in range(40):
        a @ a
    torch.cuda.synchronize()
print((time.process_time() - used) / (time.perf_counter() - began))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.5


def test_a_script_without_a_main_guard_is_not_run_again_in_new_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import multiprocessing, time
from factored_scaling.machine import without_script

print("run")
process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
with without_script():
    process.start()
process.join()
print(process.exitcode, __file__.endswith("script.py"), __spec__)
""")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["run", "0 True None"]
    assert not done.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only GNU's C library can be asked to keep memory")
def test_memory_that_was_freed_is_not_fetched_again() -> None:
    script = """
import resource, torch
from factored_scaling.machine import prepare_device

prepare_device("cpu")
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
