"""Data files of a Delta table, and files of its change data feed: read, and written in the folders of partitions."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_rs import log_commits
from spark_jobs.engines.delta_rs.deletion_vectors import rows_of, written
from spark_jobs.engines.delta_rs.log_commits import Action
from spark_jobs.engines.delta_rs.snapshots import DataFile
from spark_jobs.engines.delta_rs.statistics import file_statistics, statistics
from spark_jobs.engines.skipping import ColumnPath
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.change_feed import row_changes
from spark_jobs.rules.codes import ascending
from spark_jobs.rules.partition_values import folder, split, with_values

_CHANGE_DATA = "_change_data/"
"""Folder of change data files in Delta's protocol."""
_SAMPLE, _SMALL, _DIFFERENT = 1_000, 20_000, 0.95
"""Rows that are looked at, most rows of a small file, and the share of different values that needs no dictionary."""
_PLAIN = re.compile(r"[A-Za-z0-9_.=/-]*")


def read_file(storage: Storage, table: str, file: DataFile, schema: pa.Schema) -> pa.Table:
    """Rows of a data file in the columns and types of a schema."""
    stored = pa.schema([field for field in schema if field.name not in file.values])
    path = join(table, file.path)
    if "://" in path:
        with storage.open_input(path) as stream:
            rows = _rows_of(stream, stored)
    else:
        rows = _rows_of(path, stored)
    if file.vector is not None:
        rows = rows.take(pa.array(np.delete(np.arange(rows.num_rows), rows_of(storage, table, file.vector))))
    return of_file(rows, file, schema)


def of_file(rows: pa.Table, file: DataFile, schema: pa.Schema) -> pa.Table:
    """Rows of a data file in the columns and types of a schema; those of partitions have their value in the log."""
    stored = pa.schema([field for field in schema if field.name not in file.values])
    rows = by_name(rows, stored)
    return with_values(rows, file.values, schema) if file.values else rows


def _rows_of(source: Any, schema: pa.Schema) -> pa.Table:
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    there = set(file.schema_arrow.names)
    return by_name(file.read([n for n in schema.names if n in there], use_threads=False), schema)


def without(indexed: Sequence[ColumnPath], partition_by: Sequence[str]) -> tuple[ColumnPath, ...]:
    """Indexed columns that data files hold: values of partition columns are in the log."""
    return tuple(path for path in indexed if path[0] not in partition_by)


@dataclass(frozen=True)
class FileWriter:
    """Writes the data files of one commit.

    Attributes:
        path: of the table.
        partition_by: partition columns after the commit.
        cluster_by: columns that the rows of each file are ordered by.
        now: milliseconds since 1970.
    """

    storage: Storage
    path: str
    partition_by: tuple[str, ...]
    cluster_by: tuple[str, ...]
    now: int

    def data(self, rows: pa.Table, indexed: Sequence[ColumnPath], *, data_change: bool) -> list[Action]:
        """Data files of rows of the table, one for each partition."""
        made: list[Action] = []
        indexed = without(indexed, self.partition_by)
        for partition, part in split(self._ordered(rows), self.partition_by):
            path, size = self._write(folder(partition), part)
            found = statistics(part, indexed)
            made.append(log_commits.add(path, size, partition, now=self.now, data_change=data_change, statistics=found))
        return made

    def _ordered(self, rows: pa.Table) -> pa.Table:
        names = [name for name in self.cluster_by if name in rows.column_names]
        return rows.take(ascending(rows, names)) if names else rows

    def feed(self, before: pa.Table, after: pa.Table, keys: Sequence[str]) -> tuple[list[Action], bool]:
        """Files of the change data feed, and whether any row differs.

        If files are only added or only removed, readers derive the changes from them. `deltalake` 1.6 searches change
        data files by escaped names, so partitions with special characters always get change data files.
        """
        differing = row_changes(before, after, keys)
        parts = list(split(differing, self.partition_by)) if differing.num_rows else []
        escaped = not all(_PLAIN.fullmatch(folder(partition)) for partition, _ in parts)
        made: list[Action] = []
        for partition, part in parts if escaped or (before.num_rows and after.num_rows) else ():
            path, size = self._write(_CHANGE_DATA, part)
            made.append(log_commits.cdc(path, size, partition))
        return made, differing.num_rows > 0

    def removal(self, file: DataFile, *, data_change: bool) -> Action:
        return log_commits.remove(
            file.stored_path, file.size, file.partition, now=self.now, data_change=data_change, vector=file.vector
        )

    def deleted(self, changed: Sequence[tuple[DataFile, np.ndarray]]) -> list[Action]:
        """Files without some of their rows: each is removed, and added again with a vector of its deleted rows.

        Args:
            changed: files with the numbers of newly deleted rows; the bounds of what is left are no longer tight.
        """
        every = [(file, self._with_stored(file, rows)) for file, rows in changed]
        left = [(file, rows) for file, rows in every if len(rows) < self._rows_in(file)]
        vectors = written(self.storage, self.path, [rows for _, rows in left])
        made = [self.removal(file, data_change=True) for file, _ in every]
        for (file, _), vector in zip(left, vectors, strict=True):
            add = dict(file.add or {})
            figures = {"numRecords": self._rows_in(file), **json.loads(add.get("stats") or "{}"), "tightBounds": False}
            text = json.dumps(figures, ensure_ascii=False, separators=(",", ":"))
            made.append({"add": {**add, "dataChange": True, "stats": text, "deletionVector": vector}})
        return made

    def _rows_in(self, file: DataFile) -> int:
        """Rows of a file, deleted ones among them: by its statistics, else by its footer."""
        known = json.loads((file.add or {}).get("stats") or "{}").get("numRecords")
        if known is not None:
            return int(known)
        with self.storage.open_input(join(self.path, file.path)) as stream:
            return int(pq.read_metadata(stream).num_rows)

    def _with_stored(self, file: DataFile, rows: np.ndarray) -> np.ndarray:
        known = np.zeros(0, np.int64) if file.vector is None else rows_of(self.storage, self.path, file.vector)
        return np.union1d(known, rows)

    def _write(self, below: str, rows: pa.Table) -> tuple[str, int]:
        """The new file's path as written in the log, and its size in bytes."""
        name = f"{below}part-00000-{uuid4()}-c000.snappy.parquet"
        target = join(self.path, name)
        if "://" in target:
            sink = io.BytesIO()
            _save(rows, sink)
            self.storage.write(target, sink.getvalue())
            return log_commits.log_path(name), sink.tell()
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        _save(rows, target)
        return log_commits.log_path(name), Path(target).stat().st_size


def _save(rows: pa.Table, target: Any) -> None:
    pq.write_table(
        rows,
        target,
        compression="snappy",
        coerce_timestamps="us",
        store_schema=False,
        write_statistics=file_statistics(rows),
        use_dictionary=_with_dictionary(rows),
    )


def _with_dictionary(rows: pa.Table) -> bool | list[str]:
    """Columns of which the file keeps a dictionary.

    In a small file, a dictionary of values that are nearly all different is larger than the values themselves, and
    costs time. A larger file gives such a dictionary up by itself.
    """
    if not _SAMPLE <= rows.num_rows <= _SMALL:
        return True
    first = rows.slice(0, _SAMPLE)
    return [
        leaf
        for field, values in zip(rows.schema, first.columns, strict=True)
        if pt.is_nested(field.type) or pc.count_distinct(values).as_py() < _DIFFERENT * _SAMPLE
        for leaf in _leaves(field.name, field.type)
    ]


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """Paths of the columns of a Parquet file that hold a value."""
    if pt.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pt.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pt.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path
