"""From a batch's net changes to the replica: tombstones, late keys, MERGE (docs/semantics.md, sections 3 to 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.engines.spark.fold import (
    FIRST,
    FRESH,
    HAD_ROW,
    HAS_FORCED,
    LOWEST,
    UNSEEN,
    carried_name,
    fold,
    net,
    single,
)
from spark_jobs.engines.spark.order import FORCED, OP, ORDER, events, is_forced, name, order_of, rank_of, truth
from spark_jobs.engines.spark.tables import Assignments, Tables
from spark_jobs.rules.figures import Overlap
from spark_jobs.table.table_schema import GDDL, TableSchema

_BROADCAST = 500_000
"""Net changes up to which a merge sends them to every core."""
REFOLDED = f"{GDDL}__reworked"
"""True for keys folded anew from the whole change table; their state replaces whatever is stored."""
_PRIOR = f"{GDDL}__prior"


@dataclass(frozen=True, kw_only=True)
class MergePruning:
    """How a batch's net changes meet the stored rows.

    Attributes:
        low, high: least and greatest value of the first key column, for pruning; both null: no pruning.
        overlap: how the batch stands to those before.
    """

    overlap: Overlap
    low: object = None
    high: object = None


@dataclass(frozen=True, kw_only=True)
class Net:
    """A batch's net changes.

    Attributes:
        rows: one row a key, see `fold`.
        partial: rows may leave columns to what is stored.
        keys: how many rows; null when they weren't counted.
        deletes: how many of them are deletes; null as above.
        unseen: how many begin with an update, so that something of their key should be known; null as above.
    """

    rows: DataFrame
    partial: bool
    keys: int | None = None
    deletes: int | None = None
    unseen: int | None = None

    def counted(self) -> Net:
        """The same with its counts, by one pass over the rows."""
        deletes, unseen = F.count_if(F.col(OP) == "D"), F.count_if(F.col(FIRST) == UNSEEN)
        found = self.rows.agg(F.count(F.lit(1)), deletes, unseen).collect()[0]
        return replace(self, keys=int(found[0]), deletes=int(found[1]), unseen=int(found[2]))

    @property
    def broadcast(self) -> DataFrame:
        """The rows, to be sent to the table's rows rather than the other way round where they are few enough."""
        return F.broadcast(self.rows) if self.keys is not None and self.keys <= _BROADCAST else self.rows


Repeats = Literal["none", "few", "many"]
"""How many keys of a batch have more than one change."""


def net_of_batch(changes: DataFrame, table_schema: TableSchema, schemas: frozenset[int], repeats: Repeats) -> Net:
    """Fold a batch's changes.

    Args:
        changes: asked for more than once when `repeats` is `few`.
        schemas: schema ids of the batch's change files.
    """
    happened = events(changes, table_schema)
    if table_schema.carries_parts(schemas):
        return Net(rows=fold(happened, table_schema), partial=True)
    if table_schema.before_of_key or repeats == "many":
        return Net(rows=net(happened, table_schema), partial=False)
    if repeats == "none":
        return Net(rows=single(happened), partial=False)
    # Aggregating whole rows sorts them all; here few keys need it.
    keys = list(table_schema.keys)
    columns = list(map(name, table_schema.keys))
    again = F.broadcast(happened.groupBy(*columns).count().where(F.col("count") > 1).select(*columns).localCheckpoint())
    alone, together = happened.join(again, keys, "left_anti"), happened.join(again, keys, "left_semi")
    return Net(rows=single(alone).unionByName(net(together, table_schema)), partial=False)


def rework(batch: Net, history: DataFrame, stored: DataFrame, table_schema: TableSchema, generation: int) -> Net:
    """Fold late and forced keys anew from all their changes, since an overlay on the stored row would not be the fold.

    Args:
        history: the change table, this batch included.
        stored: keys and order of replica rows and tombstones (`priors`).
    """
    keys = [name(k) for k in table_schema.keys]
    late = batch.rows.join(
        F.broadcast(stored.withColumnRenamed(ORDER, "_gddl__stored")), list(table_schema.keys), "left"
    )
    redo = late.where(F.col(HAS_FORCED) | (F.col("_gddl__stored") >= F.col(LOWEST))).select(*keys)
    if not table_schema.partial:
        redo = batch.rows.where(F.col(HAS_FORCED)).select(*keys)
    redo = redo.distinct().localCheckpoint()
    if redo.isEmpty():
        return Net(rows=batch.rows.withColumn(REFOLDED, F.lit(False)), partial=batch.partial)
    happened = events(history.where(F.col(GDDL)["generation"] == generation), table_schema)
    again = fold(happened.join(F.broadcast(redo), list(table_schema.keys), "left_semi"), table_schema)
    again = again.withColumn(FRESH, F.lit(True)).withColumn(REFOLDED, F.lit(True))
    kept = batch.rows.join(F.broadcast(redo), list(table_schema.keys), "left_anti").withColumn(REFOLDED, F.lit(False))
    return Net(rows=kept.unionByName(again, allowMissingColumns=True), partial=batch.partial)


def priors(tables: Tables, table_schema: TableSchema, paths: tuple[str, str], keys: DataFrame) -> DataFrame:
    """Greatest known order of each of `keys` in replica or tombstones (`paths`), as columns keys and order."""
    replica, tombstones = paths
    parts = [_orders(tables.read(replica), table_schema, is_forced(table_schema))]
    if tables.exists(tombstones):
        parts.append(
            _orders(
                tables.read(tombstones), table_schema, F.col(FORCED) if table_schema.spec.force_update else F.lit(False)
            )
        )
    known = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    wanted = F.broadcast(keys.select(*map(name, table_schema.keys)).distinct())
    return (
        known.join(wanted, list(table_schema.keys), "left_semi")
        .groupBy(*map(name, table_schema.keys))
        .agg(F.max(ORDER).alias(ORDER))
    )


def late(batch: Net, stored: DataFrame, table_schema: TableSchema) -> int:
    """See `Applied.late`.

    Args:
        stored: see `priors`.
    """
    prior = stored.withColumnRenamed(ORDER, _PRIOR)
    changes = batch.rows.where((F.col(OP) != "R") & ~F.coalesce(F.col(HAS_FORCED), F.lit(False)))
    known, order = F.col(_PRIOR), F.col(ORDER)
    is_late = rank_of(known, known["sequence"]) > rank_of(order, order["sequence"])
    return changes.join(F.broadcast(prior), list(table_schema.keys)).where(is_late).count()


def known_keys(tables: Tables, table_schema: TableSchema, paths: tuple[str, ...], keys: DataFrame) -> DataFrame:
    """Those of `keys` that have a row in replica or tombstones (`paths`); in the replica alone where one is named."""
    columns = list(map(name, table_schema.keys))
    wanted = F.broadcast(keys)
    found = tables.read(paths[0]).select(*columns).join(wanted, list(table_schema.keys), "left_semi")
    if len(paths) == 1 or not tables.exists(paths[1]):
        return found
    buried = tables.read(paths[1]).select(*columns).join(wanted, list(table_schema.keys), "left_semi")
    return found.unionByName(buried).distinct()


def _orders(rows: DataFrame, table_schema: TableSchema, forced: Column) -> DataFrame:
    gddl = F.col(GDDL)
    return rows.select(
        *map(name, table_schema.keys), order_of(table_schema, gddl, gddl["sequence"], forced).alias(ORDER)
    )


def never_seen(rows: DataFrame, known: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Keys whose lowest change in the batch is an update though nothing of them was known: `UPDATE_WITHOUT_PRIOR`."""
    updates = rows.where(F.col(FIRST) == UNSEEN).select(*map(name, table_schema.keys))
    return updates.join(known, list(table_schema.keys), "left_anti")


def tombstones_of(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Tombstone rows for the deletes among net changes: keys, `_gddl`, and whether it was forced."""
    forced = [F.coalesce(F.col(HAS_FORCED), F.lit(False)).alias(FORCED)] if table_schema.spec.force_update else []
    return rows.where(F.col(OP) == "D").select(*map(name, table_schema.keys), GDDL, *forced)


def alive(rows: DataFrame, tombstones: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Drop net changes that a tombstone beats; an equal one is the same delete, or decided by the tie policy.

    Under soft deletes a beaten change becomes the deleted row that it would be, had it come in time.
    """
    forced = F.col(FORCED) if table_schema.spec.force_update else F.lit(False)
    gddl = F.col(GDDL)
    order = order_of(table_schema, gddl, gddl["sequence"], forced)
    dead = tombstones.groupBy(*map(name, table_schema.keys)).agg(
        F.max(order).alias("_gddl__dead"), F.max_by(gddl, order).alias("_gddl__grave")
    )
    joined = rows.join(dead, list(table_schema.keys), "left")
    beaten = F.coalesce(F.col("_gddl__dead") > F.col(ORDER), F.lit(False)) & ~F.col(REFOLDED)
    if table_schema.spec.delete == "hard":
        return joined.where(~beaten).drop("_gddl__dead", "_gddl__grave")
    buried = {GDDL: F.col("_gddl__grave"), ORDER: F.col("_gddl__dead"), OP: F.lit("D")}
    changed = {c: F.when(beaten, v).otherwise(F.col(c)) for c, v in buried.items()}
    return joined.withColumns(changed).drop("_gddl__dead", "_gddl__grave")


def merge(tables: Tables, path: str, source: Net, table_schema: TableSchema, how: MergePruning) -> dict[str, int]:
    """Apply net changes to the replica; counts of rows inserted, updated, deleted. Runs inside a transaction.

    Empty when Delta skipped the commit because an earlier attempt had made it.
    """
    stored, new = "t", "s"
    on = F.lit(True)
    for key in table_schema.keys:
        on = on & (_at(stored, key) == _at(new, key))
    if how.low is not None:
        on = on & _at(stored, table_schema.keys[0]).between(F.lit(how.low), F.lit(how.high))
    newer = _is_newer(table_schema, how)
    gone = F.col(f"{new}.{OP}") == "D"
    values = {
        c: _value(table_schema, i, c, source.partial)
        for i, c in enumerate(table_schema.columns)
        if c not in table_schema.keys
    }
    inserted: Assignments = {
        **{_quoted(c): _at(new, c) for c in table_schema.columns},
        GDDL: _struct(table_schema, deleted=False),
    }
    builder = tables.handle(path).alias(stored).merge(source.broadcast.alias(new), on)
    if table_schema.spec.delete == "hard":
        builder = builder.whenMatchedDelete(newer & gone)
    else:
        kept: Assignments = {**{_quoted(c): v for c, v in values.items()}, GDDL: _struct(table_schema, deleted=True)}
        builder = builder.whenMatchedUpdate(newer & gone, set=kept)
        dead = F.coalesce(F.col(f"{new}.{HAD_ROW}"), F.lit(False))
        buried: Assignments = inserted | {GDDL: _struct(table_schema, deleted=True)}
        builder = builder.whenNotMatchedInsert(gone & dead, values=buried)
    updated: Assignments = {**{_quoted(c): v for c, v in values.items()}, GDDL: _struct(table_schema, deleted=False)}
    result = builder.whenMatchedUpdate(newer, set=updated).whenNotMatchedInsert(~gone, values=inserted).execute()
    row = result.first()
    if row is None:
        return {}
    return {k: int(row[f"num_{k}_rows"]) for k in ("inserted", "updated", "deleted")}


def _is_newer(table_schema: TableSchema, how: MergePruning) -> Column:
    """Whether a net change comes after the stored row; the less of the row it asks for, the less is read."""
    if how.overlap.later and table_schema.spec.force_update is None:
        return F.lit(True)
    return F.col(f"s.{REFOLDED}") | _has_higher_order(table_schema, how)


def _has_higher_order(table_schema: TableSchema, how: MergePruning) -> Column:
    gddl, order = F.col(f"t.{GDDL}"), F.col(f"s.{ORDER}")
    if how.overlap.apart and table_schema.spec.force_update is None:
        return rank_of(order, order["sequence"]) > rank_of(gddl, gddl["sequence"])
    forcing = table_schema.spelled(table_schema.spec.force_update)
    forced = F.lit(False) if forcing is None else truth(_at("t", forcing))
    return order > order_of(table_schema, gddl, gddl["sequence"], forced)


def _value(table_schema: TableSchema, index: int, column: str, partial: bool) -> Column:
    """What a matched row's column becomes."""
    if not partial:
        return _at("s", column)
    stored = F.col(f"t.{GDDL}")
    outlived = stored["generation"] < F.col(f"s.{GDDL}")["generation"]
    if table_schema.spec.delete == "soft":
        outlived = outlived | F.coalesce(stored["deleted"], F.lit(False))
    whole = F.col(f"s.{FRESH}") & ((F.col(f"s.{OP}") != "D") | F.col(f"s.{HAD_ROW}"))
    replaced = whole | F.coalesce(F.col(f"s.{carried_name(index)}"), F.lit(False))
    replaced = replaced | (outlived & (F.col(f"s.{OP}") != "D"))
    return F.when(replaced, _at("s", column)).otherwise(_at("t", column))


def _struct(table_schema: TableSchema, *, deleted: bool) -> Column:
    gddl = F.col(f"s.{GDDL}")
    fields = [gddl[n].alias(n) for n, _ in table_schema.gddl_fields]
    if table_schema.spec.delete == "soft":
        fields.append(F.lit(deleted).alias("deleted"))
    return F.struct(*fields)


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _at(side: str, column: str) -> Column:
    return F.col(f"{side}.{_quoted(column)}")
