"""Figures of a batch and its writes: plain values, equal for all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.plan.sequence import Forms, Widths, sort_key
from spark_jobs.plan.table_schema import TableSchema

BUCKETS = 256


@dataclass(frozen=True, kw_only=True)
class FileFigures:
    """Rows and ranges of one file; sequences as JSON text, times as ISO 8601; null when it has no good change."""

    rows: int
    quarantined: int
    min_sequence: str | None
    max_sequence: str | None
    min_commit_ts: str | None
    max_commit_ts: str | None


@dataclass(frozen=True, kw_only=True)
class LogRestart:
    """Changes of a file that precede others before them in the source's log, and were committed after all of those.

    Attributes:
        place: where in the log the first of them is; `known`: the last place before it.
        since, until: commit time of the first of them, and the latest.
        newest: latest commit time before, ISO 8601 as the others.
    """

    place: str
    known: str
    since: str
    until: str
    newest: str


@dataclass(frozen=True, order=True)
class BadRow:
    """A bad row: ledger path of its file, row in it from 0, what is wrong with it, and where (empty: in no column)."""

    file: str
    row: int
    code: str
    column: str = ""

    def __str__(self) -> str:
        where = f" in column {self.column!r}" if self.column else ""
        return f"{self.code}{where}, position {self.row} of {self.file}"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of a whole batch.

    Attributes:
        files: by ledger path; a file without rows is absent.
        identities: distinct (key, sequence) among good rows, by 64-bit hash.
        keys: distinct keys among good rows, by 64-bit hash.
        low, high: range of the first key column; null without keys, and for types whose values don't survive the way
            through Python unchanged (times, floating point).
        widths: of the changes' sequences, see `plan.sequence`.
        forms: sequence column to the forms of its texts, see `plan.sequence`.
        restarts: by ledger path, where sequences are positions in a log.
        reduced: times that were cut or rounded to microseconds.
        rescued: good rows with values in `_rescued_data`.
        incomplete: good rows that moved and may lack values.
        first_bad: of the bad rows, the one of the least path and position.
        tallies: by expectation, rows that were checked and how many of them failed.
    """

    files: Mapping[str, FileFigures]
    rows: int
    quarantined: int
    identities: int
    keys: int
    low: object
    high: object
    widths: Widths
    loads: int
    reduced: int = 0
    rescued: int = 0
    incomplete: int = 0
    first_bad: BadRow | None = None
    restarts: Mapping[str, LogRestart] = field(default_factory=dict)
    forms: Mapping[str, Forms] = field(default_factory=dict)
    tallies: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def good(self) -> int:
        return self.rows - self.quarantined

    @property
    def sequence_span(self) -> tuple[Any, Any] | None:
        """Lowest and highest sequence by its first column, read by `sort_key`; None without a good change."""
        lows = [sort_key(f.min_sequence) for f in self.files.values() if f.min_sequence is not None]
        highs = [sort_key(f.max_sequence) for f in self.files.values() if f.max_sequence is not None]
        return (min(lows)[0][1], max(highs)[0][1]) if lows else None

    def may_repeat(self, schema: TableSchema) -> bool:
        """Whether rows of the batch may be deliveries of one change, so that they have to be compared."""
        return (self.identities if schema.keys else self.loads) < self.good

    def appended(self, new: int, written: int, warnings: tuple[RunWarning, ...] = (), *, batch: int) -> Appended:
        """What reached the change table.

        Args:
            new: good rows that did not arrive before; `written`: rows of the commit.

        Raises:
            FatalError: `BATCH_UNBALANCED`.
        """
        redelivered = self.good - new
        if self.rows != written + redelivered + self.quarantined:
            raise FatalError(
                "BATCH_UNBALANCED",
                f"{self.rows} rows read, but {written} appended + {redelivered} re-delivered + "
                f"{self.quarantined} quarantined",
                where=f"batch {batch}",
                remedy="report this with the job's log; nothing was merged",
            )
        return Appended(written=written, redelivered=redelivered, warnings=warnings)


@dataclass(frozen=True, kw_only=True)
class Appended:
    """What reached the change table."""

    written: int
    redelivered: int
    warnings: tuple[RunWarning, ...] = ()


NOTHING_APPENDED = Appended(written=0, redelivered=0)


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Overlap of a batch's changes with earlier batches.

    Attributes:
        changes: the batch's sequences may occur in earlier batches.
        loads: earlier batches had full-load rows of this generation.
        later: every change follows all earlier ones, so that all stored rows of its key are older.
    """

    changes: bool
    loads: bool
    later: bool = False

    @property
    def disjoint(self) -> bool:
        """No change of the change table can be one of the batch, nor have its sequence."""
        return not (self.changes or self.loads)


UNKNOWN = Overlap(changes=True, loads=True)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What happened to the replica.

    Attributes:
        late: net changes of the batch that were ignored: what is stored of their key is of a later generation or
            sequence. Full-load rows, forced changes and changes that lost a tie don't count.
    """

    main: MainCounts
    warnings: tuple[RunWarning, ...] = ()
    late: int = 0


@dataclass(frozen=True)
class Rebuilt:
    """Rows of the new replica, and changes that the change table lacked."""

    rows: int
    changes_added: int


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """A replica against the one before it.

    Attributes:
        rows_before, rows: without rows that are marked deleted; the former null where it was not read.
        appear, vanish, change: keys; null where they were not compared.
    """

    rows: int
    rows_before: int | None = None
    appear: int | None = None
    vanish: int | None = None
    change: int | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Attributes:
    rows, expected_rows: of the replica, and of the fold of the change table (soft-deleted rows left out of both).
    buckets_different: of `BUCKETS`.
    keys: a few keys that differ, as JSON, with what is wrong: `missing`, `extra` or `different`.
    """

    rows: int
    expected_rows: int
    buckets_different: int
    keys: tuple[dict[str, str], ...]

    @property
    def equal(self) -> bool:
        return self.buckets_different == 0 and self.rows == self.expected_rows


def together(verdicts: Sequence[Verdict], limit: int) -> Verdict:
    """The verdict on rows that were compared in parts.

    Args:
        limit: keys that it names at most.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    return Verdict(
        rows=sum(one.rows for one in verdicts),
        expected_rows=sum(one.expected_rows for one in verdicts),
        buckets_different=min(BUCKETS, sum(one.buckets_different for one in verdicts)),
        keys=tuple(key for one in verdicts for key in one.keys)[:limit],
    )


@dataclass(frozen=True, kw_only=True)
class ChangesErased:
    """What became of a key's changes.

    Attributes:
        removed: changes of the key; those that moved a row to it from another key are the other's deletes now.
        images: changes of other keys whose before images named it, and are empty now.
        others: a few of the keys from which rows were moved to it, as text.
    """

    removed: int = 0
    images: int = 0
    others: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """Data files of a table before small ones were joined and after."""

    files_before: int
    files_after: int
