"""When a table of a job that goes on is run: by news, by what was left over, after a failure, and anyway."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_gddl.contract.result import ErrorInfo, JobResult, Status
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.continuous.schedule import (
    ANYWAY_SECONDS,
    BATCHES_A_TURN,
    LONGEST_PAUSE,
    Schedule,
    anyway_seconds,
    pause_seconds,
)


def spec(name: str, **fields: Any) -> TableSpec:
    return TableSpec(table=f"s.{name}", keys=("id",), **fields)


def ended(name: str, status: Status = "succeeded", batches: int = 1, code: str = "BROKEN") -> JobResult:
    error = ErrorInfo(code=code, message="no") if status == "failed" else None
    return JobResult(table=f"s.{name}", status=status, batches=batches, error=error)


def begun(schedule: Schedule, now: float) -> list[str]:
    return [found.table for found in schedule.begin(now)]


@pytest.fixture
def schedule() -> Schedule:
    """Two tables that were run once at moment 100."""
    schedule = Schedule()
    schedule.keep([spec("a"), spec("b")], 100)
    assert begun(schedule, 100) == ["s.a", "s.b"]
    for name in "ab":
        schedule.done(ended(name), 100)
    return schedule


def test_table_without_new_files_runs_once_a_minute(schedule: Schedule) -> None:
    assert begun(schedule, 101) == []
    assert schedule.next_due() == 100 + ANYWAY_SECONDS
    assert begun(schedule, 100 + ANYWAY_SECONDS) == ["s.a", "s.b"]


def test_new_files_start_a_turn_of_their_table(schedule: Schedule) -> None:
    schedule.news(["s.b", "s.stranger"])
    assert begun(schedule, 101) == ["s.b"]


def test_new_files_during_a_turn_start_another(schedule: Schedule) -> None:
    schedule.news(["s.a"])
    assert begun(schedule, 101) == ["s.a"]
    schedule.news(["s.a"])
    assert begun(schedule, 102) == []
    schedule.done(ended("a"), 103)
    assert begun(schedule, 103) == ["s.a"]
    schedule.done(ended("a", "skipped", 0), 104)
    assert begun(schedule, 104) == []


def test_full_turn_is_followed_by_another(schedule: Schedule) -> None:
    schedule.news(["s.a"])
    schedule.begin(101)
    schedule.done(ended("a", batches=BATCHES_A_TURN), 102)
    assert begun(schedule, 102) == ["s.a"]


def test_failing_table_backs_off_exponentially(schedule: Schedule) -> None:
    now, pauses = 200.0, []
    for _ in range(12):
        schedule.news(["s.a"])
        assert "s.a" in begun(schedule, now)
        schedule.done(ended("a", "failed"), now)
        schedule.done(ended("b"), now)
        schedule.news(["s.a", "s.b"])
        due = schedule.entries["s.a"].due
        assert begun(schedule, due - 0.1) == ["s.b"]
        schedule.done(ended("b"), due - 0.1)
        pauses.append(due - now)
        now = due
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (5, LONGEST_PAUSE)


def test_success_resets_the_back_off(schedule: Schedule) -> None:
    for status, rests in (("failed", 5), ("failed", 10), ("succeeded", 0), ("failed", 5)):
        schedule.news(["s.a"])
        entry = schedule.entries["s.a"]
        now = max(entry.due, 200)
        schedule.begin(now)
        schedule.done(ended("a", status), now)  # type: ignore[arg-type] # of three texts
        if rests:
            assert entry.not_before - now == rests


def test_busy_table_is_retried_after_its_trigger(schedule: Schedule) -> None:
    schedule.keep([spec("a", trigger="30s")], 100)
    for now in (100, 130, 160):
        assert begun(schedule, now) == ["s.a"]
        schedule.done(ended("a", "failed", code="TABLE_BUSY"), now)
        assert schedule.next_due() == now + 30


def test_added_changed_and_removed_rows(schedule: Schedule) -> None:
    schedule.keep([spec("b", history=True), spec("c")], 101)
    assert sorted(begun(schedule, 101)) == ["s.b", "s.c"]
    schedule.done(ended("a"), 102)
    assert sorted(schedule.entries) == ["s.b", "s.c"]


def test_changed_row_ends_the_back_off(schedule: Schedule) -> None:
    for now in (200, 205, 215, 235):
        schedule.news(["s.a"])
        schedule.begin(now)
        schedule.done(ended("a", "failed"), now)
    assert schedule.entries["s.a"].due > 236
    schedule.keep([spec("a", history=True), spec("b")], 236)
    assert "s.a" in begun(schedule, 236)


def test_row_fixed_during_a_failing_turn_is_due_at_once(schedule: Schedule) -> None:
    schedule.news(["s.a"])
    schedule.begin(200)
    schedule.keep([spec("a", history=True), spec("b")], 201)
    schedule.done(ended("a", "failed"), 202)
    assert begun(schedule, 202) == ["s.a"]


def test_table_removed_and_added_during_its_turn_waits(schedule: Schedule) -> None:
    schedule.news(["s.a"])
    schedule.begin(101)
    schedule.keep([spec("b")], 102)
    assert not schedule.keeps("s.a")
    schedule.keep([spec("a"), spec("b")], 103)
    assert (schedule.keeps("s.a"), begun(schedule, 103)) == (True, [])
    schedule.done(ended("a"), 104)
    assert begun(schedule, 104) == ["s.a"]


def test_longest_wait_runs_first(schedule: Schedule) -> None:
    schedule.keep([spec("a"), spec("b"), spec("c")], 130)
    assert begun(schedule, 100 + ANYWAY_SECONDS) == ["s.c", "s.a", "s.b"]


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [({}, 60), ({"freshness": "1h"}, 60), ({"freshness": "1m"}, 15), ({"freshness": "1m", "trigger": "40s"}, 40),
     ({"trigger": "5m"}, 300)],
)  # fmt: skip
def test_interval_without_new_files(fields: dict[str, Any], seconds: float) -> None:
    assert anyway_seconds(spec("a", **fields)) == seconds


def test_back_off_is_bounded() -> None:
    assert pause_seconds(10**6) == LONGEST_PAUSE
