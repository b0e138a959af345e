"""Checks of a PostgreSQL that onboarding proposes as expectations hold for the same rows here and there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
import yaml

from airflow_gddl.metadata.expression_text import parsed
from airflow_gddl.tools.onboarding.database import Database
from spark_jobs.rules.evaluate import of_table
from tests.one_task.postgres import postgres

COLUMNS = {
    "i": ("int", [None, -3, 0, 3], pa.int32()),
    "n": ("numeric(6,2)", [None, Decimal("-0.50"), Decimal("2.49"), Decimal("3.00")], pa.decimal128(6, 2)),
    "s": ("varchar(9)", [None, "", "a", "It's"], pa.string()),
    "t": ("text", [None, "a", "B%"], pa.string()),
    "d": ("date", [None, date(2020, 2, 29), date(2021, 1, 1)], pa.date32()),
    "f": ("double precision", [None, 0.5, -1.0], pa.float64()),
}
SAME = {
    "compared": "i > 0",
    "two": "i > 0 OR n < 2.5",
    "either": "i IS NOT NULL OR s IS NOT NULL",
    "listed": "s IN ('a', 'It''s')",
    "listed_text": "t IN ('a', 'c')",
    "not_listed": "i NOT IN (3, 4)",
    "single": "s = 'a'",
    "other": "s <> t",
    "patterned": "t LIKE 'B%'",
    "dated": "d >= DATE '2020-12-31'",
    "between": "n BETWEEN -0.5 AND i",
    "sum": "n * 2 + n > 3",
    "negative": "NOT (i < -1)",
    "long": "length(s) < 2 AND lower(t) = 'a'",
    "real": "f > 0 AND f < 1",
    "wide": "i::numeric > 1.5",
    "filled": "coalesce(t, 'a') <> 'a'",
}
LEFT = {
    "divided": "i / 2 = 1",
    "cut": "n::int = 2",
    "rounded": "n::numeric(4,1) = 2.5",
    "joined": "s || t = 'aa'",
    "padded": "c = 'ab'",
    "asked": "s ~ '^a'",
    "called": "position('a' in t) = 1",
    "number": "i::text = '3'",
    "sum_of_two_types": "i * 2 + n > 3",
    "boolean_cast": "i::boolean",
}


@pytest.fixture(scope="module")
def source() -> Iterator[sa.Engine]:
    with postgres() as engine:
        yield engine


def test_proposed_checks_hold_for_the_same_rows(source: sa.Engine) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    checks = ", ".join(f"CONSTRAINT {name} CHECK ({text})" for name, text in (SAME | LEFT).items())
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in itertools.product(*(c[1] for c in COLUMNS.values()))]
    with source.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE declared (id int PRIMARY KEY, {columns}, c char(3), {checks})"))
        connection.execute(sa.text(f"CREATE TABLE plain ({columns})"))
        places = ", ".join(f":{name}" for name in COLUMNS)
        connection.execute(sa.text(f"INSERT INTO plain VALUES ({places})"), rows)
    environ = {"SHOP_DB": source.url.render_as_string(hide_password=False)}
    facts = Database("SHOP_DB", environ).read(frozenset({"public"}), frozenset({"public.declared"}))
    proposed, left = facts.tables[0].remarks[0].removeprefix("constraints? ").split("; left: ")
    rules = {name: one["rule"] for name, one in yaml.safe_load(f"{{{proposed}}}")["expect"].items()}
    assert (set(rules), {name for name in LEFT if f"CHECK {name} (" in left}) == (set(SAME), set(LEFT))
    for name, rule in rules.items():
        found = f"SELECT {', '.join(COLUMNS)}, coalesce(({SAME[name]}), true) AS holds FROM plain"
        with source.connect() as connection:
            theirs: list[dict[str, Any]] = [dict(row) for row in connection.execute(sa.text(found)).mappings()]
        table = pa.table({key: pa.array([row[key] for row in theirs], kind[2]) for key, kind in COLUMNS.items()})
        ours = of_table(table, {key: key for key in COLUMNS}.get, "declared").condition(parsed(rule))
        assert len(theirs) == len(rows)
        assert (name, ours.to_pylist()) == (name, [row["holds"] for row in theirs])
