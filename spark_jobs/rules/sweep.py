"""Rows of older generations, which a sweep removes or marks deleted; and rows that are marked."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.order import gddl_fields, truncates_after, with_gddl
from spark_jobs.rules.shards import of_shard


def undeleted(rows: pa.Table) -> pa.Table:
    """With `_gddl.deleted` false."""
    return with_gddl(rows, deleted=pa.repeat(False, rows.num_rows))


def unmarked(replica: pa.Table) -> pa.Table:
    """Rows that are not marked deleted, with all their columns; `_gddl` may be left out where it has no marks."""
    if GDDL not in replica.column_names or replica.schema.field(GDDL).type.get_field_index("deleted") < 0:
        return replica
    return replica.filter(alive(replica.column(GDDL)))


def appended(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows that changes add to a table without keys: none of vanished generations, and none before a truncate."""
    late = pc.less(gddl_fields(changes)["generation"], schema.swept)
    late = pc.or_(late, truncates_after(changes, schema) >= 0)
    rows = changes.filter(pc.invert(late)) if pc.any(late).as_py() else changes
    return undeleted(rows) if schema.spec.delete == "soft" else rows


def marks(schema: TableSchema) -> bool:
    """Whether swept rows stay, marked deleted."""
    return schema.spec.delete == "soft" and bool(schema.keys)


def needed(schema: TableSchema) -> list[str]:
    """Columns of the replica that `live_by_generation` needs."""
    return [GDDL] if schema.spec.shard is None else [SHARD_COLUMN, GDDL]


def live_by_generation(rows: pa.Table, schema: TableSchema) -> dict[int, int]:
    """Number of live rows of each generation; of a table with several sources, of the batch's."""
    gddl = of_shard(rows, schema.spec.shard).column(GDDL)
    counts = pc.value_counts(pc.struct_field(gddl.filter(alive(gddl)), "generation")).to_pylist()
    return {one["values"]: one["counts"] for one in counts if one["values"] is not None}


def sweepable(live: Mapping[int, int], generation: int, schema: TableSchema) -> tuple[int, int]:
    """How many rows the newest full load lacks, and of how many.

    With keys these are the live rows of older generations, of all. Without keys every row of a load is a new one: the
    load lacks as many rows as it is smaller than what it replaces, the largest of the older generations.

    Args:
        live: see `live_by_generation`.
    """
    older = [count for one, count in live.items() if one < generation]
    if schema.keys:
        return sum(older), sum(live.values())
    replaced = max(older, default=0)
    return max(0, replaced - sum(live.values()) + sum(older)), replaced


def vanishing(rows: pa.Table, generation: int, schema: TableSchema) -> pa.ChunkedArray:
    """Mask of live rows of older generations; of a table with several sources, of the batch's."""
    gddl, shard = rows.column(GDDL), schema.spec.shard
    old = pc.and_(alive(gddl), pc.less(pc.struct_field(gddl, "generation"), generation))
    return old if shard is None else pc.and_(old, pc.equal(rows.column(SHARD_COLUMN), shard))


def instead(vanished: pa.Table, schema: TableSchema) -> pa.Table:
    """What stays of rows of older generations: nothing, or all, marked deleted."""
    if not marks(schema):
        return vanished.slice(0, 0)
    return with_gddl(vanished, deleted=pa.repeat(True, vanished.num_rows))


def alive(gddl: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mask of rows that are not marked deleted."""
    if gddl.type.get_field_index("deleted") < 0:
        return pc.is_valid(gddl)
    return pc.invert(pc.fill_null(pc.struct_field(gddl, "deleted"), False))
