"""Steps on whole tables: ensure, sweep, and the history of all keys."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F

from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_commits import main_counts
from spark_jobs.engines.spark import evolve, history, reconcile
from spark_jobs.engines.spark.batch_context import SWEEP, BatchContext
from spark_jobs.engines.spark.indexing import keep_readable
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.sweep import marks


@dataclass(frozen=True)
class TableWriter:
    """See `TableWork`."""

    batch_context: BatchContext

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        batch_context, rewrite = self.batch_context, not self.batch_context.tier.deletion_vectors
        schema, layout = batch_context.table_schema, batch_context.layout
        for definition in table_definition.definitions(schema, layout, batch_context.tier):
            evolve.retype_sequence(batch_context.tables, definition.path, schema, definition.bounds)
            reconcile.settle_deletes(batch_context.tables, definition)
            evolve.ensure(batch_context.tables, definition, rewrite=rewrite)
            reconcile.settle_properties(batch_context.tables, definition)
            reconcile.settle_comments(batch_context.tables, definition)
            keep_readable(batch_context.tables, definition.path)
        tombstones = table_definition.tombstones(schema, layout.tombstones)
        if batch_context.tables.exists(tombstones.path):  # its keys and sequences are compared with the others'
            evolve.ensure(batch_context.tables, tombstones, rewrite=True)
            keep_readable(batch_context.tables, tombstones.path)
        return ()

    @property
    def _shard(self) -> str | None:
        return self.batch_context.table_schema.spec.shard

    def sweepable(self) -> tuple[int, int]:
        rows = self.batch_context.tables.read(self.batch_context.layout.replica)
        rows = rows if self._shard is None else rows.where(F.col(SHARD_COLUMN) == self._shard)
        if "deleted" in rows.select(f"{GDDL}.*").columns:
            rows = rows.where(~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)))
        old = F.count_if(F.col(GDDL)["generation"] < self.batch_context.plan.generation)
        found = rows.agg(old, F.count(F.lit(1))).collect()[0]
        return int(found[0]), int(found[1])

    def sweep(self) -> MainCounts:
        tables, path = self.batch_context.tables, self.batch_context.layout.replica
        old = F.col(GDDL)["generation"] < self.batch_context.plan.generation
        old = old if self._shard is None else old & (F.col(SHARD_COLUMN) == self._shard)
        with self.batch_context.once(SWEEP):
            if marks(self.batch_context.table_schema):
                gddl = F.col(GDDL).withField("deleted", F.lit(True))
                tables.handle(path).update(old & ~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)), {GDDL: gddl})
            else:
                tables.handle(path).delete(old)
        return main_counts(self.batch_context.metrics(path, SWEEP))

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        history.update(self.batch_context, history.Generations(generation_low_watermarks, swept))
