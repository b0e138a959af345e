"""Context of a batch: its tables, plan and schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.engines.delta_rs.tables import DataFile, Tables, TableSnapshot, Write
from spark_jobs.engines.transactions import version_of
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.codes import comparable
from spark_jobs.rules.merge import AT
from spark_jobs.rules.outcome import replaced


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """Context of all steps of one batch of one table."""

    tables: Tables
    layout: Layout
    tier: TierSpec
    plan: BatchPlan
    table_schema: TableSchema
    resumed: bool = True

    @property
    def transaction(self) -> int:
        """The transaction version of the batch's steps."""
        return version_of(self.plan)

    def has_made(self, path: str, app: str) -> bool:
        """Whether a step of this batch is in the table; not checked for a batch that is new in this run."""
        return self.resumed and self.tables.last_transaction(path, app) >= self.transaction

    def metrics(self, path: str, app: str) -> dict[str, int]:
        """Metrics of the commit of a step of this batch; empty where there is none."""
        return self.tables.metrics(path, app, self.transaction)

    def commit(
        self, path: str, app: str, added: list[pa.Table], removed: Sequence[DataFile] = (), **metrics: int
    ) -> None:
        """Commit a step of this batch, once; see `Write`."""
        write = Write(
            app=app, version=self.transaction, added=added, removed=removed, metrics=metrics, once=self.resumed,
            keys=self.table_schema.keys,
        )  # fmt: skip
        self.tables.commit(path, write)


@dataclass(frozen=True, kw_only=True)
class KeyMatches:
    """Rows of a table that may have given keys.

    Attributes:
        rows: all columns of the table.
        at: for each row, the number of its file in `files` and of the row in the file.
        files: the files that were read, with all their rows in `whole`.
    """

    rows: pa.Table
    at: pa.Table
    files: tuple[DataFile, ...] = ()
    whole: Mapping[int, pa.Table] = field(default_factory=dict)

    def rewritten(self, outcome: pa.Table, schema: pa.Schema) -> tuple[list[pa.Table], list[DataFile]]:
        """New contents of the files that hold a changed row, and these files.

        Args:
            outcome: see `merge.decided`; columns that only the table has keep their value.
        """
        touched = outcome.filter(outcome.column(AT).is_valid())
        if not touched.num_rows:
            return [], []
        places = self.at.take(touched.column(AT).combine_chunks())
        numbers = places.column("file").to_numpy()
        added, removed = [], []
        for number in sorted(set(numbers.tolist())):
            mine = pa.array(np.flatnonzero(numbers == number))
            at = places.column("row").take(mine).to_numpy()
            added.append(replaced(self.whole[number], at, touched.take(mine), schema))
            removed.append(self.files[number])
        return added, removed


def find(tables: Tables, snapshot: TableSnapshot, keys: pa.Table | None, names: tuple[str, ...]) -> KeyMatches:
    """Find rows whose key columns each have a value of `keys`: a superset of the matching rows; null: all rows."""
    files = [f for f in snapshot.files if keys is None or _may_hold(f, keys, names)]
    parts, numbers, places, whole = [], [], [], {}
    for number, file in enumerate(files):
        rows = tables.read_files(snapshot, [file])
        whole[number] = rows
        at = _numbers(rows) if keys is None else matching(rows, keys, names)
        parts.append(rows if keys is None else rows.take(at))
        numbers.append(pa.repeat(pa.scalar(number, pa.int32()), len(at)))
        places.append(at)
    rows = pa.concat_tables(parts) if parts else snapshot.schema.arrow.empty_table()
    at = pa.table({"file": pa.chunked_array(numbers, pa.int32()), "row": pa.chunked_array(places, pa.int64())})
    return KeyMatches(rows=rows, at=at, files=tuple(files), whole=whole)


def matching(rows: pa.Table, keys: pa.Table, names: tuple[str, ...]) -> pa.Array:
    """Indexes of the rows whose key columns each have a value of `keys`."""
    hit: pa.Array | None = None
    for name in names:
        wanted = keys.column(name)
        if pt.is_nested(wanted.type):
            continue
        mine = pc.is_in(comparable(rows.column(name)), value_set=comparable(wanted))
        hit = mine if hit is None else pc.and_(hit, mine)
    return _numbers(rows) if hit is None else pc.indices_nonzero(hit).cast(pa.int64())


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(np.arange(rows.num_rows), pa.int64())


def _is_wanted(value: Any, wanted: pa.ChunkedArray) -> bool:
    one = pa.array([value], wanted.type)
    return bool(pc.is_in(comparable(one), value_set=comparable(wanted))[0].as_py())


def _may_hold(file: DataFile, keys: pa.Table, names: tuple[str, ...]) -> bool:
    """Checks partition values, and statistics of the first key column where they are comparable."""
    if not all(_is_wanted(value, keys.column(name)) for name, value in file.values.items() if name in names):
        return False
    low, high = file.low.get(names[0]), file.high.get(names[0])
    kind = keys.schema.field(names[0]).type
    if low is None or high is None or not (pt.is_integer(kind) or pt.is_string(kind)):
        return True
    ends = pc.min_max(keys.column(names[0]))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is None or not isinstance(low, type(first)):
        return first is not None
    return bool(low <= last and first <= high)
