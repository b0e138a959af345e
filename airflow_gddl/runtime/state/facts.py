"""What is kept of a run and of a table's last runs: a bounded digest of the records in `lake/_gddl/runs`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from airflow_gddl.contract.result import JobResult
from airflow_gddl.runtime.state.moments import latest, seconds_of

KEPT_RUNS = 14
_LONGEST_TEXT = 400


@dataclass(frozen=True)
class RunFact:
    """One run of one table that did or failed something.

    Attributes:
        started: seconds since the epoch.
        rows: of the replica after it; null when not known.
        commit: newest source commit applied by it, seconds since the epoch; null when it applied none.
        lag: its end minus that commit, in seconds; null when there is none.
        error: code; null unless it failed.
        airflow: Airflow's run id and task id, and the job's page on the platform where it ran on one; empty for a run
            that Airflow did not start.
        late_ignored: changes that were not applied, because what is stored of their keys is newer.
        not_listed_days: days of change files that its listing left out.
        listed: when these were looked at last, seconds since the epoch; null where none was left out.
    """

    started: float
    status: str
    mode: str
    engine: str
    seconds: float
    files: int
    rows_read: int
    appended: int
    redelivered: int
    quarantined: int
    rows: int | None
    commit: float | None
    lag: float | None
    error: str | None
    warnings: tuple[str, ...]
    run_id: str
    airflow: tuple[str, ...] = ()
    late_ignored: int = 0
    not_listed_days: int = 0
    listed: float | None = None

    @property
    def adds_up(self) -> bool:
        """Nothing lost: rows read = changes appended + re-deliveries skipped + rows quarantined (design, rule 5)."""
        return self.rows_read == self.appended + self.redelivered + self.quarantined

    @property
    def key(self) -> tuple[str, float]:
        return self.run_id, self.started


_FIELDS = tuple(field.name for field in fields(RunFact))
_STARTED, _STATUS, _QUARANTINED, _RUN_ID, _WARNINGS, _LATE = (
    _FIELDS.index(name) for name in ("started", "status", "quarantined", "run_id", "warnings", "late_ignored")
)


def fact_of(result: JobResult, now: float, airflow: tuple[str, ...] = ()) -> RunFact:
    """
    Args:
        now: taken as the end of a run that does not tell when it started.
    """
    started = seconds_of(result.started_at)
    return RunFact(
        started=now - result.seconds if started is None else started,
        status=result.status,
        mode=result.mode,
        engine=result.engine,
        seconds=result.seconds,
        files=result.files,
        rows_read=result.rows_read,
        appended=result.changes_written,
        redelivered=result.redelivered,
        quarantined=result.quarantined,
        rows=result.main.rows,
        commit=seconds_of(result.freshness.commit_ts),
        lag=result.freshness.lag_seconds,
        error=None if result.error is None else result.error.code,
        warnings=tuple(warning.code for warning in result.warnings),
        run_id=result.run_id,
        airflow=airflow,
        late_ignored=result.late_ignored,
        not_listed_days=result.not_listed_days,
        listed=seconds_of(result.listed_in_full_at),
    )


def to_list(fact: RunFact) -> list[Any]:
    """As JSON gives it back: lists, no tuples."""
    values = (getattr(fact, name) for name in _FIELDS)
    return [list(value) if isinstance(value, tuple) else value for value in values]


def from_list(values: Sequence[Any]) -> RunFact:
    """
    Older lists are shorter: what came later has its default.

    Raises:
        TypeError, ValueError: not what `to_list` made.
    """
    given = dict(zip(_FIELDS[: len(values)], values, strict=True))
    return RunFact(**{**given, "warnings": tuple(given["warnings"]), "airflow": tuple(given["airflow"])})


@dataclass(frozen=True, kw_only=True)
class TableRecord:
    """What the runs of a table say. Moments are seconds since the epoch; null: never, or not known.

    Attributes:
        last: the newest run, as `to_list` gives it; null before any.
        older: the runs before it, `KEPT_RUNS` - 1 at most, newest last: JSON that stays unparsed until somebody asks,
            since a list of ten thousand tables shows few of them.
        quarantined: rows quarantined by the runs that are kept.
        late_ignored: changes that these runs ignored as late.
        commit: newest source commit ever applied.
        complete: start of the newest run that did not fail: all that had landed by then is applied.
        succeeded: start of the newest run that did something and did not fail.
        rows, rows_at: of the replica, and the start of the run that counted them.
        error: of the newest run that failed, with its code.
        loose: records of runs that were not put into an archive yet.
    """

    last: list[Any] | None = None
    older: str = "[]"
    quarantined: int = 0
    commit: float | None = None
    complete: float | None = None
    succeeded: float | None = None
    rows: int | None = None
    rows_at: float | None = None
    error: str | None = None
    loose: int = 0
    late_ignored: int = 0

    @property
    def runs(self) -> tuple[list[Any], ...]:
        """As `to_list` gives them, newest last."""
        return (*json.loads(self.older), self.last) if self.last is not None else ()

    @property
    def facts(self) -> tuple[RunFact, ...]:
        """Newest last."""
        return tuple(from_list(run) for run in self.runs)

    @property
    def newest(self) -> RunFact | None:
        return None if self.last is None else from_list(self.last)

    @property
    def started(self) -> float | None:
        """Of the newest run."""
        return None if self.last is None else float(self.last[_STARTED])

    @property
    def warned(self) -> frozenset[str]:
        """Codes of the newest run's warnings."""
        return frozenset() if self.last is None else frozenset(self.last[_WARNINGS])

    @property
    def failed(self) -> bool:
        """The newest run failed, and none after it found all well."""
        if self.last is None:
            return False
        return bool(self.last[_STATUS] == "failed" and self.last[_STARTED] > (self.complete or 0))

    def with_runs(self, runs: Iterable[list[Any]]) -> TableRecord:
        """With these runs for those it has, the newest `KEPT_RUNS` of them."""
        kept = sorted(runs, key=lambda run: float(run[_STARTED]))[-KEPT_RUNS:]
        older = json.dumps(kept[:-1], ensure_ascii=False, separators=(",", ":"))
        put_aside = sum(run[_QUARANTINED] for run in kept)
        late = sum(run[_LATE] for run in kept if len(run) > _LATE)
        last = kept[-1] if kept else None
        return replace(self, last=last, older=older, quarantined=put_aside, late_ignored=late)

    def after(self, result: JobResult, now: float, airflow: tuple[str, ...] = (), *, whole: bool = True) -> TableRecord:
        """With one more run, whether it is the newest or not; the same run again changes nothing.

        An idle run found that there was nothing to do: it leaves no fact of its own, only that all is applied.

        Args:
            whole: it took all that had landed; a replay of the quarantine does not.
        """
        fact = fact_of(result, now, airflow)
        if result.is_idle:
            return replace(self, complete=latest(self.complete, fact.started)) if whole else self
        text = None if result.error is None else result.error.message[:_LONGEST_TEXT]
        if fact.key in {run.key for run in self.facts}:
            # Told again, by somebody who may know more of it: the job's own record does not name Airflow's run.
            return self.with_runs(to_list(fact) if from_list(run).key == fact.key else run for run in self.runs)
        one = _record_of(fact, text)
        return merged(self, one if whole else replace(one, complete=None))


def _record_of(fact: RunFact, error: str | None) -> TableRecord:
    good = fact.started if fact.status != "failed" else None
    return TableRecord(
        last=to_list(fact),
        quarantined=fact.quarantined,
        commit=fact.commit,
        complete=good,
        succeeded=good,
        rows=fact.rows,
        rows_at=None if fact.rows is None else fact.started,
        error=error,
        loose=1,
        late_ignored=fact.late_ignored,
    )


def merged(one: TableRecord, other: TableRecord) -> TableRecord:
    """What two writers know of a table, as one."""
    counted = max(one, other, key=lambda record: record.rows_at or 0)
    newest = max(one, other, key=lambda record: record.started or 0 if record.error else 0)
    return TableRecord(
        commit=latest(one.commit, other.commit),
        complete=latest(one.complete, other.complete),
        succeeded=latest(one.succeeded, other.succeeded),
        rows=counted.rows,
        rows_at=counted.rows_at,
        error=newest.error,
        loose=one.loose + other.loose,
    ).with_runs(_unique((*one.runs, *other.runs)))


def _unique(runs: Iterable[list[Any]]) -> list[list[Any]]:
    return list({(run[_RUN_ID], run[_STARTED]): run for run in runs}.values())
