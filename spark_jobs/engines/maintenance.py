"""Table maintenance: compaction, vacuum, and removal of tombstones and superseded changes.

Compaction is done here and not by `deltalake`, which writes no statistics of `_gddl` (docs/decisions/040).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from airflow_gddl.stores import Storage
from spark_jobs.delta.tables import Tables, Write
from spark_jobs.engines.batch_context import bins, join
from spark_jobs.engines.file_rules import remove_rows
from spark_jobs.engines.port import DeclinedError, TableContext
from spark_jobs.engines.table_rows import Source, by_key
from spark_jobs.engines.whole_tables import keep_readable
from spark_jobs.plan.identity import own_hours
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.batch_schema import change_schema
from spark_jobs.rules.fold import applied_before, are_superseded, needed_changes
from spark_jobs.rules.measure import Compacted
from spark_jobs.rules.order import as_events, for_both_keys

_CHANGES = "changes"


@dataclass(frozen=True)
class DeltaRsMaintenance:
    """See `Maintenance`."""

    tables: Tables
    context: TableContext

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

    def cut_changes(self, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool) -> int:
        path = self.context.layout.changes
        size, most = self.tables.existing(path).size, self.context.tier.delta_rs_max_bytes
        if size > most:
            raise DeclinedError(f"the change table has {size} bytes, more than its tier's delta_rs_max_bytes ({most})")
        return cut_changes(self.tables, path, table_schema, before, swept, dry_run=dry_run)


def cut_changes(tables: Tables, path: str, schema: TableSchema, before: datetime, swept: int, *, dry_run: bool) -> int:
    """See `Maintenance.cut_changes`."""
    rule = _Needed(schema, before)
    kinds = change_schema(schema)
    keys = pa.schema([kinds.field(name) for name in schema.keys])
    sources = {_CHANGES: Source.of(tables.existing(path), rule.prepare)}
    reports = by_key(tables, sources, keys, rule) if schema.keys else []
    needed = frozenset((batch, position) for report in reports for batch, position in json.loads(report))
    return remove_rows(tables, path, lambda rows: are_superseded(rows, needed, schema, before, swept), dry_run=dry_run)


@dataclass(frozen=True)
class _Needed:
    """See `needed_changes`; sent to tasks."""

    schema: TableSchema
    before: datetime

    def prepare(self, rows: pa.Table) -> pa.Table:
        return for_both_keys(by_name(rows, change_schema(self.schema)), self.schema)

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        happened = as_events(rows[_CHANGES], self.schema)
        return json.dumps(sorted(needed_changes(happened, self.schema, self.before))).encode()
