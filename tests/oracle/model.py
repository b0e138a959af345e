"""The oracle's nouns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from airflow_gddl.contract.spec import TieBreak

Value = Any
"""A cell: whatever a file can hold."""

Key = tuple[Value, ...]
Sequence = tuple[Value, ...] | None
"""One part for each sequence column; null for full-load rows."""

Kind = Literal["load", "change"]
Op = Literal["R", "I", "U", "D", "T"]
Damage = Literal["FILE_UNREADABLE", "FILE_EMPTY"]


class NotModelledError(Exception):
    """The oracle has no opinion on this setting; a test that needs one states its own expectation."""


@dataclass(frozen=True, kw_only=True)
class DeliveredFile:
    """One version of a landed file; a file is known by its name and distinguished by the rest.

    Attributes:
        name: path below the table's landing folder.
        columns: columns of the file; a row that lacks one of them has null there.
        damage: what is wrong with the file as a whole; null when it can be read.
    """

    name: str
    kind: Kind
    columns: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Value], ...] = ()
    damage: Damage | None = None


@dataclass(frozen=True)
class Run:
    """The files written before a run, in the order they were written; the run works off all of them.

    Attributes:
        removed: names of files removed before it; `.` is the whole folder.
        settings: fields of the row that are others in this run, of those that each change keeps (semantics, 5).
    """

    files: tuple[DeliveredFile, ...]
    removed: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """Where and when a file came."""

    file: DeliveredFile
    generation: int
    run: int
    ordinal: int


@dataclass(frozen=True, kw_only=True)
class Change:
    """A decoded row (semantics, 1).

    Attributes:
        key: empty for tables without keys.
        row: table columns and before images, cast and masked; a column the file lacks is absent.
        carried: columns that an update overlays.
        old_key: the key that a key update leaves behind; null when the key did not change.
        rescued: column to JSON of its value, where the column can't hold it.
        run: stands for the batch: batches of a run are cut in the order of its files.
        read: of a change that was quarantined and came again, the run and position in which its file was read.
        marked: its place in its file has rows that were quarantined, where several changes may share one.
        commit: commit time in UTC, without a zone; null: the file says none that can be read.
    """

    op: Op
    key: Key
    sequence: Sequence
    row: Mapping[str, Value]
    carried: frozenset[str]
    forced: bool
    old_key: Key | None
    generation: int
    run: int
    source_file: str
    position: int
    rescued: Mapping[str, str] = field(default_factory=dict)
    tie_break: TieBreak = "delete_wins"
    read: tuple[int, int] | None = None
    marked: bool = False
    commit: datetime | None = None

    @property
    def arrival(self) -> tuple[int, int]:
        return (self.run, self.position)

    @property
    def reading(self) -> tuple[int, int]:
        """Run and position of the change among those of its file."""
        return self.read or self.arrival


@dataclass(frozen=True, order=True)
class Quarantined:
    """A row or, where `position` is null, a whole file that was put aside."""

    file: str
    position: int | None
    code: str
    column: str | None = None


@dataclass(frozen=True)
class Counts:
    """Of one run; rows of unreadable files are in none of them (semantics, 10)."""

    rows_read: int
    appended: int
    redelivered: int
    quarantined: int


@dataclass(frozen=True, kw_only=True)
class ReplicaRow:
    """A row of the replica with the fields of `_gddl` that do not depend on where a change came from."""

    columns: Mapping[str, Value]
    op: Op
    sequence: Sequence
    generation: int
    deleted: bool


@dataclass(frozen=True, kw_only=True)
class Version:
    """A row of the history; of a current one all ends are null.

    Attributes:
        valid_from, valid_to: in UTC, without a zone; null: not known.
    """

    columns: Mapping[str, Value]
    start: Sequence
    end: Sequence
    start_generation: int
    end_generation: int | None
    valid_from: datetime | None = None
    valid_to: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the tables hold after the runs.

    Attributes:
        columns: the replica's columns without `_gddl`, in the order they came.
        changes: the change table.
        ties: each (key, sequence) that changes of several files of unknown order share.
        counts: one for each run.
        late: changes ignored as late, of each run; a run that is cut into more batches may have others.
        held: generation whose sweep waits for a person; null: none does.
    """

    columns: tuple[str, ...]
    replica: tuple[ReplicaRow, ...]
    changes: tuple[Change, ...]
    history: tuple[Version, ...]
    quarantined: tuple[Quarantined, ...]
    settled: tuple[Quarantined, ...]
    ties: frozenset[tuple[Key, Sequence]]
    counts: tuple[Counts, ...]
    late: tuple[int, ...]
    held: int | None = None


def rank(sequence: Sequence) -> tuple[Value, ...]:
    """Sorts nulls first."""
    return (0,) if sequence is None else (1, *sequence)
