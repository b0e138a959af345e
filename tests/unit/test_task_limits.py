"""The watchdog of a task: an exceeded limit leaves an answer before the process ends."""

from __future__ import annotations

import threading

import pytest

from spark_jobs.job.stop import Watchdog

GIB = 1024**3


@pytest.mark.parametrize(("seconds", "memory", "expected"), [(0.0, 64 * GIB, "late"), (3600.0, -GIB, "hungry")])
def test_exceeded_limit_stores_an_outcome_and_ends_the_process(seconds: float, memory: int, expected: str) -> None:
    done: list[str] = []
    ended = threading.Event()

    def end() -> None:
        done.append("end")
        ended.set()

    dog = Watchdog(seconds, memory, lambda: done.append("late"), lambda: done.append("hungry"), end)
    with dog:
        assert ended.wait(60)
    assert done == [expected, "end"]


def test_table_within_its_limits_continues() -> None:
    done: list[str] = []
    dog = Watchdog(3600.0, 64 * GIB, lambda: done.append("late"), lambda: done.append("hungry"), lambda: None)
    with dog:
        pass
    assert done == []
