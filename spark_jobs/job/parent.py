"""Ends a job when its parent process ends: its results would be lost, and the next run waits for its claims."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil

_POLL_SECONDS = 0.5


def end_with(parent: int) -> None:
    """End this process and its children once `parent` has ended.

    Ends at once: an interrupted run loses and repeats nothing, a hanging one would hold its tables.

    Args:
        parent: the process that started this one, directly or through a wrapper.
    """
    direct = os.getppid() == parent
    threading.Thread(target=_watch, args=(parent, direct), name="parent-watch", daemon=True).start()


def _watch(parent: int, direct: bool) -> None:
    # The id of an ended process may be reused; not that of a direct parent.
    while os.getppid() == parent if direct else _exists(parent):
        time.sleep(_POLL_SECONDS)
    if os.getpgrp() == os.getpid():
        # The process group, which the local runner creates, includes Spark's JVM.
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _exists(process: int) -> bool:
    """A zombie counts as ended."""
    try:
        return psutil.Process(process).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
