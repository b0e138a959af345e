"""Second half of a batch: from the change table to replica, tombstones and history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.result import MainCounts
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_rs import evolve
from spark_jobs.engines.delta_rs.batch_context import BatchContext, KeyMatches, find
from spark_jobs.engines.delta_rs.reconcile import undeleted
from spark_jobs.engines.delta_rs.removal import applied_before, remove_rows
from spark_jobs.engines.delta_rs.rewrite import rewritten
from spark_jobs.engines.delta_rs.small_files import join_in_passing
from spark_jobs.engines.delta_rs.tables import DataFile, TableSnapshot
from spark_jobs.engines.delta_rs.versions import changes_of_keys, update_history
from spark_jobs.engines.transactions import MERGE, SWEEP, TOMBSTONES
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.figures import Applied, Figures
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.merge import ACTION, StoredState
from spark_jobs.rules.order import events
from spark_jobs.rules.outcome import Outcome, outcome_of, unknown_keys_warning

_SMALL_FILE, _FULL_FILE = 4 * 1024**2, 32 * 1024**2
"""Rows that a table gains go into its smallest file where that is below the first, so that files stay few, or into one
that is written anew where that is below the second, so that no file grows for ever."""


@dataclass
class ReplicaWriter:
    """Attributes:
    schemas: schema ids of the batch's change files.
    first: no batch with rows came before, so that replica and tombstones are empty.
    changes: the batch's rows of the change table.
    """

    site: BatchContext
    figures: Figures
    schemas: frozenset[int]
    first: bool
    changes: pa.Table

    @property
    def table_schema(self) -> TableSchema:
        return self.site.table_schema

    @cached_property
    def net(self) -> pa.Table:
        """Net changes of the batch, late and forced keys not yet folded anew."""
        return net_changes(events(self.changes, self.table_schema), self.table_schema, partial=self._partial)

    @property
    def _partial(self) -> bool:
        return self.table_schema.carries_parts(self.schemas)

    @cached_property
    def _found(self) -> KeyMatches:
        """Rows of the replica that may have keys of the batch."""
        tables = self.site.tables
        snapshot = tables.existing(self.site.layout.replica)
        return find(tables, snapshot, self.net.select(self.table_schema.keys), self.table_schema.keys)

    @cached_property
    def _outcome(self) -> Outcome:
        """What becomes of the batch's keys, by what the tables held before it."""
        return outcome_of(self.net, self._stored(), self.table_schema, self._refold, partial=self._partial)

    def _stored(self) -> StoredState:
        site, keys = self.site, self.net.select(self.table_schema.keys)
        snapshot = site.tables.snapshot(site.layout.tombstones)
        if snapshot is None:
            return StoredState(replica=self._found.rows)
        rows = find(site.tables, snapshot, keys, self.table_schema.keys).rows
        others = pc.not_equal(pc.struct_field(rows.column(GDDL), "batch_id"), site.plan.batch_id)
        return StoredState(replica=self._found.rows, tombstones=rows.filter(others))

    def _refold(self, keys: pa.Table) -> pa.Table:
        """All changes of these keys in the batch's generation, and perhaps of some others."""
        return changes_of_keys(self.site, keys, generation=self.site.plan.generation)

    def tombstones(self) -> None:
        """See `BatchWork.tombstones`."""
        site, path = self.site, self.site.layout.tombstones
        deleted = self._outcome.deletes
        if not deleted.num_rows:
            return
        evolve.retype_sequence(site.tables, path, self.table_schema)
        evolve.ensure(site.tables, table_definition.tombstones(self.table_schema, path))
        if site.has_made(path, TOMBSTONES):
            return
        snapshot = site.tables.existing(path)
        kept, removed = self._with_smallest(snapshot)
        rows = by_name(deleted, snapshot.schema.arrow)
        whole = pa.concat_tables([kept, rows]) if kept is not None else rows
        site.tables.commit(path, site.write(TOMBSTONES, [whole], removed))

    def _with_smallest(self, snapshot: TableSnapshot) -> tuple[pa.Table | None, list[DataFile]]:
        """Rows of the smallest file, to be written again with others, where it is small."""
        smallest = min(snapshot.files, key=lambda f: f.size, default=None)
        if smallest is None or smallest.size > _SMALL_FILE:
            return None, []
        return self.site.tables.read_files(snapshot, [smallest]), [smallest]

    def merge(self) -> Applied:
        """Apply net changes to the replica, once."""
        site, path = self.site, self.site.layout.replica
        outcome = self._outcome
        warnings = unknown_keys_warning(outcome.unknown_keys, self.table_schema)
        done = site.has_made(path, MERGE)
        main = self._counts(MERGE) if done else self._put(self._found, outcome.rows)
        return Applied(main=main, warnings=warnings, late=outcome.late)

    def _put(self, found: KeyMatches, outcome: pa.Table) -> MainCounts:
        """Write what is decided: files that hold a changed row anew, new rows into one of them or the smallest file."""
        site, path = self.site, self.site.layout.replica
        snapshot = site.tables.existing(path)
        actions = outcome.column(ACTION)
        counts = {f"{a}d" if a != "insert" else "inserted": pc.sum(pc.equal(actions, a)).as_py() or 0
                  for a in ("insert", "update", "delete")}  # fmt: skip
        added, removed = rewritten(found, outcome, snapshot.schema.arrow)
        fresh = by_name(outcome.filter(pc.equal(actions, "insert")), snapshot.schema.arrow)
        if fresh.num_rows and removed:
            least = min(range(len(removed)), key=lambda i: removed[i].size)
            if removed[least].size <= _FULL_FILE:
                added[least] = pa.concat_tables([added[least], fresh])
            else:
                added.append(fresh)
        elif fresh.num_rows:
            kept, small = self._with_smallest(snapshot)
            added.append(pa.concat_tables([kept, fresh]) if kept is not None else fresh)
            removed += small
        metrics = {f"numTargetRows{name.capitalize()}": n for name, n in counts.items()}
        site.tables.commit(path, site.write(MERGE, [a for a in added if a.num_rows], removed, metrics))
        return MainCounts(**counts)

    def append_only(self) -> Applied:
        """A table without keys: its replica is the changes themselves."""
        site, path = self.site, self.site.layout.replica
        if not site.has_made(path, MERGE):
            if not site.begun:
                join_in_passing(site.tables, path)
            rows = undeleted(self.changes) if self.table_schema.spec.delete == "soft" else self.changes
            added = [rows] if rows.num_rows else []
            metrics = {"numTargetRowsInserted": self.changes.num_rows}
            site.tables.commit(path, site.write(MERGE, added, metrics=metrics))
        return Applied(main=self._counts(MERGE))

    def _counts(self, app: str) -> MainCounts:
        """Of the commit that a step of this batch has made, in either engine."""
        found = self.site.tables.metrics(self.site.layout.replica, app, self.site.transaction)
        if "numTargetRowsInserted" in found:
            return MainCounts(**{k: found.get(f"numTargetRows{k.capitalize()}", 0) for k in
                                 ("inserted", "updated", "deleted")})  # fmt: skip
        swept = found.get("numDeletedRows", 0) + found.get("numUpdatedRows", 0)
        return MainCounts(inserted=found.get("numOutputRows", 0) if app == MERGE else 0, deleted=swept)

    def purge_tombstones(self, before: datetime) -> None:
        """See `BatchWork.purge_tombstones`."""
        if self.site.tables.exists(self.site.layout.tombstones):
            remove_rows(self.site.tables, self.site.layout.tombstones, applied_before(before))

    def sweepable(self) -> tuple[int, int]:
        """See `BatchWork.sweepable`."""
        site, rows, live = self.site, 0, 0
        snapshot = site.tables.existing(site.layout.replica)
        for file in snapshot.files:
            alive, old = _alive_and_old(site.tables.read_files(snapshot, [file], [GDDL]), site.plan.generation)
            rows, live = rows + (pc.sum(old).as_py() or 0), live + (pc.sum(alive).as_py() or 0)
        return rows, live

    def sweep(self) -> MainCounts:
        """Rows of older generations vanish, or are marked deleted."""
        site, path = self.site, self.site.layout.replica
        if not site.has_made(path, SWEEP):
            self._sweep()
        return self._counts(SWEEP)

    def _sweep(self) -> None:
        site, path = self.site, self.site.layout.replica
        snapshot = site.tables.existing(path)
        added, removed, count = [], [], 0
        soft = self.table_schema.spec.delete == "soft" and bool(self.table_schema.keys)
        for file in snapshot.files:
            rows = site.tables.read_files(snapshot, [file])
            _, old = _alive_and_old(rows, site.plan.generation)
            hit = pc.sum(old).as_py() or 0
            if hit:
                count += hit
                removed.append(file)
                left = _marked(rows, old) if soft else rows.filter(pc.invert(old))
                added += [left] if left.num_rows else []
        name = "numUpdatedRows" if soft else "numDeletedRows"
        site.tables.commit(path, site.write(SWEEP, added, removed, {name: count}))

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int, everything: bool) -> None:
        """See `BatchWork.history`."""
        touched = None if everything else self.net.select(self.table_schema.keys)
        update_history(self.site, touched, generation_low_watermarks, swept)


def _alive_and_old(rows: pa.Table, generation: int) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Which rows are not marked deleted, and which of these are of an older generation."""
    gddl = rows.column(GDDL)
    old = pc.less(pc.struct_field(gddl, "generation"), generation)
    if gddl.type.get_field_index("deleted") < 0:
        return pc.is_valid(old), old
    alive = pc.invert(pc.fill_null(pc.struct_field(gddl, "deleted"), False))
    return alive, pc.and_(alive, old)


def _marked(rows: pa.Table, old: pa.ChunkedArray) -> pa.Table:
    """With `_gddl.deleted` set where it is told."""
    gddl = rows.column(GDDL).combine_chunks()
    at = gddl.type.get_field_index("deleted")
    parts = list(gddl.flatten())
    parts[at] = pc.if_else(old.combine_chunks(), True, parts[at])
    struct = pa.StructArray.from_arrays(parts, fields=list(gddl.type))
    return rows.set_column(rows.schema.get_field_index(GDDL), GDDL, struct)
