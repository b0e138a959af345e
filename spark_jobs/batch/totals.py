"""What a run counts and notes, and the outcome of its table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from airflow_gddl.contract.codes import TABLE_BUSY
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.result import (
    CommitMethod,
    ExpectationCount,
    Freshness,
    JobResult,
    MainCounts,
    Mode,
    ResultColumn,
    RunWarning,
    TableTasks,
    error_info,
)
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.plan.table_schema import select_columns
from spark_jobs.plan.waiting_files import NotListed
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.tables.table_definition import replica_columns

_SAMPLE = 5


MOST_COLUMNS = 500
"""Columns that a result lists."""


_UNLIKE = frozenset((
    "started_at", "schema_changes", "warnings", "max_commit_ts", "complete_until", "waiting_since",
    "not_listed", "columns",
))  # fmt: skip
"""Fields of `RunTotals` that a result has in another form, or lacks; it has the others as they are."""


@dataclass
class RunTotals:
    """Counts so far; updated during the run, so that a failed run reports its completed batches.

    Attributes:
        started_at: when the run started, ISO 8601 UTC; empty: as it ends.
        complete_until, waiting_since: see `Freshness`.
    """

    started_at: str = ""
    mode: Mode = "incremental"
    tasks: TableTasks = "many"
    commit: CommitMethod = "direct"
    batches: int = 0
    files: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    changes_written: int = 0
    redelivered: int = 0
    quarantined: int = 0
    rescued: int = 0
    filtered: int = 0
    truncates: int = 0
    late_ignored: int = 0
    main: MainCounts = field(default_factory=MainCounts)
    schema_changes: list[str] = field(default_factory=list)
    warnings: dict[str, RunWarning] = field(default_factory=dict)
    max_commit_ts: str | None = None
    complete_until: str | None = None
    waiting_since: str | None = None
    version: int | None = None
    not_listed: NotListed | None = None
    revisit: bool = False
    columns: tuple[ResultColumn, ...] = ()
    expectations: tuple[ExpectationCount, ...] = ()

    def wait(self, moments: Iterable[str]) -> None:
        """Note when some of what is not applied has landed."""
        self.waiting_since = min((*moments, *filter(None, [self.waiting_since])), default=None)

    def warn(self, warnings: Iterable[RunWarning]) -> None:
        """Add warnings; those of one code become one, counts added."""
        for warning in warnings:
            known = self.warnings.get(warning.code)
            if known is None:
                self.warnings[warning.code] = warning
            else:
                sample = tuple(dict.fromkeys((*known.sample, *warning.sample)))[:_SAMPLE]
                self.warnings[warning.code] = replace(known, count=known.count + warning.count, sample=sample)

    def result(self, table: str, run_id: str, ended: datetime) -> JobResult:
        """As a succeeded result, or a skipped one where there was nothing to do."""
        started_at = self.started_at or ended.isoformat(timespec="microseconds")
        return JobResult(
            table=table,
            status="succeeded" if self.batches else "skipped",
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in _UNLIKE},
            schema_changes=tuple(self.schema_changes),
            warnings=tuple(self.warnings.values()),
            freshness=Freshness(
                commit_ts=self.max_commit_ts,
                lag_seconds=None if self.max_commit_ts is None else _seconds(self.max_commit_ts, ended),
                complete_until=self.complete_until,
                waiting_since=self.waiting_since,
            ),
            seconds=_seconds(started_at, ended),
            run_id=run_id,
            started_at=started_at,
            not_listed_days=0 if self.not_listed is None else self.not_listed.days,
            listed_in_full_at=None if self.not_listed is None else self.not_listed.since,
            columns=self.columns[:MOST_COLUMNS],
            columns_left_out=max(0, len(self.columns) - MOST_COLUMNS),
        )


def _seconds(since: str, until: datetime) -> float:
    return round((until - datetime.fromisoformat(since)).total_seconds(), 3)


@dataclass(frozen=True)
class TableOutcome:
    """A result, and whether its failure is retriable."""

    result: JobResult
    retriable: bool = False

    @classmethod
    def of_failed(cls, result: JobResult, fault: GddlError) -> TableOutcome:
        """The outcome of a run that has failed, with what it did before."""
        return cls(replace(result, status="failed", error=error_info(fault)), isinstance(fault, RetriableError))

    @property
    def table(self) -> str:
        return self.result.table

    def with_warnings(self, warnings: Iterable[RunWarning]) -> TableOutcome:
        """The outcome with further warnings."""
        return replace(self, result=replace(self.result, warnings=(*self.result.warnings, *warnings)))


@dataclass(frozen=True)
class Declined:
    """A table that one task can't take; `totals` counts what was done before."""

    spec: TableSpec
    reason: str
    totals: RunTotals = field(default_factory=RunTotals)

    @property
    def table(self) -> str:
        return self.spec.table


TaskOutcome = TableOutcome | Declined
"""What a task answers for a table."""


def is_busy(result: JobResult) -> bool:
    """Whether another run, e.g. maintenance, holds the table: retried, not failed."""
    return result.error is not None and result.error.code == TABLE_BUSY


def columns_of(schema: BatchSchema) -> tuple[ResultColumn, ...]:
    """The replica's columns after a batch, in table order.

    A column that the batch's files lack has its own name as its source, and is masked as the metadata says.
    """
    table = schema.table_schema
    sources: dict[str, dict[str, None]] = {}
    masked = set()
    for group in schema.groups:
        for action in group.plan.actions:
            if action.source is not None:
                files = _in_files(action.source, table.spec)
                sources.setdefault(action.target.name, {}).update(dict.fromkeys(files))
                masked |= {action.target.name} if action.source in group.masks else set()
    absent = [column.name for column in table.data if not sources.get(column.name)]
    sources |= {name: {name: None} for name in absent}
    masked |= set(select_columns(absent, table.spec, stored=True).masks)
    return tuple(
        ResultColumn(
            name=column.name, type=str(column.type), sources=tuple(sources.get(column.name, ())),
            masked=column.name in masked,
        )
        for column in replica_columns(table)
    )  # fmt: skip


def _in_files(column: str, spec: TableSpec) -> tuple[str, ...]:
    """The columns of files that a delivered column is, or is computed from."""
    text = spec.derive.get(column)
    names = (column,) if text is None else spec.expressions[text].columns
    before = {after.lower(): name for name, after in spec.rename.items()}
    return tuple(before.get(name.lower(), name) for name in names)
