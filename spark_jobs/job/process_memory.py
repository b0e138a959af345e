"""How much memory a process of this machine holds."""

from __future__ import annotations

import psutil


def resident_bytes(pid: int) -> int:
    """0 where there is no such process, or it is another user's."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
