"""This machine: its processor, the settings for computing on it, and its addresses."""

from __future__ import annotations

import ctypes
import ipaddress
import platform
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST_KEPT = 32 << 20  # bytes of one block that is kept; malloc takes no more than this
MOST_KEPT = 1 << 30  # bytes that are kept in all


def processor() -> str:
    """The processor's name, if the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def prepare_cpu(device: str, most: int = 1) -> None:
    """Prepare this process to compute on a CPU; does nothing when `device` is another one.

    At most `most` threads are used: threads that wait for each other on busy cores are slow, and small networks need
    only one. Freed memory stays with the process, because every update allocates the same few megabytes again.
    """
    import torch

    if device == "cpu":
        torch.set_num_threads(min(most, torch.get_num_threads()))
        _keep_memory()


def _keep_memory() -> None:
    """Keep freed memory in the process; only GNU's C library supports this."""
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        library.mallopt(M_TRIM_THRESHOLD, MOST_KEPT)


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
