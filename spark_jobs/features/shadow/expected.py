"""What a batch makes of a table, by Spark: rows are read and merged by Spark's Delta, and decided by the rules.

Shared with our commits: decoding, the change table's rows, `spark_jobs.rules`. Not shared: how the log is read, which
files and rows are searched, how rows leave and reach files, vectors, statistics, the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.sql_types import quoted
from spark_jobs.features.shadow.sides import table_at
from spark_jobs.plan.applied_settings import history_begins
from spark_jobs.plan.batching import generation_floors_of
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import by_name, table_codes
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.history import IDENTITY, actions, versions
from spark_jobs.rules.order import events, is_of_batch
from spark_jobs.rules.outcome import ACTION, Outcome, StoredState, outcome_of
from spark_jobs.rules.shards import of_shard
from spark_jobs.rules.stored_columns import change_schema
from spark_jobs.rules.sweep import appended
from spark_jobs.tables.spark_merge import at, equal_at

_MOST_ROWS = 1_000_000
"""Rows of one kind that a comparison takes into the driver."""
_STORED, _STAGED = "stored", "staged"


class TooManyRowsError(Exception):
    """A comparison would take more rows into the driver than it may."""


@dataclass
class Expected:
    """A batch by Spark.

    Attributes:
        most_rows: see `_MOST_ROWS`.
    """

    spark: SparkSession
    layout: Layout
    plan: BatchPlan
    schema: TableSchema
    state: TableState
    most_rows: int = _MOST_ROWS
    _outcome: tuple[pa.Table, Outcome] | None = field(default=None, init=False)

    def replica(self, clone: str) -> None:
        """Apply the batch to a clone of the replica."""
        if not self.schema.keys:
            self._append(clone, appended(self._changes(), self.schema))
            return
        _, outcome = self._decided(clone)
        columns = [*self.schema.columns, GDDL]
        self._merge(clone, outcome.rows.select([*columns, ACTION]), self.schema.keys, columns)

    def tombstones(self, kind: T.StructType) -> DataFrame:
        """The batch's deletes, in the columns of a table."""
        _, outcome = self._decided(self.layout.replica)
        return self._whole(outcome.deletes, kind)

    def history(self, clone: str) -> None:
        """Derive the versions of the batch's keys in a clone of the history, or of all keys."""
        every = self.plan.truncates is not None or history_begins(self.schema.spec, self.state.applied)
        touched = None if every else self._decided(self.layout.replica, merged=True)[0].select(self.schema.keys)
        changes = self._changes_of(touched)
        happened = _of_keys(events(changes, self.schema), touched, self.schema)
        floors = generation_floors_of(self.plan, self.state)
        derived = versions(happened, self.schema, floors, self.state.swept)
        wanted = actions(derived, self._stored_versions(clone, touched), self.schema)
        kinds = {"put": "update", "delete": "delete"}
        renamed = pa.array([kinds[one] for one in wanted.column(ACTION).to_pylist()], pa.string())
        columns = [name for name in wanted.column_names if name != ACTION]
        wanted = wanted.select(columns).append_column(ACTION, renamed)
        self._merge(clone, wanted, (*self.schema.keys, *IDENTITY), columns, puts=True)

    def _stored_versions(self, clone: str, touched: pa.Table | None) -> pa.Table:
        """Versions of keys; None: of all that are the batch's source's."""
        rows = self._read(clone)
        if touched is None:
            return of_shard(self._taken(rows), self.schema.spec.shard)
        return _of_keys(self._matching(rows, touched), touched, self.schema)

    def _decided(self, replica: str, *, merged: bool = False) -> tuple[pa.Table, Outcome]:
        """Net changes of the batch, and what becomes of the replica; by the replica before the batch.

        Args:
            merged: the replica has the batch already, so that only the net changes count.
        """
        if self._outcome is None:
            changes, schema = self._changes(), self.schema
            partial = schema.carries_parts(_schemas_of(changes))
            net = net_changes(events(changes, schema), schema, partial=partial)
            keys = net.select(schema.keys)
            stored = StoredState(
                replica=self._matching(self._read(replica), keys), tombstones=self._stored_tombstones(keys)
            )
            if merged:
                stored = StoredState(replica=stored.replica.slice(0, 0))
            outcome = outcome_of(net, stored, schema, self._refold, partial=partial)
            self._outcome = net, outcome
        return self._outcome

    def _refold(self, keys: pa.Table) -> pa.Table:
        return events(self._changes_of(keys.select(self.schema.keys)), self.schema)

    def _changes(self) -> pa.Table:
        """The batch's rows of the change table."""
        rows = self._read(self.layout.changes)
        mine = rows.where(F.col(f"{quoted(GDDL)}.batch_id") == self.plan.batch_id)
        return by_name(self._taken(mine), change_schema(self.schema))

    def _changes_of(self, keys: pa.Table | None) -> pa.Table:
        """All changes of keys, and where keys can change, those of others; None: of the batch's source."""
        rows = self._read(self.layout.changes)
        found = self._matching(rows, keys) if keys is not None and not self.schema.before_of_key else self._taken(rows)
        changes = by_name(found, change_schema(self.schema))
        return of_shard(changes, self.schema.spec.shard) if keys is None else changes

    def _stored_tombstones(self, keys: pa.Table) -> pa.Table | None:
        """Those of other batches."""
        if not DeltaTable.isDeltaTable(self.spark, self.layout.tombstones):
            return None
        rows = self._matching(self._read(self.layout.tombstones), keys)
        return rows.filter(pc.invert(is_of_batch(rows, self.plan.batch_id)))

    def _read(self, path: str) -> DataFrame:
        return table_at(self.spark, path)

    def _matching(self, rows: DataFrame, keys: pa.Table) -> pa.Table:
        """Rows that have one of these keys."""
        names = self.schema.keys
        wanted = self._frame(keys, T.StructType([rows.schema[name] for name in names]))
        on = equal_at(_STORED, _STAGED, names)
        return self._taken(rows.alias(_STORED).join(F.broadcast(wanted.alias(_STAGED)), on, "left_semi"))

    def _taken(self, rows: DataFrame) -> pa.Table:
        found = rows.limit(self.most_rows + 1).toArrow()
        if found.num_rows > self.most_rows:
            raise TooManyRowsError(f"more than {self.most_rows} rows")
        return found

    def _frame(self, rows: pa.Table, kind: T.StructType) -> DataFrame:
        if not rows.num_rows:  # PySpark takes no Arrow table without chunks
            return self.spark.createDataFrame([], kind)
        return self.spark.createDataFrame(rows.select([one.name for one in kind.fields]).combine_chunks(), kind)

    def _append(self, clone: str, rows: pa.Table) -> None:
        self._whole(rows, self._read(clone).schema).write.format("delta").mode("append").save(clone)

    def _whole(self, rows: pa.Table, kind: T.StructType) -> DataFrame:
        """Rows in the columns of a table; what they lack is null."""
        there = T.StructType([one for one in kind.fields if one.name in rows.column_names])
        frame = self._frame(rows, there)
        lacking = [one for one in kind.fields if one.name not in rows.column_names]
        frame = frame.select("*", *(F.lit(None).cast(one.dataType).alias(one.name) for one in lacking))
        return frame.select(*(F.col(quoted(one.name)) for one in kind.fields))

    def _merge(
        self, clone: str, rows: pa.Table, keys: Sequence[str], columns: Sequence[str], *, puts: bool = False
    ) -> None:
        """Let Spark apply rows with `ACTION`.

        Args:
            puts: an `update` whose row is not there inserts it; else it is a difference that this side lacks it.
        """
        kind = self._read(clone).schema
        fields = T.StructType([*(kind[name] for name in columns), T.StructField(ACTION, T.StringType())])
        staged = self._frame(rows, fields)
        values: dict[str, str | Column] = {quoted(name): at(_STAGED, name) for name in columns}
        action = at(_STAGED, ACTION)
        target = DeltaTable.forPath(self.spark, clone).alias(_STORED)
        merge = target.merge(staged.alias(_STAGED), equal_at(_STORED, _STAGED, keys))
        merge = merge.whenMatchedDelete(action == "delete").whenMatchedUpdate(action == "update", values)
        merge.whenNotMatchedInsert(action == ("update" if puts else "insert"), values).execute()


def _of_keys(rows: pa.Table, keys: pa.Table | None, schema: TableSchema) -> pa.Table:
    """Rows of keys; None: of any."""
    if keys is None:
        return rows
    mine, wanted = table_codes((rows, keys), schema.keys)
    return rows.filter(pc.is_in(pa.array(mine), value_set=pa.array(wanted)))


def _schemas_of(changes: pa.Table) -> frozenset[int]:
    """Ids of the column sets of a batch's changes."""
    gddl = changes.column(GDDL)
    ids = pc.struct_field(gddl, "schema").filter(pc.not_equal(pc.struct_field(gddl, "op"), "R"))
    return frozenset(ids.unique().to_pylist())
