"""Result of a job: one JobResult for each table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from airflow_gddl.contract import codes
from airflow_gddl.contract.codes import (
    KEYS_SHARED,
    RETRIED,
)
from airflow_gddl.contract.errors import FatalError, GddlError

Status = Literal["succeeded", "failed", "skipped"]
Mode = Literal["initial", "incremental", "refresh"]
TableTasks = Literal["one", "many"]
"""How many Spark tasks worked on a table."""
CommitMethod = Literal["direct", "merge"]
"""By one Delta commit of ours that names data files, or by Spark's own `MERGE INTO`."""

PROGRESS = "GDDL-PROGRESS "
"""Beginnings of lines of a job's standard error: a step as JSON, and the identifier of its Spark application."""


DISMISSIBLE = (KEYS_SHARED,)
"""Warnings that a person can dismiss as one dismisses rows in quarantine: no run shows whether they are right."""
MAINTENANCE_COUNTS = (
    "files_removed",
    "log_files_removed",
    "tombstones_removed",
    "changes_cut",
    "runs_removed",
    "leftovers_removed",
)
"""Counts in the details of a maintenance, as they are shown."""
STARTING_SPARK = "starting Spark"
"""The step of a table that waits for the Java process of the job."""
SPARK, WITHOUT_SPARK = "Spark", "the job's process, without Spark"
"""How `JobResult.place` begins, and what it is without Spark."""


@dataclass(frozen=True, kw_only=True)
class MainCounts:
    """Rows of the replica changed in this run, and its current rows (None: not known)."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class RunWarning:
    """A problem that did not stop the run. `sample`: a few keys or names, never masked values."""

    code: str
    message: str
    count: int = 1
    sample: tuple[Any, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the affected files; samples of other warnings may be keys, which are never logged or displayed."""
        return tuple(map(str, self.sample)) if self.code.startswith("FILE") else ()


Warnings: TypeAlias = tuple[RunWarning, ...]
"""What a step warns of; empty: nothing."""


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """How new a table's data is; moments are ISO 8601 in UTC.

    Attributes:
        commit_ts: newest source commit applied, null when unknown; `lag_seconds`: now minus it.
        complete_until: commit time of the source until which everything is known to have come, by what the job knows;
            None: not known.
        waiting_since: when the oldest landed of what is there and not applied: files that wait for a user or can't be
            read, and rows that a full load lacks and whose sweep is held. None: all is applied.
    """

    commit_ts: str | None = None
    lag_seconds: float | None = None
    complete_until: str | None = None
    waiting_since: str | None = None


@dataclass(frozen=True, kw_only=True)
class ErrorInfo:
    """Why a table failed, as a result keeps it.

    Attributes:
        fatal: a retry fails with the same error until a user fixes its cause. False where that is not known, too.
    """

    code: str
    message: str
    fatal: bool = False


def error_info(error: GddlError) -> ErrorInfo:
    """The error in a result."""
    fatal = isinstance(error, FatalError) and error.code not in RETRIED
    return ErrorInfo(code=error.code, message=str(error), fatal=fatal)


@dataclass(frozen=True, kw_only=True)
class ExpectationCount:
    """Rows that an expectation was checked on in this run, those of refused batches among them.

    Attributes:
        on: what rows that fail do, see `Expectation`.
        failed: rows for which its rule was not true.
    """

    name: str
    on: str
    checked: int = 0
    failed: int = 0


def summed(first: Iterable[ExpectationCount], second: Iterable[ExpectationCount]) -> tuple[ExpectationCount, ...]:
    """Counts of both, by name."""
    counts = {one.name: one for one in first}
    for one in second:
        known = counts.get(one.name, ExpectationCount(name=one.name, on=one.on))
        counts[one.name] = replace(one, checked=known.checked + one.checked, failed=known.failed + one.failed)
    return tuple(counts.values())


@dataclass(frozen=True, kw_only=True)
class ResultColumn:
    """A column of the replica.

    Attributes:
        type: Spark's SQL type.
        sources: columns of the landing files, by their names there, that it is computed from; empty: the job adds it.
        masked: its values are hashes or nulls instead of the source's.
    """

    name: str
    type: str
    sources: tuple[str, ...] = ()
    masked: bool = False


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """Outcome of one table in one run."""

    table: str
    status: Status
    mode: Mode = "incremental"
    tasks: TableTasks = "many"
    """`many` also where the tier asks for one task, which could not take the table (`NEEDS_MANY_TASKS`)."""
    place: str = ""
    """Where the table was worked on: `Spark`, the id of its application and the address of its pages, as far as there
    are any; or `the job's process, without Spark`. Empty: nobody worked on it, or the job ended before it said so."""
    batches: int = 0
    files: int = 0
    rows_read: int = 0
    changes_written: int = 0
    redelivered: int = 0
    quarantined: int = 0
    main: MainCounts = field(default_factory=MainCounts)
    schema_changes: tuple[str, ...] = ()
    warnings: tuple[RunWarning, ...] = ()
    freshness: Freshness = field(default_factory=Freshness)
    seconds: float = 0.0
    error: ErrorInfo | None = None
    run_id: str = ""
    started_at: str = ""
    version: int | None = None
    """Delta version of the replica after the run; null when there is none yet."""
    details: Any = None
    """Result of an action other than `run`: the plan, the verdict, the quarantined rows."""
    bytes_read: int = 0
    """Of landing files, as they are stored."""
    action: str = "run"
    """Requested action, one of `spec.Action`."""
    origin: tuple[str, ...] = ()
    """See `JobOptions.origin`."""
    not_listed_days: int = 0
    """Days of change files that the listing of a large folder skipped; 0: it was listed in full."""
    listed_in_full_at: str | None = None
    """Since when these days were not listed (ISO 8601, UTC); null where none was skipped."""
    late_ignored: int = 0
    """Changes that were not applied, because the stored row has a later sequence."""
    rescued: int = 0
    """Rows with values in `_rescued_data`."""
    filtered: int = 0
    """Rows that the row's `where` left out, which are in no other count."""
    commit: CommitMethod = "direct"
    """Of the newest batch; `merge` also where the tier asks for `direct`, but the tables need it."""
    truncates: int = 0
    """Truncates of the source's table that the files had, which are in no other count; `truncate` of the row says what
    became of them."""
    in_quarantine: int | None = None
    """Unresolved rows and files of the quarantine after the run; None: not counted."""
    files_in_quarantine: int = 0
    """How many of these are whole files, which could not be read."""
    revisit: bool = False
    """The next run has work even without new files: files may still be written, or a reload is incomplete."""

    expectations: tuple[ExpectationCount, ...] = ()
    """Of the row's expectations that were checked on rows."""
    columns: tuple[ResultColumn, ...] = ()
    """Of the replica after the newest batch, in table order; empty where no batch was committed, and in records."""
    columns_left_out: int = 0
    """Columns of the replica that `columns` lacks, because a result holds a limited number."""


def is_idle(result: JobResult) -> bool:
    """Whether the run had no work, and no warning that needs a record, so that it leaves none."""
    return result.status == "skipped" and not any(codes.of(warning.code).when_idle for warning in result.warnings)
