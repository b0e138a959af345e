"""Tables that another job keeps: files as they land, the job in a few lines, and what it leaves of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from tests.harness.asked import options_of
from tests.harness.lake import Lake
from tests.harness.landing import write

UNTIL = "2024-06-01T00:00:00Z"
BEFORE, AFTER = 1_700_000_000, 1_720_000_000
"""Modification times of files from before the cut and after it."""
SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string()), ("seq", pa.int64())])
Rows = Mapping[int, tuple[str, int | None]]
"""Key to its value and the sequence of its last change; null: of the full load."""


def adopting(**options: Any) -> JobOptions:
    return options_of(action="adopt", **({"files_until": UNTIL} | options))


def release(**options: Any) -> JobOptions:
    return options_of(action="adopt_release", **({"confirmed": True} | options))


def chance(seed: str) -> Random:
    return Random(seed)  # noqa: S311 - repeatable by its seed


def table_of(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = {"id": list(rows), "v": [v for v, _ in rows.values()], "seq": [seq for _, seq in rows.values()]}
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def stamp(file: Path, moment: int) -> None:
    os.utime(file, (moment, moment))


@dataclass(frozen=True)
class Landed:
    """Files of a source that lives: a full load of some keys, and changes of a few of them in each file.

    Attributes:
        states: rows of the source as of each file, the load's first.
    """

    files: tuple[pa.Table, ...]
    states: tuple[Rows, ...]

    @classmethod
    def of(cls, seed: str, files: int = 8, keys: int = 6) -> Landed:
        random = chance(seed)
        rows: dict[int, tuple[str, int | None]] = {key: (f"load {key}", None) for key in range(keys // 2)}
        made = [pa.table({"id": pa.array(rows, pa.int32()), "v": [v for v, _ in rows.values()]})]
        states, sequence = [dict(rows)], 0
        for _ in range(files):
            lines = []
            for _ in range(random.randint(1, 6)):
                sequence += random.randint(1, 3)
                key = random.randrange(keys)
                op = "I" if key not in rows else random.choice("UUD")
                value = None if op == "D" else f"{op} {key} at {sequence}"
                lines.append((op, sequence, key, value))
                if value is None:
                    rows.pop(key)
                else:
                    rows[key] = value, sequence
            made.append(pa.table({
                "Op": [line[0] for line in lines], "seq": pa.array([line[1] for line in lines], pa.int64()),
                "id": pa.array([line[2] for line in lines], pa.int32()),
                "v": pa.array([line[3] for line in lines], pa.string()),
            }))  # fmt: skip
            states.append(dict(rows))
        return cls(tuple(made), tuple(states))

    def land(self, lake: Lake, spec: TableSpec, numbers: Sequence[int], moment: int) -> None:
        """Write some of the files, with a modification time; 0 is the load."""
        for number in numbers:
            name = f"20240101-{number:09d}.parquet" if number else "LOAD00000001.parquet"
            write(lake.landing(spec), name, self.files[number])
            stamp(lake.landing(spec) / name, moment)


def values(rows: Rows) -> dict[int, str]:
    return {key: value for key, (value, _) in rows.items()}


def without_gddl(table: DeltaTable) -> Iterator[str]:
    """Data files that have no `_gddl`: those of the other job."""
    return (uri for uri in table.file_uris() if "_gddl" not in pq.read_schema(uri).names)


class KilledError(BaseException):
    """The process ends here."""


class Dying(Storage):
    """A storage whose process dies at a write.

    Attributes:
        left: writes that are still made.
        after: it dies once that write is made; else before.
    """

    def __init__(self, left: int, *, after: bool) -> None:
        super().__init__()
        self.left, self.after, self.made = left, after, 0

    def _die(self, place: str) -> None:
        self.made += 1
        if self.made > self.left:
            raise KilledError(place)

    def write(self, path: str, data: bytes) -> None:
        if self.after:
            super().write(path, data)
        self._die(path)
        if not self.after:
            super().write(path, data)

    def create(self, path: str, data: bytes) -> bool:
        made = super().create(path, data) if self.after else False
        self._die(path)
        return made if self.after else super().create(path, data)

    def create_once(self, path: str, data: bytes) -> bool:
        made = super().create_once(path, data) if self.after else False
        self._die(path)
        return made if self.after else super().create_once(path, data)

    def copy(self, path: str, target: str) -> None:
        if self.after:
            super().copy(path, target)
        self._die(target)
        if not self.after:
            super().copy(path, target)

    def delete(self, *paths: str) -> None:
        """File after file."""
        for path in paths:
            if self.after:
                super().delete(path)
            self._die(path)
            if not self.after:
                super().delete(path)
