"""When a table of a job that goes on is run: by news, by what was left over, after a failure, and anyway."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_gddl.contract.result import ErrorInfo, JobResult, Status
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.continuous.agenda import (
    ANYWAY_SECONDS,
    BATCHES_A_TURN,
    LONGEST_PAUSE,
    Agenda,
    anyway_seconds,
    pause_seconds,
)


def spec(name: str, **fields: Any) -> TableSpec:
    return TableSpec(table=f"s.{name}", keys=("id",), **fields)


def ended(name: str, status: Status = "succeeded", batches: int = 1, code: str = "BROKEN") -> JobResult:
    error = ErrorInfo(code=code, message="no") if status == "failed" else None
    return JobResult(table=f"s.{name}", status=status, batches=batches, error=error)


def begun(agenda: Agenda, now: float) -> list[str]:
    return [found.table for found in agenda.begin(now)]


@pytest.fixture
def agenda() -> Agenda:
    """Two tables that were run once at moment 100."""
    agenda = Agenda()
    agenda.keep([spec("a"), spec("b")], 100)
    assert begun(agenda, 100) == ["s.a", "s.b"]
    for name in "ab":
        agenda.done(ended(name), 100)
    return agenda


def test_nothing_is_run_without_news_but_anyway_once_a_minute(agenda: Agenda) -> None:
    assert begun(agenda, 101) == []
    assert agenda.next_due() == 100 + ANYWAY_SECONDS
    assert begun(agenda, 100 + ANYWAY_SECONDS) == ["s.a", "s.b"]


def test_news_bring_a_turn_of_that_table_alone(agenda: Agenda) -> None:
    agenda.news(["s.b", "s.stranger"])
    assert begun(agenda, 101) == ["s.b"]


def test_a_table_has_one_turn_at_a_time_and_news_meanwhile_bring_another(agenda: Agenda) -> None:
    agenda.news(["s.a"])
    assert begun(agenda, 101) == ["s.a"]
    agenda.news(["s.a"])
    assert begun(agenda, 102) == []
    agenda.done(ended("a"), 103)
    assert begun(agenda, 103) == ["s.a"]
    agenda.done(ended("a", "skipped", 0), 104)
    assert begun(agenda, 104) == []


def test_a_turn_that_took_as_much_as_it_may_is_followed_by_another(agenda: Agenda) -> None:
    agenda.news(["s.a"])
    agenda.begin(101)
    agenda.done(ended("a", batches=BATCHES_A_TURN), 102)
    assert begun(agenda, 102) == ["s.a"]


def test_a_failing_table_rests_ever_longer_whatever_its_news_and_the_others_do_not(agenda: Agenda) -> None:
    now, pauses = 200.0, []
    for _ in range(12):
        agenda.news(["s.a"])
        assert "s.a" in begun(agenda, now)
        agenda.done(ended("a", "failed"), now)
        agenda.done(ended("b"), now)
        agenda.news(["s.a", "s.b"])
        due = agenda.entries["s.a"].due
        assert begun(agenda, due - 0.1) == ["s.b"]
        agenda.done(ended("b"), due - 0.1)
        pauses.append(due - now)
        now = due
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (5, LONGEST_PAUSE)


def test_a_table_that_went_well_again_rests_shortly_after_the_next_failure(agenda: Agenda) -> None:
    for status, rests in (("failed", 5), ("failed", 10), ("succeeded", 0), ("failed", 5)):
        agenda.news(["s.a"])
        entry = agenda.entries["s.a"]
        now = max(entry.due, 200)
        agenda.begin(now)
        agenda.done(ended("a", status), now)  # type: ignore[arg-type] # of three texts
        if rests:
            assert entry.not_before - now == rests


def test_a_table_that_another_run_holds_is_tried_after_its_trigger(agenda: Agenda) -> None:
    agenda.keep([spec("a", trigger="30s")], 100)
    for now in (100, 130, 160):
        assert begun(agenda, now) == ["s.a"]
        agenda.done(ended("a", "failed", code="TABLE_BUSY"), now)
        assert agenda.next_due() == now + 30


def test_rows_that_come_change_and_go(agenda: Agenda) -> None:
    agenda.keep([spec("b", history=True), spec("c")], 101)
    assert sorted(begun(agenda, 101)) == ["s.b", "s.c"]
    agenda.done(ended("a"), 102)
    assert sorted(agenda.entries) == ["s.b", "s.c"]


def test_a_changed_row_ends_the_rest_after_failures(agenda: Agenda) -> None:
    for now in (200, 205, 215, 235):
        agenda.news(["s.a"])
        agenda.begin(now)
        agenda.done(ended("a", "failed"), now)
    assert agenda.entries["s.a"].due > 236
    agenda.keep([spec("a", history=True), spec("b")], 236)
    assert "s.a" in begun(agenda, 236)


def test_a_row_that_was_mended_while_it_failed_is_next_at_once(agenda: Agenda) -> None:
    agenda.news(["s.a"])
    agenda.begin(200)
    agenda.keep([spec("a", history=True), spec("b")], 201)
    agenda.done(ended("a", "failed"), 202)
    assert begun(agenda, 202) == ["s.a"]


def test_a_table_that_goes_and_comes_back_while_it_is_run_waits_for_its_end(agenda: Agenda) -> None:
    agenda.news(["s.a"])
    agenda.begin(101)
    agenda.keep([spec("b")], 102)
    assert not agenda.keeps("s.a")
    agenda.keep([spec("a"), spec("b")], 103)
    assert (agenda.keeps("s.a"), begun(agenda, 103)) == (True, [])
    agenda.done(ended("a"), 104)
    assert begun(agenda, 104) == ["s.a"]


def test_who_waited_longest_is_first(agenda: Agenda) -> None:
    agenda.keep([spec("a"), spec("b"), spec("c")], 130)
    assert begun(agenda, 100 + ANYWAY_SECONDS) == ["s.c", "s.a", "s.b"]


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [({}, 60), ({"freshness": "1h"}, 60), ({"freshness": "1m"}, 15), ({"freshness": "1m", "trigger": "40s"}, 40),
     ({"trigger": "5m"}, 300)],
)  # fmt: skip
def test_how_often_anyway(fields: dict[str, Any], seconds: float) -> None:
    assert anyway_seconds(spec("a", **fields)) == seconds


def test_pauses_have_a_longest_one() -> None:
    assert pause_seconds(10**6) == LONGEST_PAUSE
