"""Rows of older generations."""

from __future__ import annotations

from spark_jobs.rules.sweep import sweepable, swept
from tests.rules.changes import Change, table, table_schema


def test_rows_of_older_generations_are_counted_and_go() -> None:
    schema = table_schema()
    rows = table([Change(op="I", id=at, generation=at) for at in (1, 2, 3)], schema)
    assert sweepable(rows, 3, schema) == (2, 3)
    left, count = swept(rows, 3, schema)
    assert (left.column("id").to_pylist(), count) == ([3], 2)


def test_table_without_rows_has_none_to_count() -> None:
    schema = table_schema()
    nothing = table([], schema)
    assert sweepable(nothing, 3, schema) == (0, 0)
    assert swept(nothing, 3, schema)[1] == 0
