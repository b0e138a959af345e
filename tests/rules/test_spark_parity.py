"""Expressions of Spark that stand for a rule, against the rule (docs/design.md, section 8)."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from airflow_gddl.contract.spec import DeleteMode
from spark_jobs.engines.spark.merge import all_later, all_new, single
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.fold import FIRST, net_changes
from spark_jobs.rules.merge import ACTION, StoredState, decide
from spark_jobs.rules.order import events
from tests.conftest import SPARK
from tests.rules.changes import Change, in_file, table, table_schema


def frame(rows: pa.Table) -> DataFrame:
    return SPARK.for_table().createDataFrame(rows)


def rows_of(found: pa.Table | DataFrame, columns: list[str]) -> list[str]:
    rows = found.toArrow() if isinstance(found, DataFrame) else found
    return sorted(repr(row) for row in rows.select(columns).to_pylist())


def net_of(changes: list[Change], schema: TableSchema) -> pa.Table:
    return net_changes(events(table(changes, schema), schema), schema, partial=schema.partial)


def test_single_change_is_its_net_change() -> None:
    schema, chosen = table_schema(), random.Random(1)  # noqa: S311 - any values do
    changes = in_file(*(Change(op=chosen.choice("RIUD"), id=n, v=str(n), seq=n) for n in range(30)))
    wanted = net_of(changes, schema)
    assert rows_of(single(frame(table(changes, schema)), schema), wanted.column_names) == rows_of(
        wanted, wanted.column_names
    )
    assert FIRST in wanted.column_names


def test_newer_changes_follow_the_rule() -> None:
    """The merge takes an update of a key that isn't stored for an insert, and nothing for a delete of such a key."""
    schema = table_schema()
    stored = net_of([Change(op="I", id=n, v="old", seq=1) for n in range(4)], schema)
    net = net_of([Change(op=op, id=n, v="new", seq=9) for n, op in enumerate("UDIUDI")], schema)
    decided = decide(net, StoredState(replica=stored), schema, partial=False)
    wanted = {row["id"]: row[ACTION] for row in decided.to_pylist()}
    found = {row["id"]: row[ACTION] for row in all_later(frame(net)).toArrow().to_pylist()}
    assert wanted == {0: "update", 1: "delete", 2: "update", 3: "update", 4: None, 5: "insert"}
    assert found == {0: "update", 1: "delete", 2: "update", 3: "update", 4: "delete", 5: "update"}


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_empty_replica_gets_the_inserts(delete: DeleteMode) -> None:
    schema, chosen = table_schema(delete=delete), random.Random(2)  # noqa: S311 - any values do
    changes = in_file(*(Change(op=chosen.choice("RIUD"), id=n % 12, v=str(n), seq=n) for n in range(40)))
    net = net_of(changes, schema)
    nothing = net.slice(0, 0)
    decided = decide(net, StoredState(replica=nothing), schema, partial=schema.partial)
    inserted = decided.filter(decided.column(ACTION).is_valid())
    columns = [*schema.columns, GDDL]
    assert rows_of(all_new(frame(net), schema), columns) == rows_of(inserted, columns)
