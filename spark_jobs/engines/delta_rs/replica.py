"""A batch whose changes are in the change table: net changes, tombstones, and tables without keys."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines import table_definition
from spark_jobs.engines.batch_steps import TableWork
from spark_jobs.engines.delta_commits import main_counts
from spark_jobs.engines.delta_rs import evolve, quarantine
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.merge import MergeWriter
from spark_jobs.engines.delta_rs.row_search import KeyMatches, find
from spark_jobs.engines.delta_rs.small_files import with_smallest
from spark_jobs.engines.delta_rs.table_writer import TableWriter
from spark_jobs.engines.delta_rs.tables import TableSnapshot
from spark_jobs.engines.delta_rs.versions import changes_of_keys
from spark_jobs.engines.transactions import MERGE, TOMBSTONES
from spark_jobs.engines.whole_batch import WholeBatch
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import Appended, Applied
from spark_jobs.rules.fold import net_changes, refolds
from spark_jobs.rules.merge import StoredState
from spark_jobs.rules.order import events
from spark_jobs.rules.outcome import outcome_of
from spark_jobs.rules.quarantine import good_again
from spark_jobs.rules.sweep import appended


@dataclass(frozen=True, kw_only=True)
class ReplicaWriter:
    """See `AppendedWork`.

    Attributes:
        changes: the batch's rows of the change table.
    """

    batch_context: BatchContext
    decoded: WholeBatch
    changes: pa.Table
    appended: Appended

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    @property
    def tables(self) -> TableWork:
        return TableWriter(self.batch_context)

    @property
    def table_schema(self) -> TableSchema:
        return self.batch_context.table_schema

    def resolve_rows(self) -> None:
        batch_context, chosen = self.batch_context, good_again(self.decoded.good)
        quarantine.resolve(batch_context.tables, batch_context.layout.errors, chosen, batch_context.plan.planned_at)

    def tombstones(self) -> MergeWriter:
        schema = self.table_schema
        partial = schema.carries_parts(self.decoded_batch.change_schemas)
        net = net_changes(events(self.changes, schema), schema, partial=partial)
        keys = net.select(schema.keys)
        found = self._stored_rows(keys, partial=partial)
        stored = StoredState(replica=found.rows, tombstones=self._stored_tombstones(keys))
        outcome = outcome_of(net, stored, schema, self._refold, partial=partial)
        if outcome.deletes.num_rows:
            self._remember(outcome.deletes)
        return MergeWriter(batch_context=self.batch_context, keys=keys, found=found, outcome=outcome)

    def _stored_rows(self, keys: pa.Table, *, partial: bool) -> KeyMatches:
        tables, schema = self.batch_context.tables, self.table_schema
        snapshot = tables.existing(self.batch_context.layout.replica)
        if snapshot.writes_vectors:  # each batch adds a file
            self.batch_context.join_small_files(snapshot.path)
            snapshot = tables.existing(snapshot.path)
        return find(tables, snapshot, keys, schema.keys, needed_of_replica(snapshot, schema, partial=partial))

    def _stored_tombstones(self, keys: pa.Table) -> pa.Table | None:
        """Tombstones of earlier batches of these keys, and possibly of others."""
        batch_context = self.batch_context
        snapshot = batch_context.tables.snapshot(batch_context.layout.tombstones)
        if snapshot is None:
            return None
        rows = find(batch_context.tables, snapshot, keys, self.table_schema.keys).rows
        return rows.filter(pc.not_equal(pc.struct_field(rows.column(GDDL), "batch_id"), batch_context.plan.batch_id))

    def _refold(self, keys: pa.Table) -> pa.Table:
        """`order.events` of all changes of these keys, and possibly of others."""
        return events(changes_of_keys(self.batch_context, keys), self.table_schema)

    def _remember(self, deletes: pa.Table) -> None:
        batch_context, path = self.batch_context, self.batch_context.layout.tombstones
        evolve.retype_sequence(batch_context.tables, path, self.table_schema)
        evolve.ensure(batch_context.tables, table_definition.tombstones(self.table_schema, path))
        if batch_context.has_made(path, TOMBSTONES):
            return
        snapshot = batch_context.tables.existing(path)
        whole, removed = with_smallest(batch_context.tables, snapshot, by_name(deletes, snapshot.schema.arrow))
        batch_context.commit(path, TOMBSTONES, {}, [whole], removed)

    def append_only(self) -> Applied:
        batch_context, path = self.batch_context, self.batch_context.layout.replica
        rows = appended(self.changes, self.table_schema)
        if not batch_context.has_made(path, MERGE):
            batch_context.join_small_files(path)
            batch_context.commit(path, MERGE, {"numTargetRowsInserted": rows.num_rows}, [rows])
        late = self.changes.num_rows - rows.num_rows
        return Applied(main=main_counts(batch_context.metrics(path, MERGE)), late=late)


def needed_of_replica(snapshot: TableSnapshot, schema: TableSchema, *, partial: bool) -> list[str] | None:
    """Columns of stored rows that a merge needs (null: all), for rows that are deleted by their number."""
    if partial or refolds(schema) or snapshot.feeds_changes:
        return None
    needed, written = {*schema.keys, GDDL, *schema.forcing}, {*schema.columns, GDDL}
    return [name for name in snapshot.schema.names if name in needed or name not in written]
