"""How much memory a process of this machine holds, by the kernel (Linux)."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(pid: int) -> int:
    """0 where there is no such process, or no /proc."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)
