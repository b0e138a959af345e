"""Where a batch works: its tables, plan and shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.engines.delta_rs.tables import DataFile, Tables, TableSnapshot, Write
from spark_jobs.engines.transactions import version_of
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.table_schema import TableSchema


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """What every step of one batch of one table needs."""

    tables: Tables
    layout: Layout
    tier: TierSpec
    plan: BatchPlan
    table_schema: TableSchema
    begun: bool = True

    @property
    def transaction(self) -> int:
        """The version under which each step of the batch is written once."""
        return version_of(self.plan)

    def has_made(self, path: str, app: str) -> bool:
        """Whether a step of this batch is in the table; what is new to this run can't be, and asking costs time."""
        return self.begun and self.tables.last_transaction(path, app) >= self.transaction

    def write(
        self,
        app: str,
        added: list[pa.Table],
        removed: list[DataFile] | None = None,
        metrics: Mapping[str, int] | None = None,
    ) -> Write:
        """A commit of this batch's step."""
        return Write(
            app=app, version=self.transaction, added=added, removed=removed or (), metrics=metrics or {},
            once=self.begun,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class KeyMatches:
    """Rows of a table that may have some keys.

    Attributes:
        rows: all columns of the table.
        at: for each row, the number of its file in `files` and of the row in the file.
        files: those that were looked into, with all their rows.
    """

    rows: pa.Table
    at: pa.Table
    files: tuple[DataFile, ...] = ()
    whole: Mapping[int, pa.Table] = field(default_factory=dict)


def find(tables: Tables, snapshot: TableSnapshot, keys: pa.Table, names: tuple[str, ...]) -> KeyMatches:
    """Look for rows whose key columns have values of `keys`, each column by itself: some more rows may come along."""
    files = [f for f in snapshot.files if _may_hold(f, keys, names)]
    parts, numbers, places, whole = [], [], [], {}
    for number, file in enumerate(files):
        rows = tables.read_files(snapshot, [file])
        whole[number] = rows
        at = matching(rows, keys, names)
        parts.append(rows.take(at))
        numbers.append(pa.repeat(pa.scalar(number, pa.int32()), len(at)))
        places.append(at)
    rows = pa.concat_tables(parts) if parts else snapshot.schema.arrow.empty_table()
    at = pa.table({"file": pa.chunked_array(numbers, pa.int32()), "row": pa.chunked_array(places, pa.int64())})
    return KeyMatches(rows=rows, at=at, files=tuple(files), whole=whole)


def matching(rows: pa.Table, keys: pa.Table, names: tuple[str, ...]) -> pa.Array:
    """Numbers of the rows whose key columns have values of `keys`, each column by itself."""
    hit: pa.ChunkedArray | None = None
    for name in names:
        wanted = keys.column(name)
        if pt.is_nested(wanted.type):
            continue
        mine = pc.is_in(rows.column(name), value_set=wanted.combine_chunks())
        hit = mine if hit is None else pc.and_(hit, mine)
    if hit is None:
        return pa.array(range(rows.num_rows), pa.int64())
    return pc.indices_nonzero(hit).cast(pa.int64())


def _may_hold(file: DataFile, keys: pa.Table, names: tuple[str, ...]) -> bool:
    """By the statistics of the first key column, where these can be compared."""
    low, high = file.low.get(names[0]), file.high.get(names[0])
    kind = keys.schema.field(names[0]).type
    if low is None or high is None or not (pt.is_integer(kind) or pt.is_string(kind)):
        return True
    ends = pc.min_max(keys.column(names[0]))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is None or not isinstance(low, type(first)):
        return first is not None
    return bool(low <= last and first <= high)
