"""This machine: what its processor is called, how many of its cores are used, and which addresses are its own."""

from __future__ import annotations

import ipaddress
import platform
from pathlib import Path


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def limit_threads(device: str, most: int = 1) -> None:
    """Limit the threads of a computation on a CPU: those that wait for each other on busy cores slow everything.

    Small networks are as fast on one.
    """
    import torch

    if device == "cpu":
        torch.set_num_threads(min(most, torch.get_num_threads()))


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
