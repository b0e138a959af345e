"""Steps of a batch in an engine; their types enforce the order append, tombstones, merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import Appended, Applied, Overlap


class TableWork(Protocol):
    """Steps on whole tables, which need none of the batch's rows."""

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        """Create, evolve or reconcile change table, replica and history with the metadata; returns warnings."""
        ...

    def sweepable(self) -> tuple[int, int]:
        """Number of live rows of older generations, and of all live rows of the replica."""
        ...

    def sweep(self) -> MainCounts:
        """Remove rows of older generations, or mark them deleted."""
        ...

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        """Update the history of all keys.

        Args:
            swept: rows of generations before this one have vanished.
        """
        ...


@dataclass(frozen=True)
class TablesOfAnother:
    """See `TableWork`: the steps of `work`, to be changed in part by a subclass."""

    work: TableWork

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        return self.work.ensure_tables()

    def sweepable(self) -> tuple[int, int]:
        return self.work.sweepable()

    def sweep(self) -> MainCounts:
        return self.work.sweep()

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        self.work.history(generation_low_watermarks, swept=swept)


class BatchWork(Protocol):
    """A planned batch, decoded. Every write is idempotent.

    Types enforce the order of steps: only `append` returns an `AppendedWork`, and only its `tombstones` returns a
    `MergeWork`.
    """

    @property
    def decoded_batch(self) -> DecodedBatch: ...

    @property
    def tables(self) -> TableWork: ...

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        """Write bad rows and files to the errors table; resolve what earlier versions of files (`again`) left there."""
        ...

    def append(self, overlap: Overlap) -> AppendedWork:
        """Append the changes that are new to the change table.

        Raises:
            FatalError: `BATCH_UNBALANCED`.
        """
        ...


class AppendedWork(Protocol):
    """A batch whose changes are in the change table."""

    @property
    def decoded_batch(self) -> DecodedBatch: ...

    @property
    def appended(self) -> Appended: ...

    @property
    def tables(self) -> TableWork: ...

    def resolve_rows(self) -> None:
        """Mark quarantined rows that are valid now as resolved."""
        ...

    def tombstones(self) -> MergeWork:
        """Write tombstones of the batch's net deletes; for tables with keys."""
        ...

    def append_only(self) -> Applied:
        """For tables without keys: append the changes to the replica."""
        ...


class MergeWork(Protocol):
    """A batch whose tombstones are written, so that no late change can restore a deleted row."""

    def merge(self) -> Applied:
        """Apply net changes to the replica."""
        ...

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        """Update the history of the batch's keys; see `TableWork.history`."""
        ...
