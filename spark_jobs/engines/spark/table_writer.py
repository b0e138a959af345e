"""Steps of a batch that concern its tables as a whole: ensure, sweep, and the history of all keys."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_commits import main_counts
from spark_jobs.engines.spark import evolve, history, reconcile
from spark_jobs.engines.spark.batch_context import SWEEP, BatchContext
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.history import END, START
from spark_jobs.rules.sweep import marks


@dataclass(frozen=True)
class TableWriter:
    """See `TableWork`."""

    site: BatchContext

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        site, rewrite = self.site, not self.site.tier.deletion_vectors
        for definition in table_definition.definitions(site.table_schema, site.layout, site.tier):
            extra = (START, END) if definition.path == site.layout.history else ()
            evolve.retype_sequence(site.tables, definition.path, site.table_schema, extra)
            reconcile.settle_deletes(site.tables, definition)
            evolve.ensure(site.tables, definition, rewrite=rewrite)
            reconcile.settle_properties(site.tables, definition)
        return ()

    def sweepable(self) -> tuple[int, int]:
        rows = self.site.tables.read(self.site.layout.replica)
        if "deleted" in rows.select(f"{GDDL}.*").columns:
            rows = rows.where(~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)))
        old = F.count_if(F.col(GDDL)["generation"] < self.site.plan.generation)
        found = rows.agg(old, F.count(F.lit(1))).collect()[0]
        return int(found[0]), int(found[1])

    def sweep(self) -> MainCounts:
        tables, path = self.site.tables, self.site.layout.replica
        old = F.col(GDDL)["generation"] < self.site.plan.generation
        with tables.transaction(SWEEP, self.site.transaction):
            if marks(self.site.table_schema):
                gddl = F.col(GDDL).withField("deleted", F.lit(True))
                tables.handle(path).update(old & ~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)), {GDDL: gddl})
            else:
                tables.handle(path).delete(old)
        return main_counts(tables.metrics(path, SWEEP, self.site.transaction))

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        history.update(self.site, history.Generations(generation_low_watermarks, swept))
