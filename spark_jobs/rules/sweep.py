"""Rows that are deleted without a change of their own: older generations, truncates, and marks of deleted rows.

A truncate deletes every row of the table that precedes it in the order of changes. It names no keys, so that it is kept
as a tombstone of the whole table, in the ledger (docs/semantics.md, section 19). What truncates do to the events of
keys: `order.with_truncates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.plan.planned_batch import Truncate
from spark_jobs.plan.sequence import sort_key
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import by_name, compare_rows, sortable, table_codes
from spark_jobs.rules.batch_schema import Landed
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.order import (
    deleted_by,
    gddl_fields,
    old_keys,
    sample_keys,
    truncates_after,
    truncates_gddl,
    with_gddl,
)
from spark_jobs.rules.read import RawGroup
from spark_jobs.rules.texts import json_writer, utc_text


def with_shard_column(groups: Sequence[Landed], *, replayed: bool) -> list[Landed]:
    """Groups of files as if each had the column.

    Args:
        replayed: they are records of the quarantine, which have it.

    Raises:
        FatalError: `SHARD_COLUMN_TAKEN`: a file has a column of this name.
    """
    return [_with_column(group, replayed=replayed) for group in groups]


def _with_column(group: Landed, *, replayed: bool) -> Landed:
    others = tuple((name, kind) for name, kind in group.columns if name.lower() != SHARD_COLUMN)
    if len(others) != len(group.columns) and not replayed:
        raise FatalError(
            "SHARD_COLUMN_TAKEN",
            f"the file has a column {SHARD_COLUMN}, which tables with `shards` keep for the name of the source",
            where=group.label,
            remedy="rename the column at the source or in the CDC task; or load each source into a table of its own",
        )
    return replace(group, columns=((SHARD_COLUMN, "string"), *others))


def with_shard(raw: RawGroup, shard: str) -> RawGroup:
    """The rows of a group with the column filled in."""
    others = {name: values for name, values in raw.columns.items() if name.lower() != SHARD_COLUMN}
    return replace(raw, columns={SHARD_COLUMN: pa.repeat(shard, raw.rows), **others})


def of_shard(rows: pa.Table, shard: str | None) -> pa.Table:
    """Rows of one source; null: all."""
    return rows if shard is None else rows.filter(pc.equal(rows.column(SHARD_COLUMN), shard))


def not_of_shard(rows: pa.Table, shard: str) -> pa.Table:
    """Rows of the other sources."""
    return rows.filter(pc.fill_null(pc.not_equal(rows.column(SHARD_COLUMN), shard), True))


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
    late = pc.or_(late, pa.array(truncates_after(changes, schema) >= 0))
    rows = changes.filter(pc.invert(late)) if pc.any(late).as_py() else changes
    return undeleted(rows) if schema.spec.delete == "soft" else rows


def marks(schema: TableSchema) -> bool:
    """Whether swept rows stay, marked deleted."""
    return schema.spec.delete == "soft" and bool(schema.keys)


def needed(schema: TableSchema) -> list[str]:
    """Columns of the replica that `sweepable` needs."""
    return [GDDL] if schema.spec.shard is None else [SHARD_COLUMN, GDDL]


def sweepable(rows: pa.Table, generation: int, schema: TableSchema) -> tuple[int, int]:
    """Live rows of older generations, and all live rows; of a table with several sources, those of the batch's."""
    rows = of_shard(rows, schema.spec.shard)
    return _count(_old(rows, generation, None)), _count(alive(rows.column(GDDL)))


def swept(rows: pa.Table, generation: int, schema: TableSchema) -> tuple[pa.Table, int]:
    """Rows without those of older generations, or with these marked deleted; and their number."""
    old = vanishing(rows, generation, schema)
    remaining = rows.filter(pc.invert(old))
    return pa.concat_tables([remaining, instead(rows.filter(old), schema)]), _count(old)


def vanishing(rows: pa.Table, generation: int, schema: TableSchema) -> pa.ChunkedArray:
    """Mask of live rows of older generations."""
    return _old(rows, generation, schema.spec.shard)


def instead(vanished: pa.Table, schema: TableSchema) -> pa.Table:
    """What stays of rows of older generations: nothing, or all, marked deleted."""
    if not marks(schema):
        return vanished.slice(0, 0)
    return with_gddl(vanished, deleted=pa.repeat(True, vanished.num_rows))


def _old(rows: pa.Table, generation: int, shard: str | None) -> pa.ChunkedArray:
    gddl = rows.column(GDDL)
    old = pc.and_(alive(gddl), pc.less(pc.struct_field(gddl, "generation"), generation))
    return old if shard is None else pc.and_(old, pc.equal(rows.column(SHARD_COLUMN), shard))


def alive(gddl: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mask of rows that are not marked deleted."""
    if gddl.type.get_field_index("deleted") < 0:
        return pc.is_valid(gddl)
    return pc.invert(pc.fill_null(pc.struct_field(gddl, "deleted"), False))


def _count(which: pa.ChunkedArray) -> int:
    return int(pc.sum(which).as_py() or 0)


STALE_CODE = "QUARANTINE_STALE"
_COMPARED = 10_000
"""Quarantined rows of a part of a batch that are compared with the replica."""


def suspects(groups: Sequence[DecodedGroup], schema: TableSchema) -> pa.Table | None:
    """Keys and `_gddl` of quarantined rows that have a key, by the key before and after each change; None: of none."""
    bad = [group.rows.take(pa.array(group.bad[:_COMPARED], pa.int64())) for group in groups if group.bad]
    if not bad or not schema.keys:
        return None
    rows = pa.concat_tables(bad)
    current, gddl = rows.select([*schema.keys, GDDL]), rows.column(GDDL)
    parts = [current, pa.table({**old_keys(rows, schema), GDDL: gddl})] if schema.before_of_key else [current]
    both = pa.concat_tables([by_name(part, current.schema) for part in parts])
    whole = np.ones(both.num_rows, dtype=bool)
    for key in schema.keys:
        whole &= np.asarray(both.column(key).is_valid())
    return both.filter(pa.array(whole)) if whole.any() else None


def stale_keys(found: pa.Table, replica: pa.Table, schema: TableSchema) -> pa.Table:
    """Keys of live rows of the replica to which a quarantined change would apply, each once.

    Args:
        found: see `suspects`.
        replica: rows with these keys, perhaps of others too, with `_gddl`.
    """
    stored = unmarked(replica)
    stored = by_name(stored, pa.schema([*(found.schema.field(key) for key in schema.keys), stored.schema.field(GDDL)]))
    mine, theirs = table_codes([found.select(schema.keys), stored.select(schema.keys)], schema.keys)
    order = np.argsort(theirs, kind="stable")
    place = np.searchsorted(theirs[order], mine)
    inside = place < len(order)
    at = order[np.where(inside, place, 0)] if len(order) else np.zeros(len(mine), np.int64)
    known = inside & (theirs[at] == mine) if len(order) else np.zeros(len(mine), dtype=bool)
    rows, held = found.filter(pa.array(known)), stored.take(pa.array(at[known]))
    return rows.filter(pa.array(_are_later(rows, held))).select(schema.keys)


def _are_later(changes: pa.Table, rows: pa.Table) -> np.ndarray:
    """Whether each change is of a later generation or sequence than the row; a change without a sequence may be."""
    ours, theirs = gddl_fields(changes), gddl_fields(rows)
    compared = compare_rows(
        *(
            [fields["generation"], *sortable(fields["sequence"].cast(theirs["sequence"].type))]
            for fields in (ours, theirs)
        )
    )
    unordered = np.asarray(ours["sequence"].is_null()) & ~np.asarray(pc.fill_null(pc.equal(ours["op"], "R"), False))
    of_now = np.asarray(pc.greater_equal(ours["generation"], theirs["generation"]))
    later: np.ndarray = (compared > 0) | (unordered & of_now)
    return later


def stale_warning(keys: pa.Table, schema: TableSchema) -> tuple[RunWarning, ...]:
    """
    Args:
        keys: see `stale_keys`.
    """
    sample = sample_keys(keys, schema) if keys.num_rows else ()
    count = len(np.unique(table_codes([keys], schema.keys)[0])) if keys.num_rows else 0
    message = (
        "rows of the replica are older than changes of their keys that are in quarantine; correct the cause and run "
        "`gddl errors replay`"
    )
    return (RunWarning(code=STALE_CODE, message=message, count=count, sample=sample),) if count else ()


MOST_KEPT = 100
"""Truncates that the ledger keeps of a table without a history, which only the newest concerns."""

Place = tuple[int, tuple[tuple[int, Any], ...]]
"""Sorts truncates as the order of changes does."""


def place_of(truncate: Truncate) -> Place:
    """Generation and sequence."""
    return truncate.generation, sort_key(truncate.sequence)


def kept_truncates(
    known: Sequence[Truncate], found: Iterable[Truncate], *, history: bool = True
) -> tuple[Truncate, ...]:
    """Truncates of a table after a batch, in the order of changes; of deliveries of one the first is kept.

    Without a history one before a known one changes nothing, and is left out: else a rebuild would mark deleted rows
    with other sequences than the batches did.
    """
    found = list(found) if history else unknown_truncates(known, found)
    every = {(one.generation, one.sequence): one for one in (*reversed(found), *known)}
    in_order = tuple(sorted(every.values(), key=place_of))
    return in_order if history else in_order[-MOST_KEPT:]


def unknown_truncates(known: Sequence[Truncate], found: Iterable[Truncate]) -> tuple[Truncate, ...]:
    """Truncates that delete more than the known ones do, in the order of changes."""
    latest = place_of(known[-1]) if known else None
    return tuple(sorted((one for one in found if latest is None or place_of(one) > latest), key=place_of))


def are_applied(spec: TableSpec, *, released: bool) -> bool:
    """Whether the truncates of a batch take effect.

    Args:
        released: a user has released them.
    """
    return spec.truncate == "apply" or (spec.truncate == "hold" and released)


def without_truncates(group: DecodedGroup, schema: TableSchema) -> DecodedGroup:
    """The group without rows that are truncates, which it names."""
    if group.truncating is None or not group.truncating.any():
        return replace(group, truncating=None)
    write = json_writer(parse_type(schema.sequence_type))
    facts = group.rows.filter(pa.array(group.truncating)).column(GDDL).to_pylist()
    truncates = tuple(
        Truncate(
            generation=one["generation"], sequence=write(one["sequence"]),
            commit_ts=None if one["commit_ts"] is None else utc_text(one["commit_ts"]),
            source_file=one["source_file"], position=one["position"], batch_id=one["batch_id"],
            applied_at=utc_text(one["applied_at"]), schema=one["schema"],
        )
        for one in facts
    )  # fmt: skip
    remaining = group.without(group.truncating)
    outside = None if group.outside is None else group.outside[~group.truncating]
    return replace(remaining, outside=outside, truncating=None, truncates=truncates)


@dataclass(frozen=True, kw_only=True)
class Truncated:
    """Stored rows that truncates delete.

    Attributes:
        rows: as they are stored.
        instead: what stays of them: nothing, or all, marked deleted by the truncate.
        live: number of those that were not marked before.
    """

    rows: pa.Table
    instead: pa.Table
    live: int


def truncated(replica: pa.Table, schema: TableSchema) -> Truncated:
    """Rows of the replica before truncates; of a table with several sources, those of the batch's."""
    at = truncates_after(replica, schema)
    eligible = _are_of_source(replica, schema)
    if marks(schema):
        eligible &= ~_by_truncates(replica, at, schema)
    truncated_rows = (at >= 0) & eligible
    rows = replica.filter(pa.array(truncated_rows))
    live = int(pc.sum(alive(rows.column(GDDL))).as_py() or 0)
    if not marks(schema):
        return Truncated(rows=rows, instead=rows.slice(0, 0), live=live)
    place = rows.schema.get_field_index(GDDL)
    deletes = truncates_gddl(rows.schema.field(GDDL).type, schema).take(pa.array(at[truncated_rows]))
    return Truncated(rows=rows, instead=rows.set_column(place, rows.schema.field(place), deletes), live=live)


def after_truncates(replica: pa.Table, schema: TableSchema) -> pa.Array:
    """Mask of rows after a truncate of the batch; of a table with several sources, those of the batch's.

    Args:
        replica: without rows before it; columns of `to_place`.
    """
    new = tuple(one for one in schema.truncates if one.batch_id == schema.batch_id)
    after = truncates_after(replica, replace(schema, truncates=new)) != 0
    after &= bool(new) & ~deleted_by(replica, schema.truncates, schema) & _are_of_source(replica, schema)
    return pa.array(after)


def _are_of_source(replica: pa.Table, schema: TableSchema) -> np.ndarray:
    """Rows of the batch's source; all, where the table has one."""
    if schema.spec.shard is None:
        return np.ones(replica.num_rows, dtype=bool)
    return np.asarray(pc.equal(replica.column(SHARD_COLUMN), schema.spec.shard))


def to_place(schema: TableSchema) -> list[str]:
    """Columns of the replica that `after_truncates` needs."""
    return list(dict.fromkeys([*schema.forcing, *needed(schema)]))


def _by_truncates(replica: pa.Table, at: np.ndarray, schema: TableSchema) -> np.ndarray:
    """Rows that a truncate has marked: no later one concerns them."""
    return deleted_by(replica, schema.truncates, schema) & (at >= 0)


def by_earlier_truncates(net: pa.Table, schema: TableSchema) -> np.ndarray:
    """Net changes that are deletes of truncates of earlier batches: all that the batch has of their keys is late."""
    return deleted_by(net, [one for one in schema.truncates if one.batch_id != schema.batch_id], schema)
