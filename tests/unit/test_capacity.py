"""What the metadata will cost: counts, hot minutes, pools, quotas, and which advice is given when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from airflow_gddl.capacity import AIRFLOW, MWAA, Metadata, Plan, PlatformLimits, make_plan
from airflow_gddl.capacity.plan import MERGED_TABLE, SHARED_TABLE
from airflow_gddl.capacity.rules import Advice, mwaa_limits, smallest_class
from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec, TierSpec

SUNDAY = date(2026, 11, 1)
EMR = {"execution_role": "arn:a", "entry_point": "s3://a", "application_id": "00f"}


def table(number: int, **fields: Any) -> TableSpec:
    return TableSpec(table=f"shop.t{number:05d}", keys=("id",), **fields)


def tables(many: int, **fields: Any) -> tuple[TableSpec, ...]:
    return tuple(table(number, **fields) for number in range(many))


def planned(rows: Iterable[TableSpec], limits: PlatformLimits = AIRFLOW, today: date = SUNDAY, **more: Any) -> Plan:
    metadata = Metadata(**{"tables": tuple(rows), "tiers": DEFAULT_TIERS, **more})
    return make_plan(metadata, limits, today)


def advice(plan: Plan, code: str) -> Advice:
    (found,) = [one for one in plan.advice if one.code == code]
    return found


def codes(plan: Plan) -> set[str]:
    return {one.code for one in plan.advice}


def figure(plan: Plan, name: str) -> tuple[float, float | None]:
    (found,) = [one for one in plan.figures if one.name == name]
    return found.planned, found.limit


def test_polls_of_landing_folders_are_shown_by_tier_with_their_cost() -> None:
    plan = planned(
        [*tables(300), table(900, size="medium", schedule="@daily"), table(901, size="large", schedule=None)]
    )
    found = {one.name: (one.planned, one.text) for one in plan.figures if one.name.startswith("listings")}
    assert found == {
        "listings_medium": (1, "landing folders polled, medium: $0.00 on S3"),
        "listings_small": (7200, "landing folders polled, small: $0.04 on S3"),
    }


def test_a_small_folder_fits_and_needs_no_change() -> None:
    plan = planned([*tables(300), table(900, size="medium"), table(901, enabled=False)])
    assert (plan.tables, plan.dags, plan.started_by) == (301, 5, {"cron": 3})
    assert plan.runs == 72
    assert [(pool.pool, pool.slots, pool.dags, pool.at_once) for pool in plan.pools] == [
        ("gddl_medium", 4, 1, 1),
        ("gddl_small", 4, 2, 2),
    ]
    assert (plan.advice, plan.fits) == ((), True)
    assert figure(plan, "tasks_per_day") == (216 + 300 * 24, None), "mapped tables have an instance in each run"
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


def test_what_merge_costs_is_said_of_the_tables_that_have_it() -> None:
    """Of ten small tables four, by the row; each is loaded every hour."""
    rows = [*tables(6), *(table(100 + number, commit="merge") for number in range(4))]
    (tier,) = planned(rows).tiers
    by_merge = MERGED_TABLE[True]
    assert (tier.merged, tier.direct_seconds, tier.merge_seconds) == (4, SHARED_TABLE["one"], by_merge)
    assert tier.merge_hours == round(4 * 24 * (by_merge - SHARED_TABLE["one"]) / 3600, 2)
    (direct,) = planned(tables(10)).tiers
    assert (direct.merged, direct.merge_hours) == (0, 0.0)
    merging = {**DEFAULT_TIERS, "large": replace(DEFAULT_TIERS["large"], commit="merge")}
    (large,) = planned([table(1, size="large"), table(2, size="large", commit="direct")], tiers=merging).tiers
    assert (large.merged, large.merge_seconds) == (1, MERGED_TABLE[False])


def test_views_cost_tasks_and_large_fleets_have_none_for_each_table() -> None:
    views = ("pack", "mapped", "group")
    plans = {view: planned(tables(200, airflow=view)) for view in views}
    tasks = {view: figure(plans[view], "tasks_per_day")[0] for view in views}
    assert tasks == {"pack": 3 * 24, "mapped": 3 * 24 + 200 * 24, "group": 3 * 24 + 3 * 200 * 24}
    cpu = {view: figure(plans[view], "worker_cpu")[0] for view in views}
    assert cpu["group"] == cpu["mapped"] > cpu["pack"], "the scheduler decides two of three"
    assert {view: figure(planned(tables(200, airflow=view)), "dags")[0] for view in ("table", "mapped")} == {
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
    assert (planned(tables(1, schedule=None)).runs, planned(tables(1, schedule=None)).fullest_minute) == (0, None)


def test_a_hot_minute_is_named_with_its_schedule_and_tables() -> None:
    plan = planned(
        [*tables(50, size="medium"), *(table(1000 + n, size="medium", schedule="0 6 * * *") for n in range(30))]
    )
    assert plan.fullest_minute == "06:00"
    found = advice(plan, "STARTS_CROWDED")
    assert "06:00" in found.message
    assert "'0 6 * * *' of 30 runs" in found.change
    assert (found.tables[0], found.count, found.level) == ("shop.t01000", 30, "advice")


@pytest.mark.parametrize(
    ("schedule", "way_out"),
    [("@hourly", "tables_per_job"), ("@daily", "other hours"), ("*/15 * * * *", "a preset")],
)
def test_how_to_spread_depends_on_the_schedule(schedule: str, way_out: str) -> None:
    plan = planned(tables(1300, size="medium", schedule=schedule))
    assert way_out in advice(plan, "STARTS_CROWDED").change


@pytest.mark.parametrize(("dags", "files"), [(2400, None), (3000, 2), (9990, 4)])
def test_more_dags_than_one_file_can_hold_are_named(dags: int, files: int | None) -> None:
    plan = planned(tables(dags, size="medium", schedule="@daily"))
    assert ("DAG_FILE_LARGE" in codes(plan)) is (files is not None)
    if files is not None:
        assert f"{files} DAG files" in advice(plan, "DAG_FILE_LARGE").change


def test_a_class_that_is_too_small_is_answered_with_the_one_that_fits() -> None:
    rows = tables(300, size="medium", schedule="0 5 * * *")
    plan = planned(rows, mwaa_limits("mw1.medium"), runner="databricks", settings={"wheel": "/Volumes/a.whl"})
    found = advice(plan, "DAGS_OVER_CLASS")
    assert (found.level, plan.fits) == ("limit", False)
    assert "302 DAGs" in found.message
    assert "--mwaa-class mw1.large" in found.change
    assert "tiers.medium.tables_per_job" in found.change
    larger = planned(rows, mwaa_limits("mw1.2xlarge"), runner="databricks", settings={"wheel": "/Volumes/a.whl"})
    assert advice(larger, "CLASS_LARGER_THAN_NEEDED").change == "--mwaa-class mw1.large"


def test_classes_hold_what_is_documented() -> None:
    assert {name: made.dags for name, made in MWAA.items()} == {
        "mw1.micro": 25,
        "mw1.small": 50,
        "mw1.medium": 250,
        "mw1.large": 1000,
        "mw1.xlarge": 2000,
        "mw1.2xlarge": 4000,
    }
    assert [smallest_class(dags) for dags in (25, 26, 4000, 4001)] == ["mw1.micro", "mw1.small", "mw1.2xlarge", None]
    limits = mwaa_limits("mw1.large", workers=5, schedulers=3)
    assert (limits.tasks, limits.cpus, limits.triggers, limits.schedulers) == (100, 20, 3000, 3)


def test_jobs_belong_elsewhere_than_on_mwaa() -> None:
    assert "JOBS_ON_MWAA" in codes(planned(tables(3), mwaa_limits("mw1.small")))
    elsewhere = planned(tables(3), mwaa_limits("mw1.small"), runner="emr_serverless", settings=EMR)
    assert "JOBS_ON_MWAA" not in codes(elsewhere)


def test_packs_that_many_schedules_keep_apart() -> None:
    scattered = planned(table(n, schedule=f"{n} * * * *") for n in range(60))
    found = advice(scattered, "PACKS_SCATTERED")
    assert (found.count, found.level) == (60, "advice")
    assert "60 packs where 2 would do, 60 of them of one table" in found.message
    assert "60 schedules" in found.message
    assert "PACKS_SCATTERED" not in codes(planned(tables(2000)))


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


def test_continuous_jobs_hold_triggers_remotely_and_workers_locally() -> None:
    rows = tables(1200, size="medium", schedule="continuous")
    here, elsewhere = planned(rows), planned(rows, runner="databricks", settings={"wheel": "/V/a.whl"})
    assert (here.runs, here.started_by) == (0, {"continuous": 1200})
    assert figure(here, "triggers") == (0, 1000)
    assert figure(here, "worker_tasks") == (1200, 32)
    assert "WORKERS_SHORT" in codes(here)
    assert figure(elsewhere, "triggers") == (1200, 1000)
    reported = advice(elsewhere, "TRIGGERS_OVER_CAPACITY")
    assert (reported.count, reported.change[:31]) == (1200, "2 triggerers (--triggers 2000),")
    more = replace(AIRFLOW, triggers=2000)
    assert "TRIGGERS_OVER_CAPACITY" not in codes(
        planned(rows, more, runner="databricks", settings={"wheel": "/V/a.whl"})
    )


def test_triggers_of_starts_alone_are_not_said_to_be_those_of_continuous_pipelines() -> None:
    rows = [*tables(1001, size="medium", schedule="0 6 * * *"), table(2000, size="medium", schedule="continuous")]
    reported = advice(planned(rows), "TRIGGERS_OVER_CAPACITY")
    assert reported.message == "1,001 triggers at once; the triggerers of airflow serve 1,000"
    assert reported.change == "2 triggerers (--triggers 2000), or starts spread over more minutes"


def test_continuous_pipelines_are_at_work_all_the_time() -> None:
    rows = [*tables(3, size="large", schedule="continuous"), table(9, size="large", schedule="0 6 * * *")]
    assert figure(planned(rows), "worker_tasks") == (4, 32)
    elsewhere = planned(rows, runner="emr_serverless", settings=EMR)
    # Four jobs of a driver and an executor, two cores each; four triggers that wait for them, and one that looks.
    assert (figure(elsewhere, "emr_vcpus"), figure(elsewhere, "triggers")) == ((16, 16), (5, 1000))
    assert figure(planned(rows, runner="databricks", settings={"wheel": "/V/a.whl"}), "databricks_tasks") == (4, 2000)


def test_loads_beyond_the_workers() -> None:
    tiers = {**DEFAULT_TIERS, "medium": replace(DEFAULT_TIERS["medium"], slots=64)}
    plan = planned(tables(64, size="medium", schedule="0 6 * * *"), tiers=tiers)
    assert figure(plan, "worker_tasks") == (64, 32)
    assert "tiers.medium.slots: 64" in advice(plan, "WORKERS_SHORT").change


def test_databricks_queues_and_quotas() -> None:
    tiers = {**DEFAULT_TIERS, "medium": replace(DEFAULT_TIERS["medium"], slots=50)}
    own = {"wheel": "/Volumes/a.whl", "max_concurrent_runs": 10}
    rows = tables(60, size="medium", schedule="0 6 * * *")
    plan = planned(rows, tiers=tiers, runner="databricks", settings=own)
    assert "runners.databricks.max_concurrent_runs: 10 → 50" in advice(plan, "RUNS_QUEUED").change
    assert figure(plan, "databricks_tasks") == (10, 2000)
    assert figure(plan, "databricks_jobs") == (1, 12000)
    # A run waits for machines for minutes, and keeps its trigger and its slot meanwhile.
    assert figure(plan, "triggers") == (110, 1000)
    often = planned(tables(200, size="medium", schedule="* 6 * * *"), runner="databricks", settings=own)
    assert figure(often, "databricks_runs_per_hour") == (12000, 10000)
    assert advice(often, "DATABRICKS_OVER_LIMIT").level == "limit"


def test_the_plan_counts_vcpus_against_the_quota_of_emr() -> None:
    rows = tables(4, size="large", schedule="0 6 * * *")
    plan = planned(rows, runner="emr_serverless", settings=EMR)
    # Four runs at once, each a driver and an executor of two cores.
    assert figure(plan, "emr_vcpus") == (16, 16)
    tiers = {**DEFAULT_TIERS, "large": TierSpec(tasks="many", tables_per_job=1, cores=8, workers=3)}
    plan = planned(rows, tiers=tiers, runner="emr_serverless", settings=EMR)
    assert figure(plan, "emr_vcpus") == (128, 16)
    assert "4 of large with 32 each" in advice(plan, "EMR_OVER_QUOTA").message
    assert planned(rows, replace(AIRFLOW, emr_vcpus=128), tiers=tiers, runner="emr_serverless", settings=EMR).fits


@pytest.mark.timeout(120)  # half a second; work that grows faster than the tables would take minutes
def test_ten_thousand_tables_are_planned_at_once() -> None:
    small = (table(n, source=f"s{n % 5}", freshness="2h") for n in range(9000))
    single = (table(9000 + n, size="medium", schedule="*/15 * * * *" if n % 2 else "@hourly") for n in range(1000))
    rows = [*small, *single]
    plan = planned(rows, mwaa_limits("mw1.large"), runner="databricks", settings={"wheel": "/Volumes/a.whl"})
    assert plan.tables == 10_000
    assert {"DAGS_OVER_CLASS", "STARTS_CROWDED"} <= codes(plan)
