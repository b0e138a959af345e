"""The errors table of a table: what is in quarantine, and what has become of it.

Its rows are made by `rules.quarantine`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules import quarantine
from spark_jobs.rules.arrays import with_values
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.quarantine import Chosen, of_earlier_batches, reopened, resolved
from spark_jobs.tables import table_definition
from spark_jobs.tables.delta_log import QUARANTINE, version_of
from spark_jobs.tables.delta_tables import Tables, Write
from spark_jobs.tables.file_rules import remove_rows


@dataclass(frozen=True)
class ErrorsTable:
    """Rows and files that could not be applied, in a table's errors table; none where there is no such table.

    The files of the table are read one at a time.

    Attributes:
        path: of the table. Where there is none, nothing is in quarantine.
    """

    tables: Tables
    path: str

    def append(self, rows: pa.Table, app: str, version: int) -> None:
        """Append rows, creating the table if missing."""
        self.tables.create(table_definition.errors(self.path))
        self.tables.commit(self.path, Write(app=app, version=version, added=[rows]))

    def append_files(self, plan: BatchPlan, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        """Write files that can't be read to the errors table, creating it; `again` as in `BatchWork.quarantine`."""
        self.append(quarantine.of_files(files, Stamp.of(plan)), QUARANTINE, version_of(plan))
        self.resolve_earlier(plan, again)

    def counts(self) -> tuple[int, int]:
        """Number of unresolved rows and files of the errors table, and how many of them are whole files."""
        waiting = [quarantine.unresolved(rows) for rows in self._one_by_one(["resolved_at", "position"])]
        return sum(part.num_rows for part in waiting), sum(part.column("position").null_count for part in waiting)

    def unresolved(self, limit: int, codes: Collection[str] = ()) -> quarantine.Unresolved:
        """Unresolved rows of the errors table, of these codes (empty: all)."""
        if not self.tables.exists(self.path):
            return quarantine.Unresolved(0, [], [])
        counted, first = [], self.tables.existing(self.path).schema.arrow.empty_table()
        for rows in self._one_by_one():
            open_rows = quarantine.unresolved(rows, codes)
            counted.append(quarantine.by_file(open_rows))
            first = quarantine.oldest(pa.concat_tables([first, open_rows]), limit)
        counts = quarantine.by_code(counted)
        return quarantine.Unresolved(sum(code["rows"] for code in counts), counts, quarantine.shown(first))

    def dismiss(self, codes: Collection[str], files: Collection[str], now: str) -> int:
        """Mark unresolved rows of these codes and files (empty: all) as resolved; returns how many."""
        return self.resolve(quarantine.of_codes_and_files(codes, files), now)

    def dismissed_files(self) -> frozenset[str]:
        """Files that could not be read and are in quarantine no longer."""
        known, waiting = set[str](), set[str]()
        for rows in self._one_by_one(["source_file", "position", "resolved_at"]):
            whole = rows.filter(rows.column("position").is_null())
            waiting.update(quarantine.unresolved(whole).column("source_file").to_pylist())
            known.update(whole.column("source_file").to_pylist())
        return frozenset(known - waiting)

    def resolve(self, chosen: Chosen, now: str, transaction: tuple[str, int] = ("", 0)) -> int:
        """Set `resolved_at` of the chosen unresolved rows; other files are unchanged. Returns their number."""
        counts: list[int] = []

        def change(rows: pa.Table) -> pa.Table | None:
            changed = resolved(rows, chosen, now)
            if changed is not None:
                counts.append(rows.column("resolved_at").null_count - changed.column("resolved_at").null_count)
            return changed

        self._change(change, transaction)
        return sum(counts)

    def resolve_earlier(self, plan: BatchPlan, files: Sequence[str]) -> None:
        """Resolve what the files left in the table when earlier batches read them."""
        if files:
            transaction = (f"{QUARANTINE}:resolve", version_of(plan))
            self.resolve(of_earlier_batches(files, plan.batch_id), plan.planned_at, transaction)

    def forget(self, plan: BatchPlan) -> None:
        """Undo a dropped batch: what it has resolved is unresolved again, and its rows leave the errors table."""
        self._change(lambda rows: reopened(rows, plan.planned_at), ("", 0))
        if self.tables.exists(self.path):
            remove_rows(self.tables, self.path, lambda rows: pc.equal(rows.column("batch_id"), plan.batch_id))

    def forget_records(self, batch_id: str) -> None:
        """Clear the records of all batches except this one: they hold values that must no longer be stored."""

        def cleared(rows: pa.Table) -> pa.Table | None:
            older = pc.and_(rows.column("record").is_valid(), pc.not_equal(rows.column("batch_id"), batch_id))
            if not pc.any(older).as_py():
                return None
            none = pa.scalar(None, pa.string())
            return with_values(
                rows, {name: pc.if_else(older, none, rows.column(name)) for name in ("record", "record_schema")}
            )

        self._change(cleared, ("", 0))

    def _one_by_one(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        return self.tables.each_file(self.path, columns) if self.tables.exists(self.path) else iter(())

    def _change(self, change: Callable[[pa.Table], pa.Table | None], transaction: tuple[str, int]) -> None:
        """Replace the rows of each file, in one commit; where `change` gives None, the file is unchanged."""
        if not self.tables.exists(self.path):
            return
        snapshot = self.tables.existing(self.path)
        added, removed = [], []
        for file in snapshot.files:
            rows = change(self.tables.read_files(snapshot, [file]))
            if rows is not None:
                added.append(rows)
                removed.append(file)
        if removed:
            self.tables.commit(
                self.path, Write(app=transaction[0], version=transaction[1], added=added, removed=removed)
            )
