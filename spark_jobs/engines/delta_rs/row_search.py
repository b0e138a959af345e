"""Rows of a table by key: in files that are read whole, or by their key columns in tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_rs.data_files import read_groups
from spark_jobs.engines.delta_rs.deletion_vectors import rows_of
from spark_jobs.engines.delta_rs.tables import DataFile, Tables, TableSnapshot
from spark_jobs.engines.places import stream_of, stream_rows
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.codes import comparable
from spark_jobs.rules.merge import ACTION, AT
from spark_jobs.rules.order import old_keys
from spark_jobs.rules.outcome import replaced

AT_FILE, AT_ROW = f"{GDDL}__file", f"{GDDL}__row"
Keep = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""Mask of rows; null: not wanted. Sent to tasks."""


@dataclass(frozen=True, kw_only=True)
class KeyMatches:
    """Rows of a table that may have given keys.

    Attributes:
        rows: columns of the table.
        at: for each row, the number of its file in `files` and of the row in the file.
        files: the files that were read.
        whole: all rows of these files; null: they were not read whole, and changed rows leave their files.
    """

    rows: pa.Table
    at: pa.Table
    files: tuple[DataFile, ...] = ()
    whole: Mapping[int, pa.Table] | None = None

    def deleted(self, outcome: pa.Table) -> list[tuple[DataFile, np.ndarray]]:
        """Files with the numbers of the rows that an outcome changes or deletes."""
        places = self.at.take(outcome.column(AT).drop_null().combine_chunks())
        numbers, rows = (places.column(name).to_numpy() for name in ("file", "row"))
        return [(self.files[number], np.sort(rows[numbers == number])) for number in np.unique(numbers)]

    def touched(self, outcome: pa.Table) -> pa.Table:
        """The stored rows that an outcome changes or deletes."""
        return self.rows.take(outcome.column(AT).drop_null().combine_chunks())

    def written(self, outcome: pa.Table, schema: pa.Schema) -> pa.Table:
        """Rows that an outcome inserts, or writes anew; columns that only the table has keep their value."""
        added = outcome.filter(pc.is_in(outcome.column(ACTION), pa.array(["insert", "update"])))
        before = added.column(AT).combine_chunks()
        for name in schema.names:
            if name not in added.column_names:
                added = added.append_column(name, self.rows.column(name).take(before))
        return by_name(added, schema)

    def rewritten(self, outcome: pa.Table, schema: pa.Schema) -> tuple[list[pa.Table], list[DataFile]]:
        """New contents of the files that hold a changed row, and these files.

        Args:
            outcome: see `merge.decided`; columns that only the table has keep their value.
        """
        touched = outcome.filter(outcome.column(AT).is_valid())
        if not touched.num_rows or self.whole is None:
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


@dataclass(frozen=True, kw_only=True)
class FindRows:
    """Finds rows of a data file, those that may have given keys; sent to tasks.

    Attributes:
        keys: a column for each of the key; null: rows of any key.
        schema: of the columns to return, those of the key among them.
        moved: of a change table with before images: changes that had one of the keys before are found, too; null: by
            the key columns alone.
        keep: applied to the rows found; null: all are kept.
    """

    table: str
    keys: pa.Table | None
    schema: pa.Schema
    moved: TableSchema | None = None
    keep: Keep | None = None

    @property
    def empty(self) -> pa.Table:
        """No rows, in the columns that are returned."""
        return self.schema.append(pa.field(AT_FILE, pa.int32())).append(pa.field(AT_ROW, pa.int64())).empty_table()

    def __call__(self, storage: Storage, part: tuple[int, DataFile]) -> bytes:
        """
        Returns:
            an Arrow stream of the rows with `AT_FILE` and `AT_ROW`: number of the file, and of the row in it.
        """
        number, file = part
        parts = [self.empty]
        gone = None if file.vector is None else rows_of(storage, self.table, file.vector)
        with storage.open_input(join(self.table, file.path)) as stream:
            source, start = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us"), 0
            for group in range(source.num_row_groups):
                count = source.metadata.row_group(group).num_rows
                left = np.arange(count) if gone is None else np.setdiff1d(np.arange(count), gone - start)
                hits = left if self.keys is None else np.intersect1d(left, self._hits(source, group, file, self.keys))
                if len(hits):
                    parts.append(self._found(source, group, file, hits, (number, start)))
                start += count
        return stream_of(pa.concat_tables(parts))

    def file_of(self, part: tuple[int, DataFile]) -> str:
        return join(self.table, part[1].path)

    def _hits(self, source: pq.ParquetFile, group: int, file: DataFile, keys: pa.Table) -> np.ndarray:
        names = tuple(keys.column_names)
        wanted = self.schema if self.moved else pa.schema([self.schema.field(name) for name in names])
        rows = read_groups(source, [group], file, wanted)
        hits: np.ndarray = matching(rows, keys, names).to_numpy()
        if self.moved is None:
            return hits
        old = pa.table(old_keys(rows, self.moved))
        return np.union1d(hits, matching(old, keys, names).to_numpy())

    def _found(
        self, source: pq.ParquetFile, group: int, file: DataFile, hits: np.ndarray, at: tuple[int, int]
    ) -> pa.Table:
        number, start = at
        rows = read_groups(source, [group], file, self.schema).take(pa.array(hits))
        rows = rows.append_column(AT_FILE, pa.repeat(pa.scalar(number, pa.int32()), len(hits)))
        rows = rows.append_column(AT_ROW, pa.array(hits + start, pa.int64()))
        return rows if self.keep is None else rows.filter(self.keep(rows))


def search(tables: Tables, work: FindRows, files: Sequence[DataFile]) -> KeyMatches:
    """Rows of these files by the key columns, where files of this size are worked on."""
    place = tables.place_for(sum(file.size for file in files))
    found = [stream_rows(data) for data in place.run(work, list(enumerate(files)))]
    rows = pa.concat_tables([work.empty, *found])
    at = rows.select([AT_FILE, AT_ROW]).rename_columns(["file", "row"])
    return KeyMatches(rows=rows.drop_columns([AT_FILE, AT_ROW]), at=at, files=tuple(files))


def find(
    tables: Tables, snapshot: TableSnapshot, keys: pa.Table | None, names: tuple[str, ...],
    columns: Sequence[str] | None = None,
) -> KeyMatches:  # fmt: skip
    """Find rows whose key columns each have a value of `keys`: a superset of the matching rows; null: all rows.

    Few files are read whole, so that they can be written again with few others; of a table with deletion vectors, and
    of files that tasks work on, only the key columns are, and `columns` of the rows found (null: all).
    """
    files = [f for f in snapshot.files if keys is None or _may_hold(f, keys, names)]
    if keys is None or not (snapshot.writes_vectors or tables.is_for_tasks(sum(f.size for f in files))):
        return _find_whole(tables, snapshot, files, keys, names)
    wanted = snapshot.schema.names if columns is None else dict.fromkeys((*names, *columns))
    schema = pa.schema([snapshot.schema.arrow.field(name) for name in wanted])
    return search(tables, FindRows(table=snapshot.path, keys=keys.select(names), schema=schema), files)


def _find_whole(
    tables: Tables, snapshot: TableSnapshot, files: Sequence[DataFile], keys: pa.Table | None, names: tuple[str, ...]
) -> KeyMatches:
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
