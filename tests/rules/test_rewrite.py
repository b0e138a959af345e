"""What stored changes become when the row has changed: order, before images, types, and what was rescued."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.applied_settings import settings_of
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import GDDL, RESCUED, Column, Schema
from spark_jobs.rooms.dialects.protocol import dialect_of
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.batch_schema import Stored
from spark_jobs.rules.masks import hashed
from spark_jobs.rules.rewrite import Rewrite, plan_rewrite, rewritten

_DATA = {"id": "bigint", "v": "string", "n": "int", "at": "bigint"}


def row(**given: Any) -> TableSpec:
    return decode(TableSpec, {"table": "s.t", "keys": ["id"], "sequence_by": ["at"], **given})


def planned(spec: TableSpec, was: TableSpec | None, *, before: dict[str, str] | None = None, **options: Any) -> Rewrite:
    """
    Args:
        was: the row of the last batch; None: no ledger says it.
        before: stored before images, to their types.
    """
    data, images = (
        Schema(tuple(Column(name, parse_type(kind)) for name, kind in given.items())) for given in (_DATA, before or {})
    )
    ordered = options.pop("ordered", ("at",))
    state = TableState(
        batch=1, keys=("id",), sequence_by=ordered, sequence_type="bigint" if ordered else None,
        schemas=({**_DATA, **(before or {})},), applied=None if was is None else settings_of(was),
    )  # fmt: skip
    stored = Stored(data=data, before=images, rescued=options.pop("rescued", False))
    return plan_rewrite(dialect_of(spec), stored, state, **options)


def columns_of(how: Rewrite) -> dict[str, str]:
    return {column.name: str(column.type) for column in (*how.schema.data, *how.schema.before)}


@pytest.mark.parametrize(("now", "kept"), [(("v",), "string"), (("at",), "bigint")])
def test_order_is_that_of_the_row(now: tuple[str, ...], kept: str) -> None:
    how = planned(row(sequence_by=now), row())
    assert (how.schema.sequence, how.schema.sequence_type, how.reordered) == (now, kept, now != ("at",))


def test_order_by_a_column_that_is_not_stored_needs_files() -> None:
    with pytest.raises(FatalError, match="lacks a column of the sequence") as caught:
        planned(row(sequence_by=("elsewhere",)), row())
    assert caught.value.code == "REBUILD_NEEDS_FILES"


def test_table_that_nothing_has_ordered_yet_is_planned() -> None:
    spec = row(sequence_by=(), dialect="debezium")
    how = planned(spec, spec, ordered=None)
    assert (how.schema.sequence, how.reordered) == ((), False)


def test_before_image_of_a_column_that_is_declared_text_becomes_text() -> None:
    spec = row(before_image_prefix="old_", options={"types": {"n": "string"}})
    found = columns_of(planned(spec, spec, before={"old_n": "int"}))
    assert (found["n"], found["old_n"], found["at"]) == ("string", "string", "bigint")


@pytest.mark.parametrize(("was", "now"), [("old_", None), ("old_", "before_")])
def test_stored_images_need_their_prefix(was: str, now: str | None) -> None:
    with pytest.raises(FatalError, match="old_v are stored before images") as caught:
        planned(row(before_image_prefix=now), row(before_image_prefix=was), before={"old_v": "string"})
    assert caught.value.code == "REBUILD_NEEDS_FILES"


def test_columns_that_become_before_images_are_taken_as_such() -> None:
    """The row without a prefix had them as data."""
    how = planned(row(before_image_prefix="old_"), row(), before={"old_v": "string"})
    assert "old_v" in columns_of(how)


@pytest.mark.parametrize(("rescued", "kept"), [
    ('{"secret":"a"}', None),
    ('{"secret":"a","_file_path":"/l/a"}', None),
    ('{"secret":"a","more":1.10,"_file_path":"/l/a"}', '{"more":1.10,"_file_path":"/l/a"}'),
    ('{"more":1.10}', '{"more":1.10}'),
    (None, None),
])  # fmt: skip
def test_rescued_values_of_a_column_that_is_excluded_go(rescued: str | None, kept: str | None) -> None:
    """The file's name stays with what it says something of."""
    policy = {"new_column": "rescue"}
    how = planned(row(exclude_columns=["secret"], schema_evolution=policy), row(schema_evolution=policy), rescued=True)
    assert rescued_after(rescued, how) == [kept]


@pytest.mark.parametrize(
    ("value", "text"), [('"a"', "a"), ('"1.10"', "1.10"), ("1.10", "1.1"), ('{"x":1}', '{"x":"1"}')]
)
def test_rescued_values_of_a_column_that_is_masked_are_hashed(value: str, text: str) -> None:
    """As values of columns are."""
    policy = {"new_column": "rescue"}
    how = planned(row(mask={"x": "hash"}, schema_evolution=policy), row(schema_evolution=policy), rescued=True)
    assert rescued_after(f'{{"x":{value},"y":{value}}}', how) == [
        f'{{"x":"{hashed(text.encode(), "hash")}","y":{value}}}'
    ]


def rescued_after(rescued: str | None, how: Rewrite) -> list[str | None]:
    gddl = arrow_type(parse_type(how.schema.gddl_type))
    stored = {
        "id": pa.array([1]), "v": pa.array(["a"]), "n": pa.array([1], pa.int32()), "at": pa.array([5]),
        RESCUED: pa.array([rescued], pa.string()),
        GDDL: pa.array([{"sequence": 5, "op": "I", "batch_id": "000000000001", "position": 0, "schema": 0}], gddl),
    }  # fmt: skip
    found: list[str | None] = rewritten(pa.table(stored), how).column(RESCUED).to_pylist()
    return found
