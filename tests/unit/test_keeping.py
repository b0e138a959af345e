"""What is done beside a job that goes on: state, hints and events as results come, whatever the store does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_gddl.contract.result import ErrorInfo, JobResult, Status
from airflow_gddl.contract.spec import DesiredState, Roots, TableSpec
from airflow_gddl.runners.interface import ProgressEvent
from airflow_gddl.runtime.landing.continuous_job import FLUSH_SECONDS, ContinuousJobMonitor, DesiredStateKeeper
from airflow_gddl.runtime.state.lake_state import read_pipeline
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.table_runs import TableHint, extra_of

PIPELINE = "gddl_pack.s"


@dataclass
class Log:
    """Hears."""

    heard: list[JobResult] = field(default_factory=list)

    def on_progress(self, event: ProgressEvent) -> None: ...

    def on_result(self, result: JobResult) -> None:
        self.heard.append(result)


@dataclass
class KeepingContext:
    roots: Roots
    keeping: ContinuousJobMonitor
    log: Log
    now: float = 1_700_000_000.0

    def later(self, seconds: float = FLUSH_SECONDS) -> None:
        self.now += seconds
        self.keeping.tick()


@pytest.fixture
def context(tmp_path: Path) -> KeepingContext:
    roots, log = Roots(landing=str(tmp_path), lake=str(tmp_path / "lake")), Log()
    made: list[KeepingContext] = []

    def now() -> float:
        return made[0].now if made else 0.0

    keeping = ContinuousJobMonitor(
        standing=DesiredStateKeeper(roots, PIPELINE, lambda: None, now=now),
        state=StateRecorder(roots, PIPELINE, ("s.a",), clock=now),
        listener=log,
        run="r",
        task="continuous_load",
        now=now,
    )
    made.append(KeepingContext(roots, keeping, log))
    return made[0]


def reported(status: Status, second: int, rows: int = 0) -> JobResult:
    error = ErrorInfo(code="BROKEN", message="no") if status == "failed" else None
    moment = f"2023-11-14T22:13:{second:02d}.000000+00:00"
    return JobResult(
        table="s.a", status=status, run_id="j", started_at=moment, changes_written=rows, version=1, error=error
    )


LOADED = extra_of(reported("succeeded", 1, 5))


def hint_of(context: KeepingContext) -> TableHint | None:
    return StateRecorder(context.roots, PIPELINE, ()).known.record("s.a").hint


def test_idle_polls_are_stored_silently_and_pending_events_are_kept(context: KeepingContext) -> None:
    context.keeping.on_result(reported("succeeded", 1, 5))
    context.keeping.on_result(reported("skipped", 9))
    context.later()
    assert [result.status for result in context.log.heard] == ["succeeded"]
    hint = hint_of(context)
    assert hint is not None
    assert (hint.looked_at, hint.announce) == ("2023-11-14T22:13:09.000000+00:00", LOADED)
    record = read_pipeline(context.roots.lake, (PIPELINE,)).records["s.a"]
    assert (record.complete or 0) - (record.succeeded or 0) == 8
    assert len(record.runs) == 1


def test_a_table_that_fails_is_failing_until_it_goes_well(context: KeepingContext) -> None:
    context.keeping.on_result(reported("failed", 1))
    assert [result.table for result in context.keeping.failing] == ["s.a"]
    context.later()
    assert hint_of(context) is None
    context.keeping.on_result(reported("skipped", 2))
    assert context.keeping.failing == []
    assert [result.status for result in context.log.heard] == ["failed", "skipped"]


def test_a_removed_table_no_longer_fails_the_job(context: KeepingContext) -> None:
    rows = {name: TableSpec(table=f"s.{name}", keys=("id",)) for name in "ab"}
    context.keeping.standing.put(DesiredState(tables=tuple(rows.values())))
    context.keeping.on_result(reported("failed", 1))
    assert [result.table for result in context.keeping.failing] == ["s.a"]
    context.keeping.standing.put(DesiredState(tables=(rows["b"],)))
    assert context.keeping.failing == []


def test_nothing_is_written_more_often_than_needed(context: KeepingContext) -> None:
    context.later()
    context.keeping.on_result(reported("succeeded", 1, 5))
    context.later(1)
    assert hint_of(context) is None
    context.later()
    assert hint_of(context) is not None


def test_failed_writes_are_retried_later(context: KeepingContext) -> None:
    blocked = Path(context.roots.lake, "_gddl", "state")
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder belongs")
    context.keeping.on_result(reported("succeeded", 1, 5))
    context.later()
    blocked.unlink()
    context.later()
    hint = hint_of(context)
    assert hint is not None
    assert hint.announce == LOADED
