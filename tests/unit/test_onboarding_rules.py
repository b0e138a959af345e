"""Facts to proposals: what size, rhythm and key a table gets."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_gddl.contract.spec import DEFAULT_TIERS, TierSpec
from airflow_gddl.tools.onboarding.database import best_key
from airflow_gddl.tools.onboarding.rules import (
    DAY,
    Activity,
    KeyFact,
    TableFacts,
    propose,
)

MB = 1024**2
KEY = KeyFact(columns=("id",), evidence="primary key t_pkey")
NOW = 1_700_000_000.0


def facts(**more: Any) -> TableFacts:
    return TableFacts(**{"table": "shop.t", "key": KEY, **more})


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (None, "small"),
        (0, "small"),
        (128 * MB, "small"),
        (128 * MB + 1, "medium"),
        (1024 * MB, "medium"),
        (1024 * MB + 1, "large"),
    ],
)
def test_the_size_is_the_smallest_tier_that_takes_the_table(size: int | None, expected: str) -> None:
    assert propose(facts(size_bytes=size), DEFAULT_TIERS).fields.get("size", "small") == expected


def test_bounds_are_those_of_the_tiers() -> None:
    small = {"small": TierSpec(task_max_bytes=5)}
    assert [propose(facts(size_bytes=size), small).fields.get("size") for size in (5, 6)] == [None, "medium"]


@pytest.mark.parametrize(
    ("changes", "days", "expected"),
    [
        (3_000_000, 2, ("high", "*/15 * * * *")),
        (1_999_999, 2, (None, None)),
        (0, 8, ("low", "@daily")),
        (0, 6, (None, None)),
        (1, 8, (None, None)),
        (9_000_000, 0.5, (None, None)),
    ],
)
def test_the_rhythm_follows_from_changes_a_day_once_a_day_was_seen(
    changes: int, days: float, expected: tuple[Any, Any]
) -> None:
    fields = propose(facts(activity=Activity(changes=changes, since=NOW - days * DAY, until=NOW)), DEFAULT_TIERS).fields
    assert (fields.get("priority"), fields.get("schedule")) == expected


def test_a_table_without_a_key_is_not_enabled() -> None:
    made = propose(facts(key=None), DEFAULT_TIERS)
    assert (made.keys, dict(made.fields)) == ((), {"enabled": False})
    assert made.evidence == "no key was found"


COLUMNS = [{"name": "a", "nullable": False}, {"name": "b", "nullable": False}, {"name": "c", "nullable": True}]


def index(*columns: str, **more: Any) -> dict[str, Any]:
    return {"name": "_".join(columns), "column_names": list(columns), "unique": True, **more}


@pytest.mark.parametrize(
    ("primary", "unique", "expected"),
    [
        ({"name": "pk", "constrained_columns": ["b", "a"]}, [index("a")], (("b", "a"), "primary key pk")),
        ({"constrained_columns": []}, [index("a", "b"), index("b")], (("b",), "unique index b")),
        (None, [index("c")], None),
        (None, [index("a", unique=False)], None),
        (None, [index("a", dialect_options={"postgresql_where": "a > 1"})], None),
        (None, [index("a", expressions=["lower(a)"])], None),
        (None, [{"name": "u", "column_names": ["a", "b"]}], (("a", "b"), "unique index u")),
        (None, [index("a"), {"name": "e", "column_names": [None], "unique": True}], (("a",), "unique index a")),
        (None, [], None),
    ],
)
def test_the_key_is_the_declared_one_else_a_whole_unique_index_without_nulls(
    primary: Any, unique: Any, expected: Any
) -> None:
    found = best_key(COLUMNS, primary, unique)
    assert (None if found is None else (found.columns, found.evidence)) == expected
