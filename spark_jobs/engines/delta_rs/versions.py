"""The history table: derives the versions of touched keys again, and writes only differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.row_search import FindRows, find, search
from spark_jobs.engines.transactions import HISTORY
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.codes import table_codes
from spark_jobs.rules.history import differences, versions
from spark_jobs.rules.merge import ACTION, AT
from spark_jobs.rules.order import events


def changes_of_keys(batch_context: BatchContext, keys: pa.Table) -> pa.Table:
    """All changes of these keys, by new key or by the before image's old key; possibly also of others."""
    snapshot, table_schema = batch_context.tables.existing(batch_context.layout.changes), batch_context.table_schema
    work = FindRows(
        table=snapshot.path, keys=keys.select(table_schema.keys), schema=snapshot.schema.arrow,
        moved=table_schema if table_schema.before_of_key else None,
    )  # fmt: skip
    return by_name(search(batch_context.tables, work, snapshot.files).rows, change_schema(table_schema))


def update_history(
    batch_context: BatchContext, touched: pa.Table | None, generation_low_watermarks: Sequence[str | None], swept: int
) -> None:
    """Make the history of `touched` keys (null: of all) equal to the versions derived from their changes.

    Args:
        swept: rows of generations before this one have vanished.
    """
    path, table_schema = batch_context.layout.history, batch_context.table_schema
    if batch_context.has_made(path, HISTORY):
        return
    snapshot = batch_context.tables.existing(path)
    if touched is None:
        rows = by_name(batch_context.tables.read(batch_context.layout.changes), change_schema(table_schema))
        happened = events(rows, table_schema)
    else:
        happened = events(changes_of_keys(batch_context, touched), table_schema)
        happened = happened.take(pa.array(with_keys(happened, touched, table_schema)))
    derived = versions(happened, table_schema, generation_low_watermarks, swept)
    found = find(batch_context.tables, snapshot, touched, table_schema.keys)
    mine = np.arange(found.rows.num_rows) if touched is None else with_keys(found.rows, touched, table_schema)
    missing, extra = differences(derived, found.rows.take(pa.array(mine)), table_schema)
    gone = mine[extra]
    deleted = pa.table({ACTION: pa.repeat("delete", len(gone)), AT: pa.array(gone, pa.int64())})
    fresh = by_name(missing, snapshot.schema.arrow).append_column(ACTION, pa.repeat("insert", missing.num_rows))
    outcome = pa.concat_tables([fresh, deleted], promote_options="default")
    batch_context.put(snapshot, HISTORY, {}, found, outcome)


def with_keys(rows: pa.Table, keys: pa.Table, table_schema: TableSchema) -> np.ndarray:
    """Numbers of the rows that have one of these keys."""
    mine, wanted = table_codes((rows, keys), table_schema.keys)
    return np.flatnonzero(np.isin(mine, wanted))
