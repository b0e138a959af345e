"""Table maintenance: compaction, vacuum, and removal of tombstones and superseded changes.

Compaction is done here and not by `deltalake`, which writes no statistics of `_gddl` (docs/decisions/040).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow.parquet as pq

from airflow_gddl.contract.layout import join as join_path
from spark_jobs.engines.base import DeclinedError, TableContext
from spark_jobs.engines.delta_rs.indexing import keep_readable
from spark_jobs.engines.delta_rs.removal import remove_rows
from spark_jobs.engines.delta_rs.small_files import bins, join
from spark_jobs.engines.delta_rs.tables import DataFile, Tables, Write
from spark_jobs.engines.table_definition import CURRENT, TIMESTAMPS, has_microseconds
from spark_jobs.plan.retention import own_hours
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.figures import Compacted
from spark_jobs.rules.superseded import applied_before, are_changes, superseded


@dataclass(frozen=True)
class DeltaRsMaintenance:
    """See `Maintenance`."""

    tables: Tables

    def compact(self, path: str, *, dry_run: bool) -> Compacted:
        snapshot = self.tables.existing(path)
        before, joined, made = len(snapshot.files), 0, 0
        for files in list(bins(snapshot.files)):
            joined, made = joined + len(files), made + 1
            if not dry_run:
                join(self.tables, path, files)
        return Compacted(files_before=before, files_after=before - joined + made)

    def keep_readable_statistics(self, path: str) -> None:
        keep_readable(self.tables, path)

    def rewrite_timestamps(self, path: str, *, dry_run: bool) -> int:
        snapshot = self.tables.existing(path)
        if has_microseconds(self.tables.properties(path), snapshot.schema.columns):
            return 0
        files = [file for file in snapshot.files if self._holds_int96(path, file)]
        for file in files if not dry_run else ():
            join(self.tables, path, [file])
        if not dry_run:
            self.tables.set_properties(path, {TIMESTAMPS: CURRENT[TIMESTAMPS]})
        return len(files)

    def _holds_int96(self, path: str, file: DataFile) -> bool:
        with self.tables.storage.open_input(join_path(path, file.path)) as source:
            schema = pq.read_metadata(source).schema
        return any(schema.column(number).physical_type == "INT96" for number in range(len(schema)))

    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:
        delta = self.tables.existing(path).delta
        hours = max(hours, own_hours(delta.metadata().configuration, path))
        found = delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        if found and not dry_run:
            self.tables.forget(path)
            delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        return len(found)

    def checkpoint(self, path: str) -> None:
        self.tables.commit(path, Write(rearranged=True))
        self.tables.existing(path).delta.create_checkpoint()

    def forget_tombstones(self, path: str, before: datetime, *, dry_run: bool) -> int:
        return remove_rows(self.tables, path, lambda rows: applied_before(rows, before), dry_run=dry_run)

    def cut_changes(
        self, context: TableContext, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool
    ) -> int:
        path = context.layout.changes
        size, most = self.tables.existing(path).size, context.tier.delta_rs_max_bytes
        if size > most:
            raise DeclinedError(f"the change table has {size} bytes, more than its tier's delta_rs_max_bytes ({most})")
        gone = superseded(self.tables.read(path), table_schema, before, swept)
        return remove_rows(self.tables, path, lambda rows: are_changes(rows, gone), dry_run=dry_run) if gone else 0
