"""Steps of a batch that concern its tables as a whole: ensure, sweep, and the history of all keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_commits import main_counts
from spark_jobs.engines.delta_rs import evolve, reconcile
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.features import require_creatable
from spark_jobs.engines.delta_rs.indexing import complete
from spark_jobs.engines.delta_rs.versions import update_history
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.engines.transactions import SWEEP
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules import sweep
from spark_jobs.rules.history import END, START


@dataclass(frozen=True)
class TableWriter:
    """See `TableWork`."""

    site: BatchContext

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        site, spec = self.site, self.site.table_schema.spec
        definitions = table_definition.definitions(site.table_schema, site.layout, site.tier)
        if any(not site.tables.exists(d.path) for d in definitions):
            require_creatable(spec, site.tier)
        for definition in definitions:
            extra = (START, END) if definition.path == site.layout.history else ()
            evolve.retype_sequence(site.tables, definition.path, site.table_schema, extra)
            reconcile.settle_deletes(site.tables, definition)
            evolve.ensure(site.tables, definition)
            reconcile.settle_properties(site.tables, definition)
        return self._completed(definitions)

    def _completed(self, definitions: Sequence[TableDefinition]) -> tuple[RunWarning, ...]:
        """Tables of an earlier release get the statistics that readers need."""
        layout, tables = self.site.layout, self.site.tables
        tombstones = table_definition.tombstones(self.site.table_schema, layout.tombstones)
        beside = (table_definition.errors(layout.errors), tombstones)
        kept = [d for d in beside if tables.exists(d.path)]
        files = sum(complete(tables, definition) for definition in (*definitions, *kept))
        return (table_definition.completed(files),) if files else ()

    def sweepable(self) -> tuple[int, int]:
        site = self.site
        snapshot = site.tables.existing(site.layout.replica)
        parts = (site.tables.read_files(snapshot, [file], [GDDL]) for file in snapshot.files)
        found = [sweep.sweepable(rows, site.plan.generation) for rows in parts]
        return sum(old for old, _ in found), sum(live for _, live in found)

    def sweep(self) -> MainCounts:
        site, path = self.site, self.site.layout.replica
        if not site.has_made(path, SWEEP):
            self._sweep()
        return main_counts(site.tables.metrics(path, SWEEP, site.transaction))

    def _sweep(self) -> None:
        site, path = self.site, self.site.layout.replica
        snapshot = site.tables.existing(path)
        added, removed, count = [], [], 0
        for file in snapshot.files:
            left, hit = sweep.swept(site.tables.read_files(snapshot, [file]), site.plan.generation, site.table_schema)
            if hit:
                count += hit
                removed.append(file)
                added += [left] if left.num_rows else []
        metric = "numUpdatedRows" if sweep.marks(site.table_schema) else "numDeletedRows"
        site.tables.commit(path, site.write(SWEEP, added, removed, {metric: count}))

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        update_history(self.site, None, generation_low_watermarks, swept)
