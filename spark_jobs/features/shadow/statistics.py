"""Statistics of new files against their rows, which are read as plain Parquet: in the driver, or in Spark's tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyspark.sql import SparkSession

from airflow_gddl.stores import Storage
from spark_jobs.rules.arrays import has_nan
from spark_jobs.tables.many_tasks import SparkTasks
from spark_jobs.tables.places import InProcess, Place, TaskBounds

Leaf = tuple[str, ...]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = 1000
"""In microseconds; the log may state times in milliseconds, rounded down."""


def wrong_statistics(spark: SparkSession, storage: Storage, files: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the log says of new files and is not true of their rows.

    Args:
        files: `add` actions with paths that the storage takes.

    Raises:
        FileNotFoundError: a file is not there.
    """
    parts = [(str(add["path"]), str(add.get("stats") or "{}")) for add in files]
    few = sum(add["size"] for add in files) <= TaskBounds().files
    place: Place = InProcess(storage) if few else SparkTasks(spark, len(parts))
    return [note for report in place.run(FileStatistics(), parts) for note in json.loads(report)]


@dataclass(frozen=True)
class FileStatistics:
    """Reads a file; a `Work` whose part is its path and the JSON of its statistics."""

    def __call__(self, storage: Storage, part: tuple[str, str]) -> bytes:
        """
        Returns:
            JSON list of what is wrong.
        """
        path, text = part
        stated = Stated.of(text)
        with storage.open_input(path) as stream:
            source = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            for group in range(source.num_row_groups):
                stated.see(source.read_row_group(group, use_threads=False))
        name = path.rpartition("/")[2]
        return json.dumps([f"{name} {what}" for what in stated.wrong()]).encode()

    def file_of(self, part: tuple[str, str]) -> str:
        return part[0]


@dataclass
class Stated:
    """Statistics of a file, and what its rows are, as far as they were seen.

    Attributes:
        nulls: counted ones, of the columns whose nulls are stated.
        outside: columns that have a value outside of the stated bounds.
    """

    numbers: Mapping[str, Any]
    records: int = 0
    nulls: dict[Leaf, int] = field(default_factory=dict)
    outside: dict[Leaf, None] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Stated:
        return cls(json.loads(text, parse_float=Decimal))

    def see(self, rows: pa.Table) -> None:
        self.records += rows.num_rows
        for leaf, _ in _leaves((), self.numbers.get("nullCount")):
            values = _values(rows, leaf)
            self.nulls[leaf] = self.nulls.get(leaf, 0) + (rows.num_rows if values is None else values.null_count)
        for side, holds in (("minValues", _is_least), ("maxValues", _is_most)):
            for leaf, bound in _leaves((), self.numbers.get(side)):
                values = _values(rows, leaf)
                if values is not None and values.null_count < len(values) and not holds(values, bound):
                    self.outside[leaf] = None

    def wrong(self) -> Iterator[str]:
        if self.numbers.get("numRecords") != self.records:
            yield f"has {self.records} rows, not numRecords {self.numbers.get('numRecords')}"
        for leaf, said in _leaves((), self.numbers.get("nullCount")):
            if said != self.nulls.get(leaf, 0):
                yield f"has {self.nulls.get(leaf, 0)} nulls in {'.'.join(leaf)}, not nullCount {said}"
        for leaf in self.outside:
            yield f"has values of {'.'.join(leaf)} outside of minValues and maxValues"


def _leaves(path: Leaf, stated: object) -> Iterator[tuple[Leaf, Any]]:
    """Columns and fields of structs of which something is stated, and what."""
    if not isinstance(stated, Mapping):
        if stated is not None:
            yield path, stated
        return
    for name, inner in stated.items():
        yield from _leaves((*path, name), inner)


def _values(rows: pa.Table, leaf: Leaf) -> pa.ChunkedArray | None:
    """Null: the file lacks the column, so that each row is null there.

    A copy of what `data_files` has: nothing that wrote the statistics takes part in judging them.
    """
    if leaf[0] not in rows.column_names:
        return None
    values = rows.column(leaf[0])
    for name in leaf[1:]:
        if not pt.is_struct(values.type) or values.type.get_field_index(name) < 0:
            return None
        values = pc.struct_field(values, name)
    return values


def _is_least(values: pa.ChunkedArray, bound: Any) -> bool:
    """NaN is greater than any number, as Delta orders them."""
    least = pc.min(_comparable(values)).as_py()
    return least is None or _bound_of(bound, values.type) <= least


def _is_most(values: pa.ChunkedArray, bound: Any) -> bool:
    if pt.is_floating(values.type) and has_nan(values):
        return False
    wide = _MILLISECOND if pt.is_timestamp(values.type) else 0
    most = _bound_of(bound, values.type)
    greatest = pc.max(_comparable(values)).as_py()
    return bool(greatest is None or (most + wide if wide else most) >= greatest)


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as microseconds and days as numbers, which may be of any year; texts as bytes."""
    kind = values.type
    if pt.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pt.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32())
    if pt.is_dictionary(kind):
        return _comparable(values.cast(kind.value_type))
    if pt.is_floating(kind):
        return values.filter(pc.invert(pc.is_nan(values)))
    return values.cast(pa.binary()) if pt.is_string(kind) or pt.is_large_string(kind) else values


def _bound_of(bound: Any, kind: pa.DataType) -> Any:
    """A bound of the log as `_comparable` has values."""
    if pt.is_dictionary(kind):
        return _bound_of(bound, kind.value_type)
    if pt.is_timestamp(kind):
        moment = datetime.fromisoformat(bound)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    if pt.is_date(kind):
        return (date.fromisoformat(bound) - _EPOCH.date()).days
    if pt.is_float32(kind):
        return float(np.float32(bound))
    if pt.is_floating(kind):
        return float(bound)
    return bound.encode() if isinstance(bound, str) else bound
