"""Where the parts of a batch are worked on: in this process, or in the tasks of another system (`spark.places`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_gddl.stores import Storage

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)


class Work(Protocol[Item_contra]):
    """A function of one part, which may be sent to other processes."""

    def __call__(self, storage: Storage, part: Item_contra, /) -> bytes:
        """
        Returns:
            a report, or a few rows.
        """
        ...

    def file_of(self, part: Item_contra, /) -> str:
        """Path of the file that a part is of, for messages."""
        ...


class Place(Protocol):
    """Works on parts independent of each other."""

    @property
    def slots(self) -> int:
        """Parts that are worked on at once."""
        ...

    def run(self, work: Work[Any], parts: Sequence[Any]) -> list[bytes]:
        """The report of each part, in any order."""
        ...

    def distinct(self, files: Sequence[str], columns: Sequence[str]) -> int:
        """Distinct values of columns in Parquet files; a greater number is possible where hashes are compared."""
        ...


@dataclass(frozen=True)
class InProcess:
    """One part after the other, so that one at a time is in memory."""

    storage: Storage

    @property
    def slots(self) -> int:
        return 1

    def run(self, work: Work[Item], parts: Sequence[Item]) -> list[bytes]:
        return [work(self.storage, part) for part in parts]

    def distinct(self, files: Sequence[str], columns: Sequence[str]) -> int:
        names = list(columns)
        rows = pa.concat_tables(self._columns(files, names))
        if len(names) == 1:
            return int(pc.count_distinct(rows.column(0), mode="all").as_py())
        return int(rows.group_by(names, use_threads=False).aggregate([]).num_rows)

    def _columns(self, files: Sequence[str], names: list[str]) -> Iterator[pa.Table]:
        for path in files:
            with self.storage.open_input(path) as stream:
                yield pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").read(names, use_threads=False)
