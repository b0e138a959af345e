"""Steps on whole tables: ensure, sweep, and the history of all keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_commits import main_counts
from spark_jobs.engines.delta_rs import evolve, reconcile
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.features import require_creatable
from spark_jobs.engines.delta_rs.indexing import complete, keep_readable
from spark_jobs.engines.delta_rs.versions import update_history
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.engines.transactions import SWEEP
from spark_jobs.rules import sweep


@dataclass(frozen=True)
class TableWriter:
    """See `TableWork`."""

    batch_context: BatchContext

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        tables, layout, tier = self.batch_context.tables, self.batch_context.layout, self.batch_context.tier
        schema = self.batch_context.table_schema
        definitions = table_definition.definitions(schema, layout, tier)
        if any(not tables.exists(d.path) for d in definitions):
            require_creatable(schema.spec, tier, tables.features)
        for definition in definitions:
            evolve.retype_sequence(tables, definition.path, schema, definition.bounds)
            reconcile.settle_deletes(tables, definition)
            evolve.ensure(tables, definition)
            reconcile.settle_properties(tables, definition)
            reconcile.settle_comments(tables, definition)
        tombstones = table_definition.tombstones(schema, layout.tombstones)
        if tables.exists(tombstones.path):  # whose keys and sequences are compared with those of the other tables
            evolve.ensure(tables, tombstones)
        return self._completed(definitions)

    def _completed(self, definitions: Sequence[TableDefinition]) -> tuple[RunWarning, ...]:
        """Tables of an earlier release get the statistics that readers need."""
        layout, tables = self.batch_context.layout, self.batch_context.tables
        tombstones = table_definition.tombstones(self.batch_context.table_schema, layout.tombstones)
        optional = (table_definition.errors(layout.errors), tombstones)
        kept = [d for d in optional if tables.exists(d.path)]
        files = sum(complete(tables, definition) for definition in (*definitions, *kept))
        for definition in (*definitions, *kept):
            keep_readable(tables, definition.path)
        return (table_definition.completed(files),) if files else ()

    def sweepable(self) -> tuple[int, int]:
        batch_context = self.batch_context
        snapshot = batch_context.tables.existing(batch_context.layout.replica)
        columns = sweep.needed(batch_context.table_schema)
        parts = (batch_context.tables.read_files(snapshot, [file], columns) for file in snapshot.files)
        found = [sweep.sweepable(rows, batch_context.plan.generation, batch_context.table_schema) for rows in parts]
        return sum(old for old, _ in found), sum(live for _, live in found)

    def sweep(self) -> MainCounts:
        batch_context, path = self.batch_context, self.batch_context.layout.replica
        if not batch_context.has_made(path, SWEEP):
            self._sweep()
        return main_counts(batch_context.metrics(path, SWEEP))

    def _sweep(self) -> None:
        batch_context, path = self.batch_context, self.batch_context.layout.replica
        snapshot = batch_context.tables.existing(path)
        added, removed, count = [], [], 0
        for file in snapshot.files:
            rows = batch_context.tables.read_files(snapshot, [file])
            left, hit = sweep.swept(rows, batch_context.plan.generation, batch_context.table_schema)
            if hit:
                count += hit
                removed.append(file)
                added.append(left)
        metric = "numUpdatedRows" if sweep.marks(batch_context.table_schema) else "numDeletedRows"
        batch_context.commit(path, SWEEP, {metric: count}, added, removed)

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        update_history(self.batch_context, None, generation_low_watermarks, swept)
