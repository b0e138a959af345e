"""Rows of older generations."""

from __future__ import annotations

import pytest

from spark_jobs.rules.sweep import live_by_generation, sweepable, vanishing
from tests.rules.changes import Change, table, table_schema


def test_rows_of_older_generations_are_counted_and_go() -> None:
    schema = table_schema()
    rows = table([Change(op="I", id=at, generation=at) for at in (1, 2, 3)], schema)
    live = live_by_generation(rows, schema)
    assert live == {1: 1, 2: 1, 3: 1}
    assert sweepable(live, 3, schema) == (2, 3)
    assert vanishing(rows, 3, schema).to_pylist() == [True, True, False]


def test_table_without_rows_has_none_to_count() -> None:
    schema = table_schema()
    nothing = table([], schema)
    assert sweepable(live_by_generation(nothing, schema), 3, schema) == (0, 0)
    assert vanishing(nothing, 3, schema).to_pylist() == []


@pytest.mark.parametrize(
    ("live", "lacks"),
    [
        ({1: 10, 2: 11}, (0, 10)), ({1: 10, 2: 7}, (3, 10)), ({1: 10}, (10, 10)), ({2: 5}, (0, 0)),
        ({1: 10, 2: 2, 3: 9}, (1, 10)),
    ],
)  # fmt: skip
def test_load_without_keys_lacks_what_it_is_smaller_by(live: dict[int, int], lacks: tuple[int, int]) -> None:
    assert sweepable(live, max(live) if len(live) > 1 else 2, table_schema(keys=())) == lacks
