"""Steps on whole tables: ensure, sweep, and the history of all keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.stores import Storage
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_commits import main_counts
from spark_jobs.engines.delta_rs import evolve, reconcile
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.indexing import complete, keep_readable
from spark_jobs.engines.delta_rs.outputs import Output, output_of
from spark_jobs.engines.delta_rs.tables import TableSnapshot
from spark_jobs.engines.delta_rs.versions import update_history
from spark_jobs.engines.key_ranges import Source, by_file
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.engines.transactions import SWEEP
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules import sweep

REPLICA = "replica"
"""Name of the table for rules."""


@dataclass(frozen=True)
class TableWriter:
    """See `TableWork`."""

    batch_context: BatchContext

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        tables, layout, tier = self.batch_context.tables, self.batch_context.layout, self.batch_context.tier
        schema = self.batch_context.table_schema
        definitions = table_definition.definitions(schema, layout, tier)
        if any(not tables.exists(d.path) for d in definitions):
            tables.require_creatable(schema.spec, tier)
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
        context = self.batch_context
        rule = _CountVanishing(context.table_schema, context.plan.generation)
        replica = Source.of(self._replica, _as_they_are, sweep.needed(context.table_schema))
        found = [json.loads(report) for report in by_file(context.tables, {REPLICA: replica}, rule)]
        return sum(old for old, _ in found), sum(live for _, live in found)

    @property
    def _replica(self) -> TableSnapshot:
        return self.batch_context.tables.existing(self.batch_context.layout.replica)

    def sweep(self) -> MainCounts:
        context, path = self.batch_context, self.batch_context.layout.replica
        if not context.has_made(path, SWEEP):
            output = output_of(context.tables, path, context.table_schema.keys, context.transaction)
            rule = _Sweep(context.table_schema, context.plan.generation, output)
            replica = Source.of(self._replica, _as_they_are)
            reports = [json.loads(report) for report in by_file(context.tables, {REPLICA: replica}, rule)]
            metric = "numUpdatedRows" if sweep.marks(context.table_schema) else "numDeletedRows"
            context.put_written(path, SWEEP, reports, replica, {metric: sum(r["count"] for r in reports)})
        return main_counts(context.metrics(path, SWEEP))

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        update_history(self.batch_context, None, generation_low_watermarks, swept)


@dataclass(frozen=True)
class _CountVanishing:
    """Live rows of older generations, and all live rows; sent to tasks."""

    schema: TableSchema
    generation: int

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        return json.dumps(sweep.sweepable(rows[REPLICA], self.generation, self.schema)).encode()


@dataclass(frozen=True)
class _Sweep:
    """Deletes rows of older generations, or writes them again, marked deleted; sent to tasks."""

    schema: TableSchema
    generation: int
    output: Output

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        found = rows[REPLICA]
        old = found.filter(sweep.vanishing(found, self.generation, self.schema))
        report = self.output.report(storage, sweep.instead(old, self.schema), old, old)
        return json.dumps({**report, "count": old.num_rows}).encode()


def _as_they_are(rows: pa.Table) -> pa.Table:
    return rows
