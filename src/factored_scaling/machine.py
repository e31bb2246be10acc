"""This machine: what its processor is called, how many of its cores are used, and which addresses are its own."""

from __future__ import annotations

import ctypes
import ipaddress
import platform
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST_KEPT = 32 << 20  # bytes of one block that is kept; malloc takes no more than this
MOST_KEPT = 1 << 30  # bytes that are kept in all


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def prepare_cpu(device: str, most: int = 1) -> None:
    """Prepare this process to compute on a CPU; does nothing when `device` is another one.

    At most `most` threads: those that wait for each other on busy cores slow everything, and small networks are as fast
    on one. Freed memory stays with the process: every update allocates the same few megabytes, and a process that
    trains its first policy would fetch them anew from the system each time.
    """
    import torch

    if device == "cpu":
        torch.set_num_threads(min(most, torch.get_num_threads()))
        _keep_memory()


def _keep_memory() -> None:
    """Ask malloc not to give freed memory back to the system; only GNU's C library can be asked."""
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
    """The host as an address shows it before a port: IPv6 stands in brackets."""
    return f"[{host}]" if ":" in host else host
