"""Files without a row: of no bytes, of blank lines, with a header alone, without a row group."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.harness.lake import Lake, LakeTable, spec_of
from tests.harness.landing import write_bytes

_SCHEMA = pa.schema([("Op", pa.string()), ("seq", pa.int64()), ("id", pa.int64()), ("v", pa.string())])


def _parquet(*rows: tuple[Any, ...]) -> bytes:
    table = pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], schema=_SCHEMA)
    sink = io.BytesIO()
    if rows:
        pq.write_table(table, sink)
    else:
        pq.ParquetWriter(sink, _SCHEMA).close()
    return sink.getvalue()


FORMS: dict[str, tuple[dict[str, Any], str, bytes, bytes]] = {
    "no bytes": ({"csv_columns": ["seq", "id", "v"]}, "csv", b"", b"I,2,1,a\n"),
    "no bytes, header": ({"csv_header": True}, "csv", b"", b"Op,seq,id,v\nI,2,1,a\n"),
    "blank lines": ({"csv_columns": ["seq", "id", "v"]}, "csv", b"\n\n", b"I,2,1,a\n"),
    "header alone": ({"csv_header": True}, "csv", b"Op,seq,id,v\n", b"Op,seq,id,v\nI,2,1,a\n"),
    "gzip of nothing": ({"csv_columns": ["seq", "id", "v"]}, "csv.gz", gzip.compress(b""), gzip.compress(b"I,2,1,a\n")),
    "no row group": ({}, "parquet", _parquet(), _parquet(("I", 2, 1, "a"))),
}  # fmt: skip


def played(lake: Lake, spec: TableSpec, *files: tuple[str, bytes]) -> LakeTable:
    table = LakeTable(lake, spec)
    for name, data in files:
        write_bytes(lake.landing(spec), name, data)
    table.run()
    return table


@pytest.mark.parametrize("policy", [{}, {"schema_evolution": SchemaEvolution(dropped_column="fail")}])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", ["LOAD00000001", "20250101-000000001"])
@pytest.mark.parametrize("name", FORMS)
def test_an_empty_file_is_no_rows(
    tmp_path: Path, name: str, first: str, together: bool, policy: dict[str, Any]
) -> None:
    options, ending, empty, full = FORMS[name]
    lake, spec = Lake(tmp_path), spec_of(options=options, settle="0s", **policy)
    files = [(f"{first}.{ending}", empty), (f"20250101-000000002.{ending}", full)]
    table = LakeTable(lake, spec)
    for each in [files] if together else [[file] for file in files]:
        table = played(lake, spec, *each)
    assert [str(row[0]) for row in table.values("replica", "id")] == ["1"]
    assert table.values("errors", "code") == []
    played(lake, spec, (f"20250101-000000003.{ending}", empty))
    assert table.values("errors", "code") == []
    assert [str(row[0]) for row in table.values("replica", "id")] == ["1"]


def test_a_parquet_file_of_no_bytes_is_damaged(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(settle="0s")
    table = played(
        lake, spec, ("20250101-000000001.parquet", b""), ("20250101-000000002.parquet", FORMS["no row group"][3])
    )
    assert table.values("errors", "code") == [("FILE_EMPTY",)]
    assert table.values("replica", "id") == [(1,)]


def test_rows_of_a_file_that_was_empty_are_taken_when_it_is_written(tmp_path: Path) -> None:
    options, ending, empty, full = FORMS["no bytes"]
    lake, spec = Lake(tmp_path), spec_of(options=options, settle="0s")
    played(lake, spec, (f"LOAD00000001.{ending}", empty))
    table = played(lake, spec, (f"LOAD00000001.{ending}", full))
    assert table.values("replica", "id") == [("1",)]
