"""Truncates of the source: rows of the replica that they delete, and those that a table keeps.

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

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.planned_batch import BatchPlan, Truncate, number_of
from spark_jobs.plan.sequence import sort_key
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import all_true, with_values
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.order import deleted_by, late_truncates, truncates_after, truncates_gddl
from spark_jobs.rules.positions import position_beside, position_in_refresh
from spark_jobs.rules.sweep import alive, marks, needed
from spark_jobs.rules.texts import json_writer, utc_text

MOST_KEPT = 100
"""Truncates that the ledger keeps of a table without a history, which only the newest concerns."""

Place = tuple[int, tuple[tuple[int, Any], ...]]
"""Sorts truncates as the order of changes does."""


def place_of(truncate: Truncate) -> Place:
    """Generation and sequence."""
    return truncate.generation, sort_key(truncate.sequence)


def kept_truncates(
    known: Sequence[Truncate], delivered: Iterable[Truncate], *, history: bool = True
) -> tuple[Truncate, ...]:
    """Truncates of a table after a batch, in the order of changes; of deliveries of one the first is kept.

    One before a known one changes nothing in the replica (`order.late_truncates`); cuts of the time between need it.
    """
    delivered = list(delivered)
    every = {(one.generation, one.sequence): one for one in (*reversed(delivered), *known)}
    in_order = tuple(sorted(every.values(), key=place_of))
    return in_order if history else in_order[-MOST_KEPT:]


def unknown_truncates(known: Sequence[Truncate], delivered: Iterable[Truncate]) -> tuple[Truncate, ...]:
    """Truncates that delete more than the known ones do, in the order of changes."""
    latest = place_of(known[-1]) if known else None
    return tuple(sorted((one for one in delivered if latest is None or place_of(one) > latest), key=place_of))


def restamped(truncates: Iterable[Truncate], plan: BatchPlan, stored: Iterable[RecordedFile]) -> tuple[Truncate, ...]:
    """Truncates that bounded batches of a refresh have read, stamped as the changes among which they stand.

    Args:
        plan: of the refresh, as of which the others are stamped, see `fold.restamped`.
        stored: files whose changes stay as the change table has them.
    """
    files = {(file.path, file.generation): file for file in sorted(stored, key=lambda f: (f.read_by, -f.position))}
    return tuple(_restamped(one, plan, files.get((one.source_file, one.generation))) for one in truncates)


def _restamped(one: Truncate, plan: BatchPlan, file: RecordedFile | None) -> Truncate:
    if file is None:
        position = position_in_refresh(number_of(one.batch_id), one.position)
        return replace(one, position=position, batch_id=plan.batch_id, applied_at=plan.planned_at)
    position = position_beside(file.read_by, file.position, one.position)
    return replace(one, position=position, batch_id=file.read_by, applied_at=file.applied_at)


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
    facts = group.rows.filter(group.truncating).column(GDDL).to_pylist()
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
    late = set(late_truncates(schema.truncates))
    schema = replace(schema, truncates=tuple(one for one in schema.truncates if one not in late))
    at = truncates_after(replica, schema)
    eligible = _are_of_source(replica, schema)
    if marks(schema):
        eligible &= ~deleted_by(replica, schema.truncates, schema)  # no later truncate concerns these
    truncated_rows = (at >= 0) & eligible
    rows = replica.filter(truncated_rows)
    live = int(pc.sum(alive(rows.column(GDDL))).as_py() or 0)
    if not marks(schema):
        return Truncated(rows=rows, instead=rows.slice(0, 0), live=live)
    deletes = truncates_gddl(rows.schema.field(GDDL).type, schema).take(at[truncated_rows])
    return Truncated(rows=rows, instead=with_values(rows, {GDDL: deletes}), live=live)


def after_truncates(replica: pa.Table, schema: TableSchema) -> np.ndarray:
    """Mask of rows after a truncate of the batch; of a table with several sources, those of the batch's.

    Args:
        replica: without rows before it; columns of `to_place`.
    """
    new = tuple(one for one in schema.truncates if one.batch_id == schema.batch_id)
    after: np.ndarray = truncates_after(replica, replace(schema, truncates=new)) != 0
    after &= bool(new) & ~deleted_by(replica, schema.truncates, schema) & _are_of_source(replica, schema)
    return after


def _are_of_source(replica: pa.Table, schema: TableSchema) -> np.ndarray:
    """Rows of the batch's source; all, where the table has one."""
    if schema.spec.shard is None:
        return all_true(replica.num_rows)
    return np.asarray(pc.equal(replica.column(SHARD_COLUMN), schema.spec.shard))


def to_place(schema: TableSchema) -> list[str]:
    """Columns of the replica that `after_truncates` needs."""
    return list(dict.fromkeys([*schema.forcing, *needed(schema)]))
