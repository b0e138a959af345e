"""Rows of a table by key, by the key columns alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import utc_now
from spark_jobs.plan.table_schema import Column
from spark_jobs.rules.arrays import by_name
from spark_jobs.tables.delta_tables import DataFile, Tables, Write
from spark_jobs.tables.table_definition import TableDefinition
from spark_jobs.tables.table_rows import AT_ROW, FindRows, matching, search


def test_a_key_of_partition_columns_alone(tmp_path: Path) -> None:
    """Data files hold none of its columns, so that only their footers tell how many rows there are."""
    path, tables = str(tmp_path / "t"), Tables(Storage(), utc_now)
    columns = tuple(Column(name, parse_type("string")) for name in ("country", "city", "v"))
    tables.create(TableDefinition(path=path, columns=columns, partition_by=("country", "city")))
    rows = pa.table({"country": ["a b", "a b", "50%", None], "city": ["x", "y", "x", "x"], "v": ["1", "2", "3", "4"]})
    tables.commit(path, Write(added=[rows]))
    snapshot = tables.existing(path)
    keys = pa.table({"country": ["a b", "50%", "other"], "city": ["x", "x", "x"]})
    found = search(tables, FindRows(table=path, keys=keys, schema=snapshot.schema.arrow), snapshot.files)
    assert sorted(found.rows.column("v").to_pylist()) == ["1", "3"]
    assert pc.sum(found.at.column(AT_ROW)).as_py() == 0
    assert tables.read_files(snapshot, snapshot.files, ["country"]).num_rows == 4


GDDL_FIELDS = {
    "sequence": st.one_of(st.none(), st.integers(0, 3)),
    "op": st.sampled_from(["R", "I", "U"]),
    "source_file": st.sampled_from(["/a/LOAD1.parquet", "/a/2.parquet"]),
    "position": st.integers(0, 2**40),
    "batch_id": st.just("1"),
    "generation": st.sampled_from([1, 1, 1, 2]),
    "applied_at": st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC), None]),
}
GDDL_TYPE = pa.struct(
    [("sequence", pa.int64()), ("op", pa.string()), ("source_file", pa.string()), ("position", pa.int64()),
     ("batch_id", pa.string()), ("generation", pa.int32()), ("applied_at", pa.timestamp("us", tz="UTC"))]
)  # fmt: skip
KEYS = {"int64": st.integers(-3, 9), "int32": st.integers(-3, 9), "string": st.sampled_from(["", "a", "b", "é", "zz"]),
        "float64": st.sampled_from([0.0, -0.0, 1.5, float("nan")])}  # fmt: skip


@st.composite
def stored_rows(draw: st.DrawFn, kind: str) -> pa.Table:
    """Rows of a file: of a load, of changes, or by another writer, who leaves `_gddl` null."""
    count = draw(st.integers(1, 12))
    fields = {name: values for name, values in GDDL_FIELDS.items() if name != "sequence" or draw(st.booleans())}
    fixed = {name: draw(values) for name, values in fields.items() if draw(st.booleans())}
    foreign = st.booleans() if draw(st.integers(0, 4)) == 0 else st.just(False)
    gddl = [
        None if draw(foreign) else {name: fixed.get(name, draw(values)) for name, values in fields.items()}
        for _ in range(count)
    ]
    keys = draw(st.lists(KEYS[kind], min_size=count, max_size=count))
    keys = sorted(keys) if draw(st.booleans()) else keys
    of_file = pa.struct([field for field in GDDL_TYPE if field.name in fields])
    return pa.table({"id": pa.array(keys, kind), "v": list(range(count)), "_gddl": pa.array(gddl, of_file)})


@pytest.mark.parametrize("kind", KEYS)
def test_rows_of_several_row_groups_are_found_whole(kind: str, tmp_path: Path) -> None:
    """Also where footers state values and bounds, so that little of the file is read."""
    schema = pa.schema([("id", pa.type_for_alias(kind)), ("v", pa.int64()), ("_gddl", GDDL_TYPE)])
    file = DataFile("f.parquet", 1)

    @given(rows=stored_rows(kind), wanted=st.lists(KEYS[kind], min_size=1, max_size=4), size=st.integers(1, 5))
    def check(rows: pa.Table, wanted: list[object], size: int) -> None:
        pq.write_table(rows, tmp_path / file.path, row_group_size=size, coerce_timestamps="us")
        keys = pa.table({"id": pa.array(wanted, schema.field("id").type)})
        found = FindRows(table=str(tmp_path), keys=keys, schema=schema)(Storage(), (0, file))
        expected = by_name(rows, schema).take(pa.array(matching(rows, keys, ("id",))))
        assert found.select(schema.names).to_pylist() == expected.to_pylist() or kind == "float64"
        assert found.column("v").to_pylist() == expected.column("v").to_pylist()
        assert found.column(AT_ROW).to_pylist() == found.column("v").to_pylist()

    check()


def test_positions_are_left_out_where_no_tie_needs_them(tmp_path: Path) -> None:
    gddl = [{"op": "R", "source_file": "a", "batch_id": "1", "generation": 1, "position": at} for at in range(3)]
    load = pa.table({"id": [1, 2, 3], "_gddl": pa.array(gddl)})
    changed = pa.table({"id": [4, 5], "_gddl": pa.array([{**gddl[at], "sequence": at} for at in (1, 2)])})
    schema = pa.schema([("id", pa.int64()), ("_gddl", GDDL_TYPE)])
    keys, positions = pa.table({"id": [2, 5]}), []
    for number, rows in enumerate([load, changed]):
        file = DataFile(f"{number}.parquet", 1)
        pq.write_table(rows, tmp_path / file.path)
        for ties in (True, False):
            work = FindRows(table=str(tmp_path), keys=keys, schema=schema, ties=ties)
            (row,) = work(Storage(), (0, file)).column("_gddl").to_pylist()
            positions.append(row["position"])
    assert positions == [1, None, 2, 2]


VIEW = pa.string_view()
VIEWS = {
    "string": (VIEW, "a"),
    "binary": (pa.binary_view(), b"a"),
    "array<string>": (pa.list_view(VIEW), ["a"]),
    "array<array<int>>": (pa.large_list_view(pa.list_view(pa.int32())), [[1, 2], []]),
    "struct<x:string>": (pa.struct([("x", VIEW)]), {"x": "a"}),
    "map<string,string>": (pa.map_(VIEW, VIEW), [("a", "a")]),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_files_of_a_writer_with_view_types(kind: str, tmp_path: Path) -> None:
    """Arrow neither takes nor filters rows of such types, which a footer states for readers by Arrow."""
    path, tables = str(tmp_path / "t"), Tables(Storage(), utc_now)
    columns = (Column("id", parse_type("bigint")), Column("v", parse_type(kind)))
    tables.create(TableDefinition(path=path, columns=columns))
    schema = tables.existing(path).schema.arrow
    view, value = VIEWS[kind]
    rows = pa.table({"id": [1, 2, 3], "v": pa.array([value, None, value], schema.field("v").type)}, schema=schema)
    tables.commit(path, Write(added=[rows]))
    snapshot = tables.existing(path)
    (file,) = snapshot.files
    pq.write_table(pa.table({"id": [1, 2, 3], "v": pa.array([value, None, value], view)}), tmp_path / "t" / file.path)
    assert "_view" in str(pq.read_schema(tmp_path / "t" / file.path))
    found = search(tables, FindRows(table=path, keys=pa.table({"id": [2, 3]}), schema=schema), snapshot.files)
    assert found.rows.select(schema.names).to_pylist() == rows.slice(1, 2).to_pylist()
    assert tables.read_files(snapshot, snapshot.files, schema.names).to_pylist() == rows.to_pylist()
