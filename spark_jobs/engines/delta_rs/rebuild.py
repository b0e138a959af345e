"""The swap of a rebuild or a reload: derives the live tables from the change table, one Delta commit each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines import rebuilding, table_definition
from spark_jobs.engines.base import RebuildRequest, TableContext
from spark_jobs.engines.delta_rs import evolve, quarantine
from spark_jobs.engines.delta_rs.features import require_creatable
from spark_jobs.engines.delta_rs.indexing import indexed_with
from spark_jobs.engines.delta_rs.reconcile import settle_properties
from spark_jobs.engines.delta_rs.removal import remove_rows
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.engines.transactions import HISTORY, MERGE, REWRITE, TOMBSTONES, version_of
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules import error_rows
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.arrow_schema import DeltaSchema
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.figures import Rebuilt
from spark_jobs.rules.fold import newest_state
from spark_jobs.rules.history import versions
from spark_jobs.rules.order import ARCHIVED, events, gddl_fields, that_count, with_gddl
from spark_jobs.rules.outcome import tombstones_of
from spark_jobs.rules.rebuild import held_by, lacking, rebuilt_rows, restamped
from spark_jobs.rules.rewrite import Rewrite, rewritten
from spark_jobs.rules.superseded import are_changes, changes_in
from spark_jobs.rules.sweep import undeleted
from spark_jobs.rules.verify import expected_state


def rewrite_changes(tables: Tables, context: TableContext, plan: BatchPlan, how: Rewrite) -> None:
    """See `Engine.rewrite_changes`."""
    definition = table_definition.changes(how.schema, context.layout.changes, context.tier)
    if tables.last_transaction(definition.path, REWRITE) < version_of(plan):
        rows = rewritten(tables.read(definition.path), how)
        overwrite(tables, definition, rows, Write(app=REWRITE, version=version_of(plan), keys=how.schema.keys))


def overwrite(tables: Tables, definition: TableDefinition, rows: pa.Table, write: Write) -> None:
    """Replace rows and schema in one commit; columns keep the table's order and comments."""
    stored = tables.existing(definition.path).schema
    columns = table_definition.in_stored_order(definition, stored.names)
    metadata = {c.name: stored.metadata[c.name] for c in columns if c.name in stored.metadata}
    schema = DeltaSchema(columns, metadata)
    indexed = indexed_with(tables, definition.path, columns, definition.skipping)
    write = replace(write, added=[by_name(rows, schema.arrow)], removed=None, schema=schema, indexed=indexed,
                    partition_by=definition.partition_by)  # fmt: skip
    tables.commit(definition.path, write)
    # The property follows the statistics.
    tables.set_properties(definition.path, {**definition.skipping, **table_definition.CURRENT})


@dataclass(frozen=True)
class Rebuild:
    """See `RebuildWork` and `RebuildSteps`."""

    tables: Tables
    order: RebuildRequest

    @property
    def table_schema(self) -> TableSchema:
        return self.order.table_schema

    @cached_property
    def _fresh(self) -> pa.Table:
        """Changes of the shadow table, stamped with this batch; none without one."""
        schema = change_schema(self.table_schema)
        if self.order.shadow is None:
            return schema.empty_table()
        rows = by_name(self.tables.read(self.order.shadow.changes), schema)
        return restamped(rows, self.order.plan.batch_id, self.order.plan.planned_at)

    def swap(self, report: Callable[[str], None]) -> Rebuilt:
        require_creatable(self.table_schema.spec, self.order.live.tier)
        return rebuilding.swap(self, report)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        rows = self._live()
        return zip(*(rows.column(name).to_pylist() for name in columns), strict=True)

    def _live(self) -> pa.Table:
        """Live rows of the replica that `swap` would make."""
        source, stored = self._fresh, None if self.order.archives or not self._compatible() else self._stored()
        if stored is not None:
            kept = stored.filter(pc.invert(held_by(stored, self.order.read)))
            source = pa.concat_tables([source, by_name(kept, source.schema)])
        happened = events(source, self.table_schema) if self.table_schema.keys else that_count(source)
        return expected_state(happened, self.table_schema, self.order.swept)

    def archived(self) -> int:
        return 0 if self._newly_archived is None else int(self._newly_archived.num_rows)

    @cached_property
    def _newly_archived(self) -> pa.Table | None:
        """Live changes that no file holds; null where none are archived."""
        how, stored = self.order.archives, self._stored()
        if how is None or stored is None:
            return None
        return lacking(rewritten(that_count(stored), how), self._fresh, self.table_schema)

    def _archive(self) -> list[pa.Table]:
        """Archived changes: those of earlier reloads, and new ones."""
        how, stored, new = self.order.archives, self._stored(), self._newly_archived
        if how is None or stored is None or new is None:
            return []
        before = stored.filter(pc.equal(gddl_fields(stored)["generation"], ARCHIVED))
        generation = pa.repeat(pa.scalar(ARCHIVED, pa.int32()), new.num_rows)
        return [rewritten(before, how), with_gddl(new, generation=generation)]

    def _stored(self) -> pa.Table | None:
        """Live changes except those that this refresh has added."""
        if not self.tables.exists(self.order.live.layout.changes):
            return None
        rows = self.tables.read(self.order.live.layout.changes)
        mine = pc.equal(pc.struct_field(rows.column(GDDL), "batch_id"), self.order.plan.batch_id)
        return rows.filter(pc.invert(mine))

    def _compatible(self) -> bool:
        snapshot = self.tables.snapshot(self.order.live.layout.changes)
        return snapshot is None or rebuilding.keeps_changes(self.order, snapshot.schema.columns)

    def drops_changes(self) -> bool:
        if self.order.archives:
            return False
        stored = None if self._compatible() else self._stored()
        if stored is None:
            return False
        files = pc.struct_field(stored.column(GDDL), "source_file")  # removed or unreadable where they are not read
        return pc.all(pc.is_in(files, value_set=pa.array(list(self.order.read), pa.string()))).as_py() is False

    def changes(self) -> int:
        """Add missing changes to the change table and remove those that its files no longer hold.

        If types are incompatible, replace it.
        """
        live, fresh = self.order.live, self._fresh
        if self.order.shadow is None:
            return 0
        definition = table_definition.changes(self.table_schema, live.layout.changes, live.tier)
        path = definition.path
        if self.order.archives or not self._compatible():
            self.tables.create(definition)
            self._overwrite(definition, "changes", pa.concat_tables([fresh, *self._archive()]))
            return int(fresh.num_rows)
        evolve.ensure(self.tables, definition)
        app, version = "refresh:changes", version_of(self.order.plan)
        if self.tables.last_transaction(path, app) >= version:
            return self.tables.metrics(path, app, version).get("numOutputRows", 0)
        stale = changes_in(self._stale())
        if stale:
            remove_rows(self.tables, path, lambda rows: are_changes(rows, stale))
        added, stored = fresh, self._stored()
        if stored is not None:
            added = lacking(fresh, by_name(stored, change_schema(self.table_schema)), self.table_schema)
        metrics = {"numOutputRows": added.num_rows}
        write = Write(app=app, version=version, added=[added], metrics=metrics, keys=self.table_schema.keys)
        self.tables.commit(path, write)
        return int(added.num_rows)

    def _stale(self) -> pa.Table:
        """Stored changes that their files, rewritten or now read with other settings, no longer hold.

        Those of another generation than the file's stay: what the file held then is part of the history.
        """
        fresh, stored = self._fresh, self._stored()
        if stored is None:
            return fresh.slice(0, 0)
        read = by_name(stored.filter(held_by(stored, self.order.read)), change_schema(self.table_schema))
        return lacking(read, fresh, self.table_schema)

    def source(self) -> pa.Table:
        return by_name(self.tables.read(self.order.live.layout.changes), change_schema(self.table_schema))

    def tombstones(self, source: pa.Table) -> None:
        rows = newest_state(events(source, self.table_schema), self.table_schema, self.order.swept)
        rows = tombstones_of(rows, self.table_schema)
        definition = table_definition.tombstones(self.table_schema, self.order.live.layout.tombstones)
        self._replace(definition, rows, TOMBSTONES)

    def replica(self, source: pa.Table) -> int:
        spec, live = self.table_schema.spec, self.order.live
        if self.table_schema.keys:
            rows = rebuilt_rows(events(source, self.table_schema), self.table_schema, self.order.swept)
        else:
            generation = pc.struct_field(source.column(GDDL), "generation")
            rows = source.filter(pc.greater_equal(generation, max(self.order.swept, 1)))
            rows = undeleted(rows) if spec.delete == "soft" else rows
        self._replace(table_definition.replica(self.table_schema, live.layout.replica, live.tier), rows, MERGE)
        return int(rows.num_rows)

    def history(self, source: pa.Table) -> None:
        happened, live = events(source, self.table_schema), self.order.live
        rows = versions(happened, self.table_schema, self.order.generation_low_watermarks, self.order.swept)
        self._replace(table_definition.history(self.table_schema, live.layout.history, live.tier), rows, HISTORY)

    def _replace(self, definition: TableDefinition, rows: pa.Table, step: str) -> None:
        self.tables.create(definition)
        settle_properties(self.tables, definition)
        self._overwrite(definition, step, rows)

    def _overwrite(self, definition: TableDefinition, step: str, rows: pa.Table) -> None:
        version = version_of(self.order.plan)
        overwrite(
            self.tables, definition, rows, Write(app=f"refresh:{step}", version=version, keys=self.table_schema.keys)
        )

    def errors(self) -> None:
        """Replace the quarantined rows of the files by the current ones."""
        path, plan = self.order.live.layout.errors, self.order.plan
        shadow = None if self.order.shadow is None else self.order.shadow.errors
        fresh = self.tables.read(shadow).to_pylist() if shadow and self.tables.exists(shadow) else []
        if self.tables.exists(path) and (self.order.landed or self.order.archives):
            files = pa.array(self.order.landed, pa.string())

            def stale(rows: pa.Table) -> pa.Array:
                others = pc.not_equal(rows.column("batch_id"), plan.batch_id)
                replaced = pc.is_in(rows.column("source_file"), value_set=files)
                return others if self.order.archives else pc.and_(replaced, others)

            quarantine.resolve(self.tables, path, stale, plan.planned_at, ("refresh:resolve", version_of(plan)))
        if self.order.reselected and self.tables.exists(path):
            quarantine.forget_records(self.tables, path, plan.batch_id)
        if fresh:
            rows = [{**r, "batch_id": plan.batch_id, "id": f"{plan.batch_id}/{r['id']}"} for r in fresh]
            stamped = pa.Table.from_pylist(rows, schema=error_rows.SCHEMA)
            quarantine.append(self.tables, path, stamped, "refresh:quarantine", version_of(plan))
