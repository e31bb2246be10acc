"""This machine: its processor, the settings for computing on it, new processes, and its addresses."""

from __future__ import annotations

import ctypes
import ipaddress
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST_KEPT = 32 << 20  # bytes of one block that is kept; malloc takes no more than this
BLOCKING_WAITS = 4  # CU_CTX_SCHED_BLOCKING_SYNC of cuda.h
MOST_KEPT = 1 << 30  # bytes that are kept in all
_STARTING = threading.Lock()


def processor() -> str:
    """The processor's name, if the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def prepare_device(device: str, most: int = 1) -> None:
    """Prepare this process to compute on a device, before its first use.

    On a CPU at most `most` threads are used: threads that wait for each other on busy cores are slow, and small
    networks need only one. Freed memory stays with the process, because every update allocates the same few megabytes
    again. With CUDA the process sleeps while it waits for the GPU. By default it would keep a core busy, which the
    simulators need.
    """
    import torch

    if device == "cpu":
        torch.set_num_threads(min(most, torch.get_num_threads()))
        _keep_memory()
    elif device.startswith("cuda"):
        _sleep_while_waiting(torch.device(device).index or 0)


def _keep_memory() -> None:
    """Keep freed memory in the process; only GNU's C library supports this."""
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        library.mallopt(M_TRIM_THRESHOLD, MOST_KEPT)


def _sleep_while_waiting(index: int) -> None:
    """Let CUDA's waits block on that GPU; does nothing where there is no driver of NVIDIA."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        device = ctypes.c_int()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
            driver.cuDevicePrimaryCtxSetFlags_v2(device, BLOCKING_WAITS)
    except (OSError, AttributeError):
        return


@contextmanager
def without_script() -> Iterator[None]:
    """Processes that are started here by `multiprocessing` do not run the user's script again.

    A spawned process imports the script that started it. Without `if __name__ == "__main__":` it would begin the
    script's work once more. What the processes run must not be defined in the script.
    """
    script = sys.modules["__main__"].__dict__
    with _STARTING:
        hidden: dict[str, object] = {name: script[name] for name in ("__file__", "__spec__") if name in script}
        script.update(dict.fromkeys(hidden))
        try:
            yield
        finally:
            script.update(hidden)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def in_url(host: str) -> str:
    """The host as part of a URL: IPv6 addresses are put in brackets."""
    return f"[{host}]" if ":" in host else host
