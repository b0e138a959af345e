"""What happened to a key: each change's state, the one that decides and by what, and whether the replica agrees."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import GDDL, Column, TableSchema
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.erasure import highest, key_texts, with_key
from spark_jobs.rules.verify import KeyHistory, key_history, replica_records
from tests.rules.changes import LATER, Change, in_file, table, table_schema

FIRST, SECOND, THIRD = "000000000001", "000000000002", "000000000003"
A, B = "/l/s/t/LOAD00000001.parquet", "/l/s/t/LOAD00000002.parquet"
"""Files whose names tell no order."""


def explained(
    changes: list[Change], schema: TableSchema, *, stored: list[Change] | None = None, swept: int = 1
) -> KeyHistory:
    """Of key 1, by default with an empty replica."""
    return key_history(table(changes, schema), table(stored or [], schema), schema, ("1",), swept)


def states(history: KeyHistory) -> list[tuple[Any, str, str]]:
    return [(change.facts["sequence"], change.state, change.decided_by) for change in history.changes]


def test_change_after_a_higher_one_is_late() -> None:
    schema = table_schema()
    load = Change(op="R", v="a", seq=None, batch=FIRST)
    changes = [
        Change(op="U", v="new", seq=9, batch=SECOND), Change(op="U", v="late", seq=7, batch=THIRD), load,
        Change(op="U", v="old", seq=5, batch=SECOND, position=1),
    ]  # fmt: skip
    history = explained(changes, schema, stored=changes[:1])
    assert states(history) == [
        (None, "superseded", ""), (5, "superseded", "sequence"), (7, "late", "sequence"), (9, "winner", "sequence"),
    ]  # fmt: skip
    assert (history.outcome, history.verdict) == ("present", "equal")


def test_load_row_after_its_changes_is_not_late() -> None:
    changes = [Change(op="U", seq=5, batch=FIRST), Change(op="R", seq=None, batch=SECOND)]
    assert states(explained(changes, table_schema())) == [(None, "superseded", ""), (5, "winner", "sequence")]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ([Change(op="U", generation=2, seq=1), Change(op="U", seq=9)], "generation"),
        ([Change(op="U", file=LATER), Change(op="D")], "file_order"),
        ([Change(op="D", file=A), Change(op="U", file=B)], "tie_break"),
        ([Change(op="U", batch=SECOND), Change(op="D", batch=FIRST)], "batch"),
        (in_file(Change(op="D"), Change(op="U"))[::-1], "position"),
    ],
)
def test_deciding_order_part_is_named(changes: list[Change], part: str) -> None:
    """The first of two changes is the higher one."""
    schema = table_schema()
    history = explained(changes, schema)
    assert [change.facts["op"] for change in history.changes] == [changes[1].op, changes[0].op]
    assert [change.decided_by for change in history.changes] == ["", part]
    assert history.changes[-1].state == "winner"


def test_forced_change_wins_over_a_higher_sequence() -> None:
    schema = replace(
        table_schema(force_update="force"),
        data=(*table_schema().data, Column("force", parse_type("boolean"))),
    )
    changes = table([Change(op="U", v="a", seq=9), Change(op="U", v="b", seq=5, batch=SECOND)], schema)
    changes = changes.add_column(2, "force", pa.array([False, True]))
    history = key_history(changes, changes.slice(1), schema, ("1",), 1)
    assert states(history) == [(9, "superseded", ""), (5, "winner", "force_update")]
    assert [change.forced for change in history.changes] == [False, True]
    assert history.verdict == "equal"


def test_delete_and_sweep_leave_no_row() -> None:
    schema, gone = table_schema(), [Change(op="R", seq=None), Change(op="D", seq=5)]
    deleted = explained(gone, schema)
    assert (deleted.outcome, deleted.verdict, deleted.changes[-1].state) == ("deleted", "equal", "winner")
    swept = explained(gone[:1], schema, swept=2)
    assert (swept.outcome, swept.verdict, swept.changes[-1].state) == ("swept", "equal", "swept")
    assert explained([], schema).outcome == "no_changes"


@pytest.mark.parametrize(
    ("stored", "verdict"),
    [([], "missing"), ([Change(op="U", v="other")], "different"), ([Change(op="U", v="v")], "equal")],
)
def test_replica_is_compared_by_value(stored: list[Change], verdict: str) -> None:
    assert explained([Change(op="U", v="v")], table_schema(), stored=stored).verdict == verdict


def test_key_update_names_the_other_key() -> None:
    image = Column("BI_id", parse_type("bigint"))
    schema = replace(table_schema(), before=(image,), before_of_key={"id": "BI_id"})
    changes = table([Change(op="I", id=1, v="a", seq=4), Change(op="U", id=2, v="a", seq=5)], schema)
    changes = changes.add_column(2, "BI_id", pa.array([None, 1], pa.int64()))
    assert with_key(changes, schema, ("1",)).num_rows == 2
    left = key_history(changes, changes.slice(0, 0), schema, ("1",), 1)
    assert [(c.facts["op"], c.moved_from, c.moved_to) for c in left.changes] == [
        ("I", None, None), ("D", None, '{"id": "2"}'),
    ]  # fmt: skip
    assert (left.outcome, left.verdict) == ("deleted", "equal")
    (come,) = key_history(changes.slice(1), changes.slice(1), schema, ("2",), 1).changes
    assert (come.facts["op"], come.moved_from, come.moved_to) == ("U", '{"id": "1"}', None)


@pytest.mark.parametrize(
    ("kind", "values", "key", "found"),
    [
        ("bigint", [5, 50, None, 5], "5", [0, 3]),
        ("string", ["5", "05", None, " 5"], "5", [0]),
        ("decimal(5,2)", [Decimal("5.00"), Decimal("5.01")], "5", [0]),
        ("double", [5.0, 5.5, None], "5", [0]),
        ("date", [date(2024, 2, 29), date(2024, 3, 1)], "2024-02-29", [0]),
        ("boolean", [True, False, None], "true", [0]),
    ],
)
def test_rows_of_a_key_match_by_text(kind: str, values: list[Any], key: str, found: list[int]) -> None:
    sql = parse_type(kind)
    schema = replace(table_schema(), data=(Column("id", sql),))
    rows = pa.table({"id": pa.array(values, arrow_type(sql)), "at": range(len(values))})
    assert with_key(rows, schema, (key,)).column("at").to_pylist() == found
    assert [at for at, texts in enumerate(key_texts(rows, schema)) if texts == (key,)] == found


def test_the_highest_changes_are_read() -> None:
    schema = table_schema()
    rows = table([Change(op="U", seq=seq) for seq in (3, 1, 5, 2)] + [Change(op="R", seq=None, generation=2)], schema)
    found = highest(rows, 3)
    assert found.count == 5
    assert [gddl["sequence"] for gddl in found.rows.column(GDDL).to_pylist()] == [3, 5, None]


def test_replica_row_is_a_record() -> None:
    schema = table_schema()
    (row,) = replica_records(table([Change(op="U", v='"', seq=7)], schema), schema)
    assert (row["record"], row["sequence"], row["op"]) == ('{"id":1,"v":"\\""}', 7, "U")
