"""Breaks a table's run after a step by raising, which costs no process and so allows many combinations."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_jobs.batch.runtime import Step


class BrokenOffError(Exception):
    """The fault that the tests put in."""


@dataclass(frozen=True, order=True)
class Break:
    """After the n-th time (from 1) that the step is told."""

    step: str
    occurrence: int = 1


@dataclass
class Breaker:
    """An observer that breaks tables off.

    Attributes:
        breaks: by table.
        done: tables that were broken off.
    """

    breaks: Mapping[str, Break]
    done: set[str] = field(default_factory=set)
    _told: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, reported: Step) -> None:
        with self._lock:
            self._told[reported.table, reported.step] += 1
            wanted = self.breaks.get(reported.table)
            if wanted is None or wanted != Break(reported.step, self._told[reported.table, reported.step]):
                return
            self.done.add(reported.table)
        raise BrokenOffError(f"{reported.table} after {wanted}")
