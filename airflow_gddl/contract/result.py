"""What a job answers: one JobResult a table, as section 10 of the design lists it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["succeeded", "failed", "skipped"]
Mode = Literal["initial", "incremental", "refresh"]


@dataclass(frozen=True, kw_only=True)
class MainCounts:
    """Rows of the replica touched in this run, and rows it holds now (null: not known)."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class RunWarning:
    """Something a person should know though the run went on. `sample`: a few keys or names, never masked values."""

    code: str
    message: str
    count: int = 1
    sample: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """`commit_ts`: newest source commit applied (ISO 8601, UTC), null when unknown; `lag_seconds`: now minus it."""

    commit_ts: str | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class ErrorInfo:
    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class ResultColumn:
    """A column of the replica.

    Attributes:
        type: Spark's SQL type.
        sources: columns of the landing files, by their names there, that it is made of; empty: the job adds it.
        masked: its values are hashes or nulls instead of the source's.
    """

    name: str
    type: str
    sources: tuple[str, ...] = ()
    masked: bool = False


RECORDED_WHEN_IDLE = frozenset({"FOREIGN_COMMIT"})
"""Codes of warnings for which a run that had nothing to do leaves a record all the same."""


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """Outcome of one table in one run."""

    table: str
    status: Status
    mode: Mode = "incremental"
    engine: str = "spark"
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
    """What an action other than `run` answers: the plan, the verdict, the quarantine rows."""
    bytes_read: int = 0
    """Of landing files, as they are stored."""
    action: str = "run"
    """What was asked for, one of `spec.Action`."""
    origin: tuple[str, ...] = ()
    """See `JobOptions.origin`."""
    not_listed_days: int = 0
    """Days of change files that the listing left out, because the folder is large; 0: it was listed whole."""
    listed_in_full_at: str | None = None
    """Since when these days were not looked at (ISO 8601, UTC); null where none was left out."""
    late_ignored: int = 0
    """Changes that were not applied, because what is stored of their key is of a later sequence."""
    rescued: int = 0
    """Rows with values in `_rescued_data`."""
    revisit: bool = False
    """The next run has something to do even if no file comes: files may still be written, or a reload is not whole."""

    columns: tuple[ResultColumn, ...] = ()
    """Of the replica after the newest batch, in table order; empty where no batch was committed, and in records."""
    columns_left_out: int = 0
    """Columns of the replica that `columns` lacks, because a result holds a limited number."""

    @property
    def is_idle(self) -> bool:
        """There was nothing to do, and no warning that needs a record."""
        return self.status == "skipped" and not any(w.code in RECORDED_WHEN_IDLE for w in self.warnings)
