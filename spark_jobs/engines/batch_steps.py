"""The steps of a batch in an engine, in the order that their types give: append, tombstones, merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import Appended, Applied, Overlap


class TableWork(Protocol):
    """Steps of a batch that concern its tables as a whole; they need none of the batch's rows."""

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        """Create, evolve or reconcile change table, replica and history with the metadata; what there is to say."""
        ...

    def sweepable(self) -> tuple[int, int]:
        """Live rows of older generations, and all live rows of the replica."""
        ...

    def sweep(self) -> MainCounts:
        """Rows of older generations vanish, or are marked deleted."""
        ...

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        """Bring the history of all keys up to date.

        Args:
            swept: rows of generations before this one have vanished.
        """
        ...


class BatchWork(Protocol):
    """A planned batch, decoded. Every write happens once, however often the batch is run.

    The steps come in order by their types: only `append` returns an `AppendedWork`, and only its `tombstones` returns a
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
        """Mark the quarantine's rows that are good now as resolved."""
        ...

    def tombstones(self) -> MergeWork:
        """Find the net changes of the batch and remember the deletes among them; for tables with keys."""
        ...

    def append_only(self) -> Applied:
        """A table without keys: its replica is the changes themselves."""
        ...


class MergeWork(Protocol):
    """A batch whose deletes are remembered, so that no late change of their keys can bring a row back."""

    def merge(self) -> Applied:
        """Apply net changes to the replica."""
        ...

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        """Bring the history of the batch's keys up to date; see `TableWork.history`."""
        ...
