"""What is done beside a job that goes on: state, hints and events as results come, whatever the store does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_gddl.contract.result import ErrorInfo, JobResult, Status
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.standing import StandingOrder
from airflow_gddl.landing import hints
from airflow_gddl.landing.hint_book import HintBook
from airflow_gddl.landing.keeping import FLUSH_SECONDS, Keeping
from airflow_gddl.landing.standing import Standing
from airflow_gddl.runners.base import ProgressEvent
from airflow_gddl.state.reading import read_pipeline
from airflow_gddl.state.recording import StateRecorder
from airflow_gddl.stores import open_store

PIPELINE = "gddl_pack.s"


@dataclass
class Log:
    """Hears."""

    heard: list[JobResult] = field(default_factory=list)

    def on_progress(self, event: ProgressEvent) -> None: ...

    def on_result(self, result: JobResult) -> None:
        self.heard.append(result)

    def event_of(self, result: JobResult) -> Mapping[str, object] | None:
        return {"rows": result.rows_read} if result.status == "succeeded" else None


@dataclass
class Desk:
    roots: Roots
    keeping: Keeping
    log: Log
    now: float = 1_700_000_000.0

    def later(self, seconds: float = FLUSH_SECONDS) -> None:
        self.now += seconds
        self.keeping.tick()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    roots, log = Roots(landing=str(tmp_path), lake=str(tmp_path / "lake")), Log()
    made: list[Desk] = []

    def now() -> float:
        return made[0].now if made else 0.0

    keeping = Keeping(
        standing=Standing(roots, PIPELINE, lambda: None, now=now),
        state=StateRecorder(roots, PIPELINE, ("s.a",), clock=now),
        book=HintBook(roots, PIPELINE, clock=now),
        hearer=log,
        run="r",
        task="continuous_load",
        now=now,
    )
    made.append(Desk(roots, keeping, log))
    return made[0]


def told(status: Status, second: int, rows: int = 0) -> JobResult:
    error = ErrorInfo(code="BROKEN", message="no") if status == "failed" else None
    moment = f"2023-11-14T22:13:{second:02d}.000000+00:00"
    return JobResult(
        table="s.a", status=status, run_id="j", started_at=moment, rows_read=rows, changes_written=rows, error=error
    )


def hint_of(desk: Desk) -> hints.TableHint | None:
    return hints.read(open_store(desk.roots.lake), desk.roots.lake, PIPELINE).tables.get("s.a")


def test_idle_looks_are_kept_but_not_heard_and_the_event_of_before_waits(desk: Desk) -> None:
    desk.keeping.on_result(told("succeeded", 1, 5))
    desk.keeping.on_result(told("skipped", 9))
    desk.later()
    assert [result.status for result in desk.log.heard] == ["succeeded"]
    hint = hint_of(desk)
    assert hint is not None
    assert (hint.looked_at, hint.announce) == ("2023-11-14T22:13:09.000000+00:00", {"rows": 5})
    record = read_pipeline(desk.roots.lake, (PIPELINE,)).records["s.a"]
    assert (record.complete or 0) - (record.succeeded or 0) == 8
    assert len(record.facts) == 1


def test_a_table_that_fails_is_failing_until_it_goes_well(desk: Desk) -> None:
    desk.keeping.on_result(told("failed", 1))
    assert [result.table for result in desk.keeping.failing] == ["s.a"]
    desk.later()
    assert hints.read(open_store(desk.roots.lake), desk.roots.lake, PIPELINE).failed == {"s.a": "r"}
    desk.keeping.on_result(told("skipped", 2))
    assert desk.keeping.failing == []
    assert [result.status for result in desk.log.heard] == ["failed", "skipped"]


def test_a_table_whose_row_was_taken_away_because_it_failed_fails_nothing_any_more(desk: Desk) -> None:
    rows = {name: TableSpec(table=f"s.{name}", keys=("id",)) for name in "ab"}
    desk.keeping.standing.put(StandingOrder(tables=tuple(rows.values())))
    desk.keeping.on_result(told("failed", 1))
    assert [result.table for result in desk.keeping.failing] == ["s.a"]
    desk.keeping.standing.put(StandingOrder(tables=(rows["b"],)))
    assert desk.keeping.failing == []


def test_nothing_is_written_more_often_than_needed(desk: Desk) -> None:
    desk.later()
    desk.keeping.on_result(told("succeeded", 1, 5))
    desk.later(1)
    assert hint_of(desk) is None
    desk.later()
    assert hint_of(desk) is not None


def test_a_store_that_can_t_be_written_stops_nothing_and_is_written_later(desk: Desk) -> None:
    blocked = Path(desk.roots.lake, "_gddl", "airflow")
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder belongs")
    desk.keeping.on_result(told("succeeded", 1, 5))
    desk.later()
    blocked.unlink()
    desk.later()
    hint = hint_of(desk)
    assert hint is not None
    assert hint.announce == {"rows": 5}
