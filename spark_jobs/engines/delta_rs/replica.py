"""Second half of a batch: from the change table to replica, tombstones and history."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.engines import table_columns
from spark_jobs.engines.delta_rs import evolve
from spark_jobs.engines.delta_rs.batch_context import BatchContext, KeyMatches, find
from spark_jobs.engines.delta_rs.removal import applied_before, remove_rows
from spark_jobs.engines.delta_rs.rewrite import rewritten
from spark_jobs.engines.delta_rs.small_files import join_in_passing
from spark_jobs.engines.delta_rs.tables import DataFile, TableSnapshot
from spark_jobs.engines.delta_rs.versions import changes_of_keys, update_history
from spark_jobs.engines.transactions import MERGE, SWEEP, TOMBSTONES
from spark_jobs.rules import quick
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.figures import Applied, Figures
from spark_jobs.rules.fold import FIRST, HAS_FORCED, UNSEEN, fold, net, single
from spark_jobs.rules.merge import ACTION, AT, Net, StoredState, decided, late, never_seen, replaced, to_rework
from spark_jobs.rules.order import FORCED, OP, events
from spark_jobs.rules.quick import QuickNet
from spark_jobs.rules.redelivery import sample_keys
from spark_jobs.rules.sql import query
from spark_jobs.table.table_schema import GDDL, TableSchema

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
    _tombstones: pa.Table | None = field(default=None, init=False)
    _found: QuickNet | None = field(default=None, init=False)
    _net: Net | None = field(default=None, init=False)

    @property
    def table_schema(self) -> TableSchema:
        return self.site.table_schema

    @property
    def net(self) -> Net:
        """Net changes of the batch, late and forced keys not yet folded anew."""
        if self._net is None:
            self._net = self._quick_net() if quick.suits(self.changes, self.table_schema) else self._full_net()
        return self._net

    def _quick_net(self) -> Net:
        self._found = quick.net(self.changes, self.table_schema)
        return Net(rows=self._found.rows, partial=False)

    def _full_net(self) -> Net:
        happened = events("changes", self.table_schema)
        unique = self.figures.keys == self.figures.good and not self.table_schema.before_of_key
        partial = self.table_schema.carries_parts(self.schemas)
        how = fold if partial else single if unique else net
        return Net(rows=query(how(happened, self.table_schema), {"changes": self.changes}), partial=partial)

    def tombstones(self) -> None:
        """Remember the deletes among net changes, and look up what is remembered of the batch's keys."""
        rows, site, path = self.net.rows, self.site, self.site.layout.tombstones
        dies = pc.any(pc.equal(rows.column(OP), "D")).as_py()
        if dies:
            evolve.retype_sequence(site.tables, path, self.table_schema)
            columns = table_columns.tombstone_columns(self.table_schema)
            evolve.ensure(site.tables, evolve.TableDefinition(path=path, columns=columns))
        snapshot = site.tables.snapshot(path)
        if snapshot is None:
            return
        found = find(site.tables, snapshot, rows.select(self.table_schema.keys), self.table_schema.keys)
        self._tombstones = found.rows
        if not dies or site.has_made(path, TOMBSTONES):
            return
        kept, removed = self._with_smallest(snapshot)
        deleted = by_name(tombstones_of(rows, self.table_schema), snapshot.schema.arrow)
        whole = pa.concat_tables([kept, deleted]) if kept is not None else deleted
        site.tables.commit(path, site.write(TOMBSTONES, [whole], removed))
        self._tombstones = pa.concat_tables([found.rows, deleted])

    def _with_smallest(self, snapshot: TableSnapshot) -> tuple[pa.Table | None, list[DataFile]]:
        """Rows of the smallest file, to be written again with others, where it is small."""
        smallest = min(snapshot.files, key=lambda f: f.size, default=None)
        if smallest is None or smallest.size > _SMALL_FILE:
            return None, []
        return self.site.tables.read_files(snapshot, [smallest]), [smallest]

    def merge(self) -> Applied:
        """Apply net changes to the replica, once."""
        site, path = self.site, self.site.layout.replica
        keys = self.net.rows.select(self.table_schema.keys)
        found = find(site.tables, site.tables.existing(path), keys, self.table_schema.keys)
        numbered = found.rows.append_column(AT, pa.array(range(found.rows.num_rows), pa.int64()))
        known = StoredState(stored=numbered, tombstones=self._tombstones)
        warnings = self._unseen(known)
        done = self.net
        if self.table_schema.partial or self.table_schema.spec.force_update:
            done = self._reworked(known)
        if self._found is None:
            outcome, ignored = decided(done, known, self.table_schema), late(self.net, known, self.table_schema)
        else:
            quickly = quick.decided(self._found, found.rows, self._tombstones, self.table_schema)
            outcome, ignored = quickly.rows, quickly.late
        counts = self._counts(MERGE) if site.has_made(path, MERGE) else self._put(found, outcome)
        return Applied(main=counts, warnings=warnings, late=ignored)

    def _reworked(self, known: StoredState) -> Net:
        """Late and forced keys folded anew from all their changes."""
        redo = to_rework(self.net, known, self.table_schema)
        if not redo.num_rows:
            return self.net
        generation = self.site.plan.generation
        history = changes_of_keys(self.site, redo, generation=generation)
        statement = fold(events("changes", self.table_schema), self.table_schema)
        keys = ", ".join(f'"{k}"' for k in self.table_schema.keys)
        again = query(f"SELECT * FROM ({statement}) SEMI JOIN redo USING ({keys})", {"changes": history, "redo": redo})
        return replaced(self.net, redo, again, self.table_schema)

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
                join_in_passing(site.tables, path, ())
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

    def _unseen(self, known: StoredState) -> tuple[RunWarning, ...]:
        if not pc.any(pc.equal(self.net.rows.column(FIRST), UNSEEN)).as_py():
            return ()
        if self._found is None:
            found = never_seen(self.net, known, self.table_schema)
        else:
            found = quick.never_seen(self._found, list(known.relations.values()), self.table_schema)
        if not found.num_rows:
            return ()
        message = (
            "updates of keys that were never seen were stored as they came; their earlier changes were not delivered"
        )
        sample = sample_keys(found, self.table_schema)
        return (RunWarning(code="UPDATE_WITHOUT_PRIOR", message=message, count=found.num_rows, sample=sample),)

    def purge_tombstones(self, before: datetime) -> None:
        """See `Work.purge_tombstones`."""
        if self.site.tables.exists(self.site.layout.tombstones):
            remove_rows(self.site.tables, self.site.layout.tombstones, applied_before(before), self.table_schema.keys)

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
            gddl = rows.column(GDDL)
            old = pc.less(pc.struct_field(gddl, "generation"), site.plan.generation)
            if soft:
                old = pc.and_(old, pc.invert(pc.fill_null(pc.struct_field(gddl, "deleted"), False)))
            hit = pc.sum(old).as_py() or 0
            if hit:
                count += hit
                removed.append(file)
                left = _marked(rows, old) if soft else rows.filter(pc.invert(old))
                added += [left] if left.num_rows else []
        name = "numUpdatedRows" if soft else "numDeletedRows"
        site.tables.commit(path, site.write(SWEEP, added, removed, {name: count}))

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, everything: bool) -> None:
        """See `Work.history`."""
        touched = None if everything else self.net.rows.select(self.table_schema.keys)
        update_history(self.site, touched, generation_low_watermarks)


def undeleted(rows: pa.Table) -> pa.Table:
    """With `_gddl.deleted` false."""
    gddl = rows.column(GDDL).combine_chunks()
    parts = [*gddl.flatten(), pa.repeat(False, rows.num_rows)]
    struct = pa.StructArray.from_arrays(parts, fields=[*gddl.type, pa.field("deleted", pa.bool_())])
    return rows.set_column(rows.schema.get_field_index(GDDL), GDDL, struct)


def _marked(rows: pa.Table, old: pa.ChunkedArray) -> pa.Table:
    """With `_gddl.deleted` set where it is told."""
    gddl = rows.column(GDDL).combine_chunks()
    at = gddl.type.get_field_index("deleted")
    parts = list(gddl.flatten())
    parts[at] = pc.if_else(old.combine_chunks(), True, parts[at])
    struct = pa.StructArray.from_arrays(parts, fields=list(gddl.type))
    return rows.set_column(rows.schema.get_field_index(GDDL), GDDL, struct)


def tombstones_of(rows: pa.Table, table_schema: TableSchema) -> pa.Table:
    """Tombstone rows for the deletes among net changes: keys, `_gddl`, and whether it was forced."""
    dead = rows.filter(pc.equal(rows.column(OP), "D"))
    kept = dead.select([*table_schema.keys, GDDL])
    return (
        kept.append_column(FORCED, pc.fill_null(dead.column(HAS_FORCED), False))
        if table_schema.spec.force_update
        else kept
    )
