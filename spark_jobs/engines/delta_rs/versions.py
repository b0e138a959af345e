"""The history table: derives the versions of touched keys again, and writes only differences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.outputs import Output, output_of
from spark_jobs.engines.delta_rs.row_search import FindRows, find, search
from spark_jobs.engines.key_ranges import Source, by_key
from spark_jobs.engines.transactions import HISTORY
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.codes import table_codes
from spark_jobs.rules.history import differences, versions
from spark_jobs.rules.merge import ACTION, AT
from spark_jobs.rules.order import as_events, events, for_both_keys

_CHANGES, _STORED = "changes", "stored"
"""Names of tables for rules."""


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
    if touched is None:
        _update_all(batch_context, tuple(generation_low_watermarks), swept)
        return
    snapshot = batch_context.tables.existing(path)
    happened = events(changes_of_keys(batch_context, touched), table_schema)
    happened = happened.take(pa.array(with_keys(happened, touched, table_schema)))
    derived = versions(happened, table_schema, generation_low_watermarks, swept)
    found = find(batch_context.tables, snapshot, touched, table_schema.keys)
    mine = with_keys(found.rows, touched, table_schema)
    missing, extra = differences(derived, found.rows.take(pa.array(mine)), table_schema)
    gone = mine[extra]
    deleted = pa.table({ACTION: pa.repeat("delete", len(gone)), AT: pa.array(gone, pa.int64())})
    fresh = by_name(missing, snapshot.schema.arrow).append_column(ACTION, pa.repeat("insert", missing.num_rows))
    outcome = pa.concat_tables([fresh, deleted], promote_options="default")
    batch_context.put(snapshot, HISTORY, {}, found, outcome)


@dataclass(frozen=True)
class _Versions:
    """The versions of all keys; sent to tasks."""

    schema: TableSchema
    generation_low_watermarks: tuple[str | None, ...]
    swept: int
    output: Output

    def prepare(self, rows: pa.Table) -> pa.Table:
        return for_both_keys(by_name(rows, change_schema(self.schema)), self.schema)

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        happened, stored = as_events(rows[_CHANGES], self.schema), rows[_STORED]
        derived = versions(happened, self.schema, self.generation_low_watermarks, self.swept)
        missing, extra = differences(derived, stored, self.schema)
        gone = stored.take(pa.array(extra))
        return json.dumps(self.output.report(storage, missing, gone, gone)).encode()


def _update_all(batch_context: BatchContext, generation_low_watermarks: tuple[str | None, ...], swept: int) -> None:
    tables, layout, schema = batch_context.tables, batch_context.layout, batch_context.table_schema
    output = output_of(tables, layout.history, schema.keys, batch_context.transaction)
    rule = _Versions(schema, generation_low_watermarks, swept, output)
    sources = {
        _CHANGES: Source.of(tables.existing(layout.changes), rule.prepare),
        _STORED: Source.of(tables.existing(layout.history), lambda rows: rows),
    }
    kinds = change_schema(schema)
    keys = pa.schema([kinds.field(name) for name in schema.keys])
    reports = [json.loads(report) for report in by_key(tables, sources, keys, rule)]
    batch_context.put_written(layout.history, HISTORY, reports, sources[_STORED], {})


def with_keys(rows: pa.Table, keys: pa.Table, table_schema: TableSchema) -> np.ndarray:
    """Numbers of the rows that have one of these keys."""
    mine, wanted = table_codes((rows, keys), table_schema.keys)
    return np.flatnonzero(np.isin(mine, wanted))
