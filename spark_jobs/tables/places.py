"""Places where parts of a batch are worked on: this process, or Spark's tasks (`many_tasks.SparkTasks`).

Tasks of one machine exchange rows by files: a shuffle without the JVM, which would copy and sort them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.stores import Storage
from airflow_gddl.stores.readers import translated
from spark_jobs.rules.arrays import flat


class Work(Protocol):
    """A function of one part, which may be sent to other processes."""

    def __call__(self, storage: Storage, part: Any, /) -> Any:
        """Work on one part.

        Returns:
            a report: values that JSON has and tables of few rows in it, or a table. A task hands over tuples as lists.
        """
        ...

    def file_of(self, part: Any, /) -> str:
        """Path of the file that a part is of, for messages."""
        ...


class KeyWork(Protocol):
    """A function of all rows of a range of keys, which may be sent to other processes."""

    def split(self, storage: Storage, part: Any, /) -> Iterator[tuple[int, str, pa.Table]]:
        """Rows of a part: number of the range that they belong to, name of their table, rows."""
        ...

    def __call__(self, storage: Storage, rows: Mapping[str, Sequence[pa.Table]], /) -> Any:
        """Work on all rows of a range of keys; returns a report as `Work` does.

        Args:
            rows: of a range, by table; tables without rows may be left out.
        """
        ...

    def file_of(self, part: Any, /) -> str:
        """Path of the file that a part is of, for messages."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskBounds:
    """Bytes up to which a table over many tasks is worked on in the driver, and how the tasks divide the rest.

    Attributes:
        files: of data files that are worked on together: sending tasks would take longer.
        load: of the files of a first load, which are decoded in the driver: starting tasks would take longer.
        batch: of a batch's files, which are in the driver's memory together.
        key_range: of data files, whose rows are one range of keys.
        whole: of data files that are in memory together to be written again; of more, the keys alone are, and one file
            after the other is written again.
    """

    files: int = 16 * 1024**2
    load: int = 4 * 1024**2
    batch: int = 64 * 1024**2
    key_range: int = 16 * 1024**2
    whole: int = 32 * 1024**2


def usual_bounds(_table: str) -> TaskBounds:
    return TaskBounds()


class Place(Protocol):
    """Works on parts independent of each other, and on ranges of keys."""

    @property
    def slots(self) -> int:
        """Parts that are worked on at once."""
        ...

    def run(self, work: Work, parts: Sequence[Any]) -> list[Any]:
        """The report of each part, in any order."""
        ...

    def run_by_key(self, work: KeyWork, parts: Sequence[Any], ranges: int) -> list[Any]:
        """The report of each range that has rows, in any order.

        Args:
            ranges: their number.
        """
        ...

    def distinct(self, files: Sequence[str], columns: Sequence[str]) -> int:
        """Distinct values of columns in Parquet files; a greater number is possible where hashes are compared."""
        ...


@dataclass(frozen=True)
class InProcess:
    """One part after the other, so that one at a time is in memory; with threads, as many.

    Attributes:
        threads: for parts that mostly wait for the store, or for pyarrow.
        counted: bytes of columns whose distinct values are counted at a time, which takes about five times as many;
            the files are read once for so many.
    """

    storage: Storage
    threads: int = 1
    counted: int = 256 * 1024**2

    @property
    def slots(self) -> int:
        return 1

    def run(self, work: Work, parts: Sequence[Any]) -> list[Any]:
        if self.threads == 1 or len(parts) < 2:
            return [work(self.storage, part) for part in parts]
        with ThreadPoolExecutor(min(self.threads, len(parts))) as pool:
            return list(pool.map(lambda part: work(self.storage, part), parts))

    def run_by_key(self, work: KeyWork, parts: Sequence[Any], ranges: int) -> list[Any]:
        by_range: dict[int, dict[str, list[pa.Table]]] = {number: {} for number in range(ranges)}
        for part in parts:
            for number, table, rows in work.split(self.storage, part):
                by_range[number].setdefault(table, []).append(rows)
        return [work(self.storage, by_range.pop(number)) for number in range(ranges) if by_range[number]]

    def distinct(self, files: Sequence[str], columns: Sequence[str]) -> int:
        names = list(columns)
        size = sum(self._size(path, names) for path in files)
        shares = -(-size // self.counted) or 1
        return sum(self._distinct(files, names, share, shares) for share in range(shares))

    def _distinct(self, files: Sequence[str], names: list[str], share: int, shares: int) -> int:
        """Distinct values of one of the shares into which `_shares_of` divides the first column."""
        parts = self._columns(files, names)
        if shares > 1:
            parts = (rows.filter(pa.array(_shares_of(rows.column(0), shares) == share)) for rows in parts)
        rows = pa.concat_tables(parts)
        if len(names) == 1:
            return int(pc.count_distinct(rows.column(0), mode="all").as_py())
        return int(rows.group_by(names, use_threads=False).aggregate([]).num_rows)

    def _size(self, path: str, names: list[str]) -> int:
        """Bytes of columns of a file, not compressed."""
        with self.storage.open_input(path) as stream:
            footer = pq.read_metadata(stream)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        return sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.partition(".")[0] in names)

    def _columns(self, files: Sequence[str], names: list[str]) -> Iterator[pa.Table]:
        for path in files:
            with self.storage.open_input(path) as stream:
                yield pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").read(names, use_threads=False)


def _shares_of(values: pa.ChunkedArray, count: int) -> np.ndarray:
    """A number below `count` for each value, equal for equal ones; 0 for types other than whole numbers and text."""
    column = flat(values)
    if pt.is_integer(column.type):
        return np.asarray(pc.fill_null(column.cast(pa.int64()), 0)) % count
    if not (pt.is_string(column.type) or pt.is_binary(column.type)):
        return np.zeros(len(column), np.int64)
    ends = pc.binary_slice(pc.fill_null(column.cast(pa.binary()), b""), -2).dictionary_encode()
    shares = [int.from_bytes(end, "big") % count for end in ends.dictionary.to_pylist()]
    return np.array(shares, np.int64).take(np.asarray(ends.indices))


_ROWS, _STREAM_BEGINS = "arrow rows", b"\xff\xff\xff\xff"


def encoded(report: object) -> bytes:
    """A report as a task sends it: rows as an Arrow stream, all else as JSON, with streams as text in it."""
    if isinstance(report, pa.Table):
        return stream_of(report)
    return json.dumps(report, default=lambda rows: {_ROWS: b64encode(stream_of(rows)).decode()}).encode()


def decoded(data: bytes) -> Any:
    """The report of `encoded`; tuples are lists."""
    if data.startswith(_STREAM_BEGINS):
        return stream_rows(data)
    return json.loads(data, object_hook=lambda found: stream_rows(b64decode(found[_ROWS])) if _ROWS in found else found)


def stream_of(rows: pa.Table) -> bytes:
    """Rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def stream_rows(stream: bytes) -> pa.Table:
    """The rows of `stream_of`."""
    return pa.ipc.open_stream(stream).read_all()


LARGER_TIER = "give the table a larger tier, or deliver the file in smaller ones"
"""Remedy of a task that lacks memory."""
DEAD_WORKER = (
    "Python worker exited unexpectedly", "failed to launch worker", "IOException: Broken pipe", "ExecutorLostFailure",
    "PythonWorkerFactory.createWorker", "EOFException occurred while reading the port number",
)  # fmt: skip
"""Texts of Spark's errors for a process of a task that died or did not start, or a machine that was lost."""


class LargeBatchError(Exception):
    """The files of a batch don't fit into memory together and have to be read in smaller batches.

    The rows of a large first load repeat, or there are tables already, so that its parts can't be written one by one.
    The batch has written at most quarantined rows.
    """


class DeclinedError(Exception):
    """The engine can't process this table or batch; another engine can. Nothing was written.

    Attributes:
        reason: for the warning, e.g. `the table has deletion vectors`.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class UnreadableLogError(DeclinedError):
    """The log of a table can't be replayed."""


class RangeRows(NamedTuple):
    """Rows of one range of keys in a file.

    Attributes:
        table: name of the table that the rows are of.
        path, start, size: of an Arrow stream.
        source: the file that the rows were read from, for messages.
    """

    table: str
    path: str
    start: int
    size: int
    source: str


@dataclass(frozen=True)
class WriteRows:
    """Writes the rows of a part to a file of its own; the report says where those of each range are."""

    work: KeyWork
    folder: str

    def __call__(self, storage: Storage, part: Any) -> list[tuple[int, RangeRows]]:
        path, start = Path(self.folder, uuid4().hex), 0
        placed: list[tuple[int, RangeRows]] = []
        with translated(str(path)), path.open("wb") as file:
            for number, table, rows in self.work.split(storage, part):
                size = file.write(stream_of(rows))
                placed.append((number, RangeRows(table, str(path), start, size, self.file_of(part))))
                start += size
        return placed

    def file_of(self, part: Any) -> str:
        return self.work.file_of(part)


@dataclass(frozen=True)
class WorkOnRows:
    """Works on all rows of a range that `WriteRows` has written."""

    work: KeyWork

    def __call__(self, storage: Storage, places: Sequence[RangeRows]) -> Any:
        by_table: dict[str, list[pa.Table]] = {}
        for place in places:
            by_table.setdefault(place.table, []).append(rows_at(place))
        return self.work(storage, by_table)

    def file_of(self, places: Sequence[RangeRows]) -> str:
        return places[0].source


def rows_at(place: RangeRows) -> pa.Table:
    """Rows that a file has in a place; read, not mapped: a task's address space is limited, and a file may be large."""
    with Path(place.path).open("rb") as file:
        file.seek(place.start)
        return stream_rows(file.read(place.size))


def by_range(reports: Iterable[list[tuple[int, RangeRows]]]) -> list[list[RangeRows]]:
    """The places of each range that has rows, that with the most bytes first, so that no long task begins last."""
    found: dict[int, list[RangeRows]] = {}
    for number, place in chain.from_iterable(reports):
        found.setdefault(number, []).append(RangeRows(*place))
    return sorted(found.values(), key=lambda places: -sum(place.size for place in places))
