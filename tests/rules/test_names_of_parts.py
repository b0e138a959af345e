"""Which columns changes are said to carry."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.rules.stored_columns import names_of_parts
from tests.rules.changes import Change, table, table_schema


def test_tables_without_rows_or_columns_have_no_names() -> None:
    schema = table_schema(ignore_null_updates=True)
    rows = table([Change(op="U", v=None), Change(op="U", v="a")], schema)
    assert names_of_parts(rows, schema).to_pylist() == [["id"], None]
    assert names_of_parts(rows.slice(0, 0), schema).to_pylist() == []
    assert names_of_parts(rows, replace(schema, keys=(), data=())).to_pylist() == [None, None]
