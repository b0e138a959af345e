"""A table with `iceberg: 3`, what happens to it, and readers of both formats that are asked for its rows."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_gddl.contract.actions import Erase, Maintain, Rebuild
from airflow_gddl.contract.features.iceberg import iceberg_folder
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.tables.iceberg_metadata import MetadataVersions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable
from tests.harness.landing import write

StaticTable: Any = pytest.importorskip("pyiceberg.table").StaticTable
SPEC = TableSpec(
    table="s.t", keys=("id",), sequence_by=("seq",), size="large", iceberg=3, truncate="apply", history=True
)
FILTERS = ("id = 3", "n > 1050", "part = 'b'", "name IS NULL", "id < 20 AND n >= 1000")
STEPS = ("column", "wider", "maintain", "erase", "truncate", "rebuild")
KINDS = ("replica", "history")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Change:
    op: str
    id: int | None
    n: int
    name: str | None


class TrackedTable(LakeTable):
    """A table of which each run is compared; its change files are drawn."""

    def __init__(self, root: Path, port: LocalPort, spec: TableSpec = SPEC, seed: int = 0) -> None:
        super().__init__(Lake(root, port=port.everywhere()), spec)
        self.port, self.draw = port, random.Random(seed)  # noqa: S311 - a history, no secret
        self.live: set[int] = set()
        self.added: dict[str, pa.DataType] = {}
        self.number, self.steps = 0, list(STEPS)

    def iceberg(self, kind: str = "replica") -> str:
        return iceberg_folder(self.roots.lake, self.spec, "history" if kind == "history" else "replica")

    def versions(self, kind: str = "replica") -> MetadataVersions:
        return MetadataVersions(Storage(), self.iceberg(kind))

    def load(self, rows: int = 30) -> JobResult:
        self.live = set(range(rows))
        self._land("LOAD00000001.parquet", [Change("", n, n, f"first {n}") for n in self.live])
        return self.run()

    def land(self, changes: Sequence[Change]) -> None:
        self.number += 1
        columns = {"Op": [one.op for one in changes], "seq": [1000 * self.number + n for n in range(len(changes))]}
        self._land(f"20240101-{self.number:09d}.parquet", changes, columns)

    def batch(self) -> JobResult:
        """Land updates, deletes and inserts, and load them."""
        touched = self.draw.sample(sorted(self.live), min(len(self.live), 7))
        gone, new = touched[4:], range(100 * (self.number + 1), 100 * (self.number + 1) + self.draw.randint(1, 5))
        value = 1000 + self.number
        changes = [Change("U", key, value, f"{key} of {value}" if key % 3 else None) for key in touched[:4]]
        changes += [Change("D", key, value, None) for key in gone]
        changes += [Change("I", key, value, f"{key} of {value}") for key in new]
        self.live = self.live - set(gone) | set(new)
        self.land(changes)
        return self.run()

    def step(self, name: str) -> JobResult:
        if name == "column":
            self.added["later"] = pa.int64()
        elif name == "wider":
            self.added["n"] = pa.int64()
        elif name == "truncate":
            self.live = set()
            self.land([Change("T", None, 0, None)])
        elif name == "erase":
            key = self.draw.choice(sorted(self.live))
            self.live.discard(key)
            return self.run(JobOptions(action=Erase(key={"id": str(key)})))
        elif name in _ACTIONS:
            return self.run(JobOptions(action=_ACTIONS[name]))
        return self.batch()

    def play(self, steps: Sequence[str] = STEPS) -> Iterator[tuple[str, JobResult]]:
        """A load, then steps in any order, each after a batch."""
        yield "load", self.load()
        for name in self.draw.sample(steps, len(steps)):
            yield "batch", self.batch()
            yield name, self.step(name)

    def _land(self, file: str, changes: Sequence[Change], columns: Mapping[str, Sequence[Any]] | None = None) -> None:
        types = {"id": pa.int32(), "name": pa.string(), "n": pa.int32(), "part": pa.string(), **self.added}
        values: dict[str, Callable[[Change], Any]] = {
            "id": lambda one: one.id, "name": lambda one: one.name, "n": lambda one: one.n,
            "part": lambda one: None if one.id is None else "abc"[one.id % 3], "later": lambda one: one.n * 2**33,
        }  # fmt: skip
        held = {column: pa.array([values[column](one) for one in changes], kind) for column, kind in types.items()}
        write(self.landing, file, pa.table({**(columns or {}), **held}))


_ACTIONS = {"maintain": Maintain(), "rebuild": Rebuild()}


def rows_of(table: pa.Table) -> Rows:
    """Rows in an order, columns by name."""
    rows = [dict(sorted(row.items())) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: str(list(row.values())))


def _deltalake(path: str, _: MetadataVersions, where: str) -> pa.Table:
    found = QueryBuilder().register("t", DeltaTable(path)).execute(f"SELECT * FROM t WHERE {where}")
    return pa.table(found.read_all())


def _polars_delta(path: str, _: MetadataVersions, where: str) -> pa.Table:
    return pl.scan_delta(path).filter(pl.sql_expr(where)).collect().to_arrow()


def _polars_iceberg(_: str, versions: MetadataVersions, where: str) -> pa.Table:
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # else it warns that it plans by pyiceberg
    frame = pl.scan_iceberg(versions.path(versions.newest()), reader_override="native")
    return frame.filter(pl.sql_expr(where)).collect().to_arrow()


def _pyiceberg(_: str, versions: MetadataVersions, where: str) -> pa.Table:
    return StaticTable.from_metadata(versions.table).scan(row_filter=where).to_arrow()


READERS: Mapping[str, Callable[[str, MetadataVersions, str], pa.Table]] = {
    "deltalake": _deltalake, "Polars, Delta": _polars_delta, "Polars, Iceberg": _polars_iceberg,
    "pyiceberg": _pyiceberg,
}  # fmt: skip


def require_alike(table: TrackedTable, kind: str = "replica") -> Rows:
    """Compare what all readers find, and return it."""
    path, versions = getattr(table.layout, kind), table.versions(kind)
    assert versions.written() == (DeltaTable(path).version(), 3)
    whole = pa.table(DeltaTable(path).scan())
    for where in ("id >= 0", *FILTERS):
        wanted = rows_of(pl.from_arrow(whole).filter(pl.sql_expr(where)).to_arrow())
        for name, read in READERS.items():
            assert rows_of(read(path, versions, where)) == wanted, (name, where)
    return rows_of(whole)
