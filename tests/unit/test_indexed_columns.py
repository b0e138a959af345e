"""Which columns a table's properties index, by names as Delta writes them."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import Column
from spark_jobs.tables.table_definition import COLUMNS, indexed_columns

_COLUMNS = tuple(
    Column(name, parse_type(kind))
    for name, kind in {"id": "int", "a b": "int", "x.y": "int", "t`k": "int", "s": "struct<c:int,d:int>"}.items()
)


@pytest.mark.parametrize(("named", "found"), [
    ("id", [("id",)]), ("id, s", [("id",), ("s", "c"), ("s", "d")]), ("ID,S.D", [("id",), ("s", "d")]),
    ("`x.y`", [("x.y",)]), ("x.y", []), ("`t``k`, `s`.`c`", [("t`k",), ("s", "c")]),
    ("id , `s` . `d`", [("id",), ("s", "d")]), ("`a b`,a b", [("a b",)]),
    ("", []),
])  # fmt: skip
def test_names_between_commas_may_be_quoted(named: str, found: list[tuple[str, ...]]) -> None:
    assert list(indexed_columns(_COLUMNS, {COLUMNS: named})) == found
