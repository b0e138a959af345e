"""Ctrl-C, SIGTERM and a closed terminal as one exception, so that started processes can be ended."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Raised on a stop signal with that `number`. A BaseException, so that error handlers do not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Context in which the signals raise `Stopped`. Main thread only."""
    with _handling(_stop):
        yield


@contextlib.contextmanager
def unstoppable() -> Iterator[None]:
    """Context in which the signals are ignored. Main thread only."""
    with _handling(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _handling(handler: object) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}  # type: ignore[arg-type]  # either sort
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)
