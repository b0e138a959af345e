"""Rows of the replica that are older than a change of their key in quarantine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import QUARANTINE_STALE
from airflow_gddl.contract.result import RunWarning, Warnings
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import all_true, by_name, compare_rows, is_true, sortable, table_codes
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.order import gddl_fields, old_keys, sample_keys
from spark_jobs.rules.sweep import unmarked

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
    whole = all_true(both.num_rows)
    for key in schema.keys:
        whole &= np.asarray(both.column(key).is_valid())
    return both.filter(whole) if whole.any() else None


def stale_keys(quarantined: pa.Table, replica: pa.Table, schema: TableSchema) -> pa.Table:
    """Keys of live rows of the replica to which a quarantined change would apply, each once.

    Args:
        quarantined: see `suspects`.
        replica: rows with these keys, perhaps of others too, with `_gddl`.
    """
    stored = unmarked(replica)
    stored = by_name(
        stored, pa.schema([*(quarantined.schema.field(key) for key in schema.keys), stored.schema.field(GDDL)])
    )
    mine, theirs = table_codes((quarantined, stored), schema.keys)
    at = pc.index_in(mine, value_set=pa.array(theirs))
    rows, held = quarantined.filter(at.is_valid()), stored.take(at.drop_null())
    return rows.filter(_are_later(rows, held)).select(schema.keys)


def _are_later(changes: pa.Table, rows: pa.Table) -> np.ndarray:
    """Whether each change is of a later generation or sequence than the row; a change without a sequence may be."""
    ours, theirs = gddl_fields(changes), gddl_fields(rows)
    sides = ([f["generation"], *sortable(f["sequence"].cast(theirs["sequence"].type))] for f in (ours, theirs))
    compared = compare_rows(*sides)
    unordered = np.asarray(ours["sequence"].is_null()) & ~is_true(pc.equal(ours["op"], "R"))
    of_now = np.asarray(pc.greater_equal(ours["generation"], theirs["generation"]))
    later: np.ndarray = (compared > 0) | (unordered & of_now)
    return later


def stale_warning(keys: pa.Table, schema: TableSchema) -> Warnings:
    """Warning about replica rows that are older than quarantined changes (`QUARANTINE_STALE`); empty: there are none.

    Args:
        keys: see `stale_keys`.
    """
    sample = sample_keys(keys, schema) if keys.num_rows else ()
    count = len(np.unique(table_codes([keys], schema.keys)[0])) if keys.num_rows else 0
    message = (
        "rows of the replica are older than changes of their keys that are in quarantine; correct the cause and run "
        "`gddl errors replay`, or give the changes up: `gddl errors list` has the commands"
    )
    return (RunWarning(code=QUARANTINE_STALE, message=message, count=count, sample=sample),) if count else ()
