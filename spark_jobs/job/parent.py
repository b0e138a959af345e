"""A job whose starter died ends too: nobody would hear its results, and the next run waits for its claims."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil

_POLL_SECONDS = 0.5


def end_with(parent: int) -> None:
    """From now on end this process, and what it started, once `parent` is gone.

    At once and without ado: an interrupted run loses and repeats nothing, a half-dead one would hold its tables.

    Args:
        parent: the process that started this one, be it through a wrapper.
    """
    direct = os.getppid() == parent
    threading.Thread(target=_watch, args=(parent, direct), name="parent-watch", daemon=True).start()


def _watch(parent: int, direct: bool) -> None:
    # The id of a process that is gone may be used again; that of a direct parent can't mislead.
    while os.getppid() == parent if direct else _exists(parent):
        time.sleep(_POLL_SECONDS)
    if os.getpgrp() == os.getpid():
        # Its own group, as the local runner starts it: Spark's JVM goes too.
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _exists(process: int) -> bool:
    """A zombie, ended but not yet asked for, is gone."""
    try:
        return psutil.Process(process).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
