"""Facts to proposals: what size, rhythm and key a table gets, and what keeps it from going to and fro."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_gddl.contract.spec import DEFAULT_TIERS, TierSpec
from airflow_gddl.onboarding.database import best_key
from airflow_gddl.onboarding.rules import (
    DAY,
    Activity,
    Bounds,
    KeyFact,
    Observed,
    Proposal,
    TableFacts,
    dropped,
    propose,
)

MB = 1024**2
BOUNDS = Bounds(small=128 * MB, medium=1024 * MB)
KEY = KeyFact(columns=("id",), evidence="primary key t_pkey")
NOW = 1_700_000_000.0


def facts(**more: Any) -> TableFacts:
    return TableFacts(**{"table": "shop.t", "key": KEY, **more})


def sized(size: int | None, before: str | None = None) -> str:
    known = None if before is None else Proposal(table="shop.t", keys=("id",), fields={"size": before})
    return str(propose(facts(size_bytes=size), BOUNDS, known).fields.get("size", "small"))


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
    assert sized(size) == expected


@pytest.mark.parametrize(
    ("size", "before", "expected"),
    [
        (129 * MB, "small", "medium"),
        (100 * MB, "medium", "medium"),
        (64 * MB, "medium", "small"),
        (600 * MB, "large", "large"),
        (512 * MB, "large", "medium"),
        (None, "large", "large"),
    ],
)
def test_an_outgrown_tier_is_left_at_once_and_a_too_large_one_only_well_below_its_bound(
    size: int | None, before: str, expected: str
) -> None:
    assert sized(size, before) == expected


def test_bounds_are_those_of_the_tiers() -> None:
    assert Bounds.of(DEFAULT_TIERS) == BOUNDS
    assert Bounds.of({"small": TierSpec(task_max_bytes=5)}) == Bounds(small=5, medium=1024 * MB)
    assert Bounds.of({"small": TierSpec(task_max_bytes=5 * 1024 * MB)}).medium == 5 * 1024 * MB


def rhythm(activity: Activity | None, before: Proposal | None = None) -> tuple[Any, Any]:
    fields = propose(facts(activity=activity), BOUNDS, before).fields
    return fields.get("priority"), fields.get("schedule")


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
    assert rhythm(Activity(changes=changes, since=NOW - days * DAY, until=NOW)) == expected


def test_the_last_counter_is_preferred_to_the_database_s_period() -> None:
    before = Proposal(table="shop.t", keys=("id",), observed=Observed(counter=100, at=NOW - 10 * DAY))
    looked = Activity(counter=100, changes=9_000_000, since=NOW - 3 * DAY, until=NOW)
    assert rhythm(looked, before) == ("low", "@daily")
    assert propose(facts(activity=looked), BOUNDS, before).evidence["schedule"] == "0 changes in 10.0 days"


def test_a_reset_counter_is_not_compared_with_earlier_values() -> None:
    before = Proposal(table="shop.t", keys=("id",), observed=Observed(counter=500, at=NOW - 10 * DAY))
    assert rhythm(Activity(counter=3, changes=0, since=NOW - 2 * DAY, until=NOW), before) == (None, None)


def test_the_last_proposal_is_kept_without_new_data() -> None:
    fields = {"priority": "high", "schedule": "*/15 * * * *"}
    before = Proposal(table="shop.t", keys=("id",), fields=fields, observed=Observed(counter=5, at=NOW - 60))
    assert rhythm(Activity(counter=6, until=NOW), before) == ("high", "*/15 * * * *")
    assert rhythm(None, before) == ("high", "*/15 * * * *")


@pytest.mark.parametrize(("a_day", "expected"), [(500_000, "*/15 * * * *"), (499_999, None)])
def test_a_busy_table_stays_busy_until_it_is_well_below_the_bound(a_day: int, expected: str | None) -> None:
    before = Proposal(table="shop.t", keys=("id",), fields={"priority": "high", "schedule": "*/15 * * * *"})
    assert rhythm(Activity(changes=10 * a_day, since=NOW - 10 * DAY, until=NOW), before)[1] == expected


def test_a_table_without_a_key_is_not_enabled() -> None:
    made = propose(facts(key=None), BOUNDS)
    assert (made.keys, dict(made.fields)) == ((), {"enabled": False})
    assert made.evidence["keys"] == "no key was found"


def test_a_dropped_table_stops_and_keeps_everything_else() -> None:
    made = dropped(Proposal(table="shop.t", keys=("id",), fields={"size": "large"}))
    assert (made.keys, dict(made.fields)) == (("id",), {"size": "large", "enabled": False})


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
