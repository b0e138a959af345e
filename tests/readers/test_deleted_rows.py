"""Views without deleted rows, against the oracle; marks of deletes that every filter finds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.metadata.loading import load
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable
from tests.harness.landing import write
from tests.harness.strategies import file_of
from tests.oracle import DeliveredFile, Run, Value, replay

pytestmark = [pytest.mark.deep_on_many, pytest.mark.timeout(900)]
TABLE = "s.t-1"
ODD = 'a "b"`c\''
LANDED = 'a_"b"`c\''
TYPES = {"Op": pa.string(), "seq": pa.int64(), "id": pa.int32(), "v": pa.string(), ODD: pa.int32(), "new": pa.string()}
Rows = list[dict[str, Value]]


def change(op: str, seq: int, key: int, **values: Value) -> dict[str, Value]:
    return {"Op": op, "seq": seq, "id": key, ODD: key * 10, **values}


def loaded(*keys: int) -> dict[str, DeliveredFile]:
    name = "LOAD00000001.parquet"
    return {name: file_of(name, True, [{"id": key, "v": f"load {key}", ODD: key} for key in keys])}


def changed(day: int, *rows: Mapping[str, Value]) -> dict[str, DeliveredFile]:
    name = f"202401{day:02d}-000000001.parquet"
    return {name: file_of(name, False, rows)}


RUNS = (
    {**loaded(1, 2, 3, 4, 5), **changed(1, change("D", 1, 5, v=None), change("U", 2, 1, v="one"))},
    changed(2, change("I", 3, 5, v="back"), change("D", 4, 2, v=None), change("I", 5, 6, v="six")),
    changed(3, change("U", 6, 3, v=None, new="evolved"), change("D", 7, 6, v=None), change("U", 0, 2, v="late")),
    loaded(1, 2, 3),
    changed(4, change("I", 8, 2, v="again", new="n")),
)
"""Deletes, an undelete, a late change of a deleted row, a new column, and a reload that lacks rows."""


@dataclass
class ViewedTable:
    """One table that is loaded in this process."""

    folder: Path
    port: LocalPort

    def row(self, **fields: Any) -> None:
        """Write the metadata with these fields."""
        row = {"table": TABLE, "keys": ["id"], "sequence_by": ["seq"], "sweep_limit": 1.0, **fields}
        (self.folder / "metadata/tables").mkdir(parents=True, exist_ok=True)
        (self.folder / "metadata/gddl.yaml").write_text("landing: ../landing\nlake: ../lake\nrunner: local\n")
        (self.folder / "metadata/tables/s.yaml").write_text(json.dumps({"tables": [row]}))

    @property
    def spec(self) -> TableSpec:
        (spec,) = load(self.folder / "metadata", {}).tables
        return spec

    @property
    def table(self) -> LakeTable:
        return LakeTable(Lake(self.folder, port=self.port.everywhere()), self.spec)

    @property
    def layout(self) -> Layout:
        return self.table.layout

    def run(self, files: Mapping[str, DeliveredFile], options: JobOptions | None = None) -> JobResult:
        for name, file in files.items():
            columns = {c: pa.array([row.get(c) for row in file.rows], TYPES[c]) for c in file.columns}
            write(self.table.landing, name, pa.table(columns))
        return self.table.run(options)

    def read(self) -> Rows:
        """What the view of docs/consumers.md shows."""
        table = DeltaTable(self.layout.replica)
        schema = table.to_pyarrow_table().schema
        marks = schema.field("_gddl").type.names
        named = [name.replace('"', '""') for name in schema.names if name not in ("seq", "_gddl")]
        columns = ", ".join(f'"{name}"' for name in named)
        left = "WHERE NOT _gddl['deleted']" if "deleted" in marks else ""
        rows = QueryBuilder().register("t", table).execute(f"SELECT {columns} FROM t {left}").read_all()
        return _sorted(pa.table(rows).to_pylist())

    def alive(self) -> set[int]:
        """Keys of rows that are not marked deleted; every reader's filter finds the same ones."""
        table = DeltaTable(self.layout.replica)
        rows = table.to_pyarrow_table()
        assert pc.struct_field(rows["_gddl"], "deleted").null_count == 0
        kept = table.to_pyarrow_table(filters=ds.field("_gddl", "deleted") == False)  # noqa: E712 - an expression
        statement = "SELECT id FROM t WHERE \"_gddl\"['deleted'] = false"
        queried = pa.table(QueryBuilder().register("t", table).execute(statement).read_all())
        assert sorted(kept["id"].to_pylist()) == sorted(queried["id"].to_pylist())
        return set(kept["id"].to_pylist())


@pytest.fixture
def viewed(tmp_path: Path, engine: LocalPort) -> ViewedTable:
    made = ViewedTable(tmp_path, engine)
    made.row(delete="soft", history=True)
    return made


def _sorted(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row["id"])


def expected(spec: TableSpec, runs: int) -> Rows:
    """The oracle's live rows without the sequence, under the names that columns land as."""
    outcome = replay(spec, [Run(tuple(files.values())) for files in RUNS[:runs]])
    live = [row.columns for row in outcome.replica if not row.deleted]
    return _sorted([{LANDED if n == ODD else n: v for n, v in row.items() if n != "seq"} for row in live])


def test_rows_match_the_oracle_after_each_run(viewed: ViewedTable) -> None:
    for number, files in enumerate(RUNS, start=1):
        viewed.run(files)
        wanted = expected(viewed.spec, number)
        assert {row["id"] for row in wanted} == viewed.alive()
        assert viewed.read() == wanted, number
        assert ("new" in wanted[0]) == (number >= 3)
    viewed.run({}, JobOptions(action=Rebuild()))
    assert {row["id"] for row in expected(viewed.spec, len(RUNS))} == viewed.alive()
    assert viewed.read() == expected(viewed.spec, len(RUNS))


def test_delete_marks_are_never_null(viewed: ViewedTable) -> None:
    viewed.row(delete="hard")
    viewed.run(RUNS[0])
    assert [row["id"] for row in viewed.read()] == [1, 2, 3, 4]
    viewed.row(delete="soft")
    viewed.run(changed(2, change("D", 9, 4, v=None)))
    assert viewed.alive() == {1, 2, 3}
    viewed.run({}, JobOptions(action=Rebuild()))
    assert viewed.alive() == {1, 2, 3}
    viewed.run({}, JobOptions(action=Verify()))
    viewed.row(delete="hard")
    viewed.run(changed(3, change("I", 10, 7, v="seven")))
    assert [row["id"] for row in viewed.read()] == [1, 2, 3, 7]


def test_refresh_enables_soft_deletes(viewed: ViewedTable) -> None:
    viewed.row(delete="hard")
    viewed.run(RUNS[0])
    viewed.row(delete="soft")
    viewed.run({}, JobOptions(action=Rebuild()))
    assert viewed.alive() == {1, 2, 3, 4}
    assert {row["id"] for row in viewed.port.read(viewed.layout.replica)} == {1, 2, 3, 4, 5}


def test_partial_updates_and_moved_keys_have_marks(viewed: ViewedTable) -> None:
    viewed.row(delete="soft", ignore_null_updates=True, before_image_prefix="BI_")
    viewed.run(RUNS[0])
    columns = {"Op": ["U", "U"], "seq": [20, 21], "id": [8, 5], "v": [None, "x"], "BI_id": [1, 5]}
    table = pa.table({name: pa.array(v, TYPES.get(name, pa.int32())) for name, v in columns.items()})
    write(Path(viewed.layout.landing), "20240105-000000001.parquet", table)
    viewed.run({})
    assert viewed.alive() == {2, 3, 4, 5, 8}
