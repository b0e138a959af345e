"""Polls and ends a run on another platform; the time between two polls."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.runtime.runners.attempts import Attempts
from airflow_gddl.runtime.runners.base import WaitPolicy
from airflow_gddl.runtime.runners.platform import Handle, Platform, RunStatus

_GROWTH, _SPREAD = 1.5, 0.2


def cancel(platform: Platform, attempts: Attempts, run: WaitPolicy) -> None:
    """Stop a run permanently: the next try does not count its end as a failure of the tables.

    Raises:
        GddlError: as `Platform` and `Attempts`.
    """
    attempts.stop(run.number)
    platform.cancel(run.handle)


def time_out(platform: Platform, attempts: Attempts, run: WaitPolicy) -> None:
    """Stop a run that has reached its task's time limit; its end fails the tables without a result with `RUN_TIMEOUT`.

    Raises:
        GddlError: as `Platform` and `Attempts`.
    """
    attempts.time_out(run.number)
    platform.cancel(run.handle)


def polled(platform: Platform, handle: Handle, *, restart: bool = True) -> RunStatus:
    """Status of a run; a run that failed because of the platform is restarted, and ends only if that is refused.

    Raises:
        GddlError: as `Platform`.
    """
    run_status = platform.poll(handle)
    if run_status.restartable and restart:
        try:
            platform.restart(handle)
        except FatalError:
            restart = False
    return replace(run_status, restartable=run_status.restartable and restart)


def pauses(first: float, chance: Callable[[], float] = random.random) -> Iterator[float]:
    """Seconds between two polls, without end: from `first` to twelve times as many.

    Args:
        chance: returns random numbers from 0 to 1, so that many watchers do not poll at the same time.
    """
    pause = first
    while True:
        yield pause * (1 + _SPREAD * (2 * chance() - 1))
        pause = min(12 * first, pause * _GROWTH)
