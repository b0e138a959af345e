"""Ctrl-C, SIGTERM and a closed terminal as one exception, so that started processes can be ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Raised on a stop signal with that `number`. A BaseException, so that error handlers do not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def stoppable() -> AbstractContextManager[None]:
    """Context in which the signals raise `Stopped`. Main thread only."""
    return handling(_stop)


def unstoppable() -> AbstractContextManager[None]:
    """Context in which the signals are ignored. Main thread only."""
    return handling(signal.SIG_IGN)


@contextmanager
def handling(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Context in which the handler gets the signals. Main thread only."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)
