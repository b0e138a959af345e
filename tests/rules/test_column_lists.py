"""Lists of the columns that an update carries, as texts can be read in two ways."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import ScalarType
from spark_jobs.plan.table_schema import Column, TableSchema
from spark_jobs.rules.carried import listed, name_none, stored_lists
from spark_jobs.rules.csv_rows import with_carried

FILE = ("id", "a", "b", "a,b", "z", "[z]", "y", "cols")


def schema() -> TableSchema:
    spec = TableSpec(table="s.t", keys=("id",), columns_to_update="cols")
    names = ("id", "a", "b", "a_b", "z", "[z]", "y", "cols")
    return TableSchema(spec=spec, keys=("id",), data=tuple(Column(n, ScalarType("string")) for n in names))


@pytest.mark.parametrize(
    ("delivered", "stored"),
    [
        ("[a,b]", "a_b"),  # the longest name that the file has
        ("a, b", "a,b"),
        ("b,a", "b,a"),
        ("[a,b,y]", "a_b,y"),
        ('["a", "b"]', "a,b"),  # JSON says which
        ('["a,b"]', "a_b"),
        ("[z]", "z"),  # brackets around all are those of the list
        ("[[z]]", "[z]"),
        ("[[z],y]", "[z],y"),
        ("gone", "gone"),
    ],
)
def test_a_text_that_can_be_read_in_two_ways_has_one_reading(delivered: str, stored: str) -> None:
    assert stored_lists(pa.array([delivered, None]), FILE, schema()).to_pylist() == [stored, None]


@pytest.mark.parametrize(
    ("delivered", "columns", "stored"),
    [
        ("", ("id", "a"), ""),
        ("[]", ("id", "a"), ""),
        (" ", ("id", ""), ""),
        ("a,", ("id", "a", ""), "a,"),
        ('["", "a"]', ("id", "a", ""), "_,a"),  # JSON says which
        ('["", "a"]', ("id", "a"), ",a"),
    ],
)
def test_nothing_between_commas_is_no_name(delivered: str, columns: tuple[str, ...], stored: str) -> None:
    """Also where the file has a column without a name, which is `_` in the table."""
    assert stored_lists(pa.array([delivered]), columns, schema()).to_pylist() == [stored]


@pytest.mark.parametrize("arrays", [False, True])
def test_lists_that_name_no_column_of_the_file(arrays: bool) -> None:
    texts = ["a", "gone,A", "gone", "", None, "id"]
    found = pa.array([None if t is None else t.split(",") for t in texts] if arrays else texts)
    assert name_none(found, FILE, schema()).tolist() == [False, False, True, False, False, False]
    assert listed(found, "a").tolist() == [True, True, False, False, True, False]


def test_columns_that_a_change_of_csv_lacks_are_those_that_were_added_later_or_not_logged() -> None:
    """An insert carries all columns, also in a line from before a column was added."""
    columns = [["I", "U", "D", "u ", None], list("12345"), ["a", "?", "b", "c", "?"], [None] * 5]
    rows = pa.table([pa.array(values, pa.string()) for values in columns], names=["Op", "id", "v", "new"])
    older = {"new": np.array([True, True, False, True, True])}
    found = with_carried(rows, DmsOptions(csv_no_sup="?"), "carried", older)
    assert found.column("carried").to_pylist() == [None, '["id"]', None, '["id", "v"]', None]
    assert found.column("v").to_pylist() == ["a", None, "b", "c", "?"]
    assert with_carried(rows.drop_columns(["Op"]), DmsOptions(), "carried").column("carried").null_count == 5
