"""Rows that the tasks of one machine exchange by files: a shuffle without the JVM, which would copy and sort them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa

from airflow_gddl.stores import Storage
from airflow_gddl.stores.readers import translated
from spark_jobs.tables.places import KeyWork, stream_of, stream_rows


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

    work: KeyWork[Any]
    folder: str

    def __call__(self, storage: Storage, part: Any) -> bytes:
        path, start = Path(self.folder, uuid4().hex), 0
        placed: list[tuple[int, RangeRows]] = []
        with translated(str(path)), path.open("wb") as file:
            for number, table, rows in self.work.split(storage, part):
                size = file.write(stream_of(rows))
                placed.append((number, RangeRows(table, str(path), start, size, self.file_of(part))))
                start += size
        return json.dumps(placed).encode()

    def file_of(self, part: Any) -> str:
        return self.work.file_of(part)


@dataclass(frozen=True)
class WorkOnRows:
    """Works on all rows of a range that `WriteRows` has written."""

    work: KeyWork[Any]

    def __call__(self, storage: Storage, places: Sequence[RangeRows]) -> bytes:
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


def by_range(reports: Iterable[bytes]) -> list[tuple[RangeRows, ...]]:
    """The places of each range that has rows, that with the most bytes first, so that no long task begins last."""
    found: dict[int, list[RangeRows]] = {}
    for report in reports:
        for number, place in json.loads(report):
            found.setdefault(number, []).append(RangeRows(*place))
    ranges = (tuple(places) for places in found.values())
    return sorted(ranges, key=lambda places: -sum(place.size for place in places))
