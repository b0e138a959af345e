"""Wait for what another thread or process does: by a condition, never for a length of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PATIENCE_SECONDS = 240.0
"""Longer than a busy machine needs; a test that reaches it has failed."""
_LEAST_PAUSE_SECONDS = 0.02

Found = TypeVar("Found")


def wait_for(condition: Callable[[], Found], what: str = "a condition", seconds: float = PATIENCE_SECONDS) -> Found:
    """What the condition returns once that is true. An `OSError` is a server that does not answer yet.

    It is tried every 20 ms, or, where it takes longer itself, after a pause of its own length.

    Raises:
        AssertionError: it is not true after so many seconds.
    """
    deadline, last = time.monotonic() + seconds, ""
    while True:
        began = time.monotonic()
        found = None
        try:
            found = condition()
        except OSError as error:
            last = f"; last fault: {error!r}"
        if found:
            return found
        now = time.monotonic()
        assert now < deadline, f"waited {seconds:g} s for {what}, found {found!r}{last}"
        time.sleep(max(_LEAST_PAUSE_SECONDS, now - began))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
