"""What the metadata gives: counts of DAGs, runs and task instances, MWAA's class, and which advice is given when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

import pytest

from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec
from airflow_gddl.tools.capacity.plan import MWAA, Advice, Metadata, Plan, make_plan

SUNDAY = date(2026, 11, 1)


def table(number: int, **fields: Any) -> TableSpec:
    return TableSpec(table=f"shop.t{number:05d}", keys=("id",), **fields)


def tables(many: int, **fields: Any) -> tuple[TableSpec, ...]:
    return tuple(table(number, **fields) for number in range(many))


def planned(rows: Iterable[TableSpec], today: date = SUNDAY) -> Plan:
    return make_plan(Metadata(tables=tuple(rows), tiers=DEFAULT_TIERS), today)


def advice(plan: Plan, code: str) -> Advice:
    (found,) = [one for one in plan.advice if one.code == code]
    return found


def test_a_small_folder_needs_no_change() -> None:
    plan = planned([*tables(300), table(900, size="medium"), table(901, enabled=False)])
    assert (plan.tables, plan.dags, plan.started_by) == (301, 5, {"cron": 3})
    assert plan.runs == 72
    assert plan.advice == ()
    assert plan.task_instances == 216 + 300 * 24, "mapped tables have an instance in each run"
    assert plan.views == {
        "gddl.shop.t00900": "table",
        "gddl_pack.default.small.1": "mapped",
        "gddl_pack.default.small.2": "mapped",
    }
    assert [tier.views for tier in plan.tiers] == [{"table": 1}, {"mapped": 300}]
    assert [(tier.tier, tier.tables, tier.dags, tier.tasks) for tier in plan.tiers] == [
        ("medium", 1, 1, "one"),
        ("small", 300, 2, "one"),
    ]


def test_views_cost_tasks_and_large_fleets_have_none_for_each_table() -> None:
    tasks = {view: planned(tables(200, airflow=view)).task_instances for view in ("pack", "mapped", "group")}
    assert tasks == {"pack": 3 * 24, "mapped": 3 * 24 + 200 * 24, "group": 3 * 24 + 3 * 200 * 24}
    assert {view: planned(tables(200, airflow=view)).dags for view in ("table", "mapped")} == {
        "table": 202,
        "mapped": 3,
    }
    assert [tier.views for tier in planned(tables(501)).tiers] == [{"pack": 501}]


def test_the_busiest_day_counts() -> None:
    rows = [
        table(1, size="medium", schedule="@daily"),
        table(2, size="medium", schedule="0 6 * * 3"),
        table(3, size="medium", schedule="0 7 15 * *"),
    ]
    assert (planned(rows).day, planned(rows).runs) == ("2026-11-04", 2)
    later = planned(rows, today=date(2026, 11, 5))
    assert (later.day, later.runs) == ("2026-11-11", 2)
    assert planned(tables(1, schedule=None)).runs == 0
    continuous = planned(tables(1200, size="medium", schedule="continuous"))
    assert (continuous.runs, continuous.started_by) == (0, {"continuous": 1200})


@pytest.mark.parametrize(("dags", "files"), [(2400, None), (3000, 2), (9990, 4)])
def test_more_dags_than_one_file_can_hold_are_named(dags: int, files: int | None) -> None:
    plan = planned(tables(dags, size="medium", schedule="@daily"))
    assert ("DAG_FILE_LARGE" in {one.code for one in plan.advice}) is (files is not None)
    if files is not None:
        assert f"{files} DAG files" in advice(plan, "DAG_FILE_LARGE").change


@pytest.mark.parametrize("name", MWAA)
def test_the_class_of_mwaa_is_documented_for_as_many_dags(name: str) -> None:
    """As many tables with a DAG each as the class is documented for: upkeep takes two."""
    many = MWAA[name] - 2
    assert planned(tables(many, size="medium", schedule=None)).mwaa_class == name
    following = list(MWAA)[list(MWAA).index(name) + 1 :]
    more = planned(tables(many + 1, size="medium", schedule=None))
    assert more.mwaa_class == (following[0] if following else None)


def test_freshness_that_no_schedule_keeps() -> None:
    rows = [
        table(0, freshness="1h"),
        table(1, freshness="30m"),
        table(2, freshness="2h"),
        table(3, freshness="2h", schedule="@daily"),
        table(4, freshness="1d", schedule=None),
        table(5, freshness="1m", schedule="continuous"),
        table(6, freshness="8d", schedule="0 6 * * 1"),
    ]
    found = [one for one in planned(rows).advice if one.code == "FRESHNESS_TOO_SHORT"]
    assert [one.tables for one in found] == [("shop.t00003",), ("shop.t00000", "shop.t00001"), ("shop.t00004",)]


@pytest.mark.timeout(120)  # half a second; work that grows faster than the tables would take minutes
def test_ten_thousand_tables_are_planned_at_once() -> None:
    small = (table(n, source=f"s{n % 5}", freshness="2h") for n in range(9000))
    single = (table(9000 + n, size="medium", schedule="*/15 * * * *" if n % 2 else "@hourly") for n in range(1000))
    rows = [*small, *single]
    assert planned(rows).tables == 10_000
