"""What the steps of a batch and of repairs give back: rows appended, applied, rebuilt, replaced, erased."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.result import MainCounts, RunWarning


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
        rows_before, rows: without rows that are marked deleted; `rows_before` is None if it was not read.
        appear, vanish, change: keys; None: they were not compared.
    """

    rows: int
    rows_before: int | None = None
    appear: int | None = None
    vanish: int | None = None
    change: int | None = None


@dataclass(frozen=True, kw_only=True)
class Archived:
    """Changes that a reload archives.

    Attributes:
        by_file: their number by the path of their file.
    """

    by_file: Mapping[str, int] = field(default_factory=dict)


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
