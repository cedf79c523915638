"""A clock that nobody can set back, shared by every process of a host."""

from __future__ import annotations

import sys
import time
from pathlib import Path


def boot_clock() -> tuple[str, float]:
    """This boot's name and the seconds it has run, sleep included: a clock that nobody can set back, shared
    by every process of the host."""
    if sys.platform != "linux":
        return "", time.monotonic()
    return _boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot_id() -> str:
    global _boot
    if _boot is None:
        _boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _boot


_boot: str | None = None
