"""Rows of a table by key, by the key columns alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.stores import Storage
from spark_jobs.delta.table_definition import TableDefinition
from spark_jobs.delta.tables import Tables, Write
from spark_jobs.engines.table_rows import FindRows, search
from spark_jobs.plan.columns import Column
from spark_jobs.table.runtime import utc_now


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
    assert pc.sum(found.at.column("row")).as_py() == 0
    assert tables.read_files(snapshot, snapshot.files, ["country"]).num_rows == 4
