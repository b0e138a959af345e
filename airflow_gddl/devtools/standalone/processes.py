"""Finds every process of one standalone Airflow: workers and jobs leave its process group.

They are identified by an environment variable, which every child inherits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil

MARK = "STARTED_BY_GDDL"


def marked(value: str) -> list[psutil.Process]:
    """Processes whose mark is this value; never this process."""
    return [process for process, found in _marks() if found == value]


def marks() -> set[str]:
    """The marks of all processes of this user."""
    return {found for _, found in _marks()}


def cpu_seconds(value: str) -> float:
    """CPU time of all processes with this mark so far, and of those below them that have ended."""
    total = 0.0
    for process in marked(value):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])  # user, system, and both of children that were waited for
    return total


def end(processes: Iterable[psutil.Process], grace_seconds: float) -> None:
    """Terminate them, and kill those that do not end in time."""
    asked = list(processes)
    for process in asked:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(asked, timeout=grace_seconds)
    kill(left)


def kill(processes: Iterable[psutil.Process]) -> None:
    doomed = list(processes)
    for process in doomed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(doomed, timeout=5)


def _marks() -> Iterator[tuple[psutil.Process, str]]:
    own = psutil.Process().pid
    for process in psutil.process_iter():
        if process.pid == own:
            continue
        try:
            found = process.environ().get(MARK)
            alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            continue  # ended, or owned by another user
        if found is not None and alive:
            yield process, found
