"""No task and no run goes on for ever, a pack is late when its most urgent table would be, and texts fit Airflow."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models.dag import DagModel, DagTag
from airflow.models.taskinstance import TaskInstance

from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.metadata.settings import build_tiers
from tests.airflow.bag import ROOT, kept, parse
from tests.airflow.stage import Stage

HOUR = timedelta(hours=1)
PACK = "gddl_pack.shop.small.1"


@pytest.fixture
def dags(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """As the scheduler reads them."""
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", "[{}]")  # so that the watch is there
    stage.write("gddl.yaml", "landing: ../landing\nlake: ../lake\ntiers: {medium: {run_timeout: 90m}}\n")
    stage.rows(
        "{table: shop.a, keys: [id]}",
        "{table: shop.b, keys: [id], size: medium}",
        "{table: shop.c, keys: [id], size: large}",
        "{table: shop.d, keys: [id], schedule: continuous, size: large}",
    )
    bag = parse(Path(ROOT / "dags"))
    assert bag.import_errors == {}
    return {dag_id: kept(dag) for dag_id, dag in bag.dags.items()}


def test_every_task_and_every_run_has_a_limit(dags: dict[str, Any]) -> None:
    assert len(dags) == 8
    for dag in dags.values():
        limits = [task.execution_timeout for task in dag.tasks]
        assert all(limits), dag.dag_id
        assert dag.dagrun_timeout > max(limits)


def test_the_tier_says_how_long_a_load_may_take(dags: dict[str, Any]) -> None:
    times = {
        dag_id: (dags[dag_id].get_task("initial_load").execution_timeout, dags[dag_id].dagrun_timeout)
        for dag_id in (PACK, "gddl.shop.b", "gddl.shop.c")
    }
    assert times == {
        PACK: (6 * HOUR, 13 * HOUR),
        "gddl.shop.b": (1.5 * HOUR, 4 * HOUR),
        "gddl.shop.c": (24 * HOUR, 49 * HOUR),
    }
    landed = dags["gddl.shop.c"].get_task("landed")
    assert (landed.execution_timeout, landed.start_trigger_args.timeout) == (HOUR, HOUR)
    assert dags["gddl.shop.d"].get_task("continuous_load").execution_timeout == 30 * HOUR


def test_a_continuous_job_without_an_end_has_no_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__CONTINUOUS_HOURS", "0")
    stage.rows("{table: shop.d, keys: [id], schedule: continuous, size: large}")
    dag = build_dags()["gddl.shop.d"]
    assert (dag.dagrun_timeout, dag.get_task("continuous_load").execution_timeout) == (None, None)


def room(model: Any, column: str) -> int:
    """Characters that Airflow's database holds."""
    return int(model.__table__.columns[column].type.length)


LONG_CRON = ",".join(["0"] * 600) + " * * * *"
LONG_NAME = f"{'s' * 128}.{'n' * 128}"


@pytest.mark.parametrize("view", ["pack", "group", "mapped", "table"])
def test_texts_of_rows_fit_the_columns_of_airflow_s_database(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    """SQLite takes longer ones, too; PostgreSQL does not, which ends the DAG processor: no DAG of anybody is stored."""
    monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", view)
    more = f'schedule: "{LONG_CRON}", tags: {{{"k" * 300}: {"v" * 300}}}'
    names = [LONG_NAME, *(f"shop.t{n}" for n in range(4))]
    owners = [str(n) * 200 for n in range(5)]
    stage.rows(
        *(f"{{table: {name}, keys: [id], owner: '{owner}', {more}}}" for name, owner in zip(names, owners, strict=True))
    )
    found = build_dags()
    assert len(found) == (5 if view == "table" else 1)
    for dag in found.values():
        assert len(dag.dag_id) <= room(DagModel, "dag_id")
        assert 200 <= len(dag.owner) <= room(DagModel, "owners")
        assert len(dag.timetable.description) <= room(DagModel, "timetable_description")
        assert all(len(tag) <= room(DagTag, "name") for tag in dag.tags)
        assert all(len(task.task_id) <= room(TaskInstance, "task_id") for task in dag.tasks)
        assert all(len(task.pool) <= room(TaskInstance, "pool") for task in dag.tasks)


def test_a_longer_owner_is_refused() -> None:
    (problem,) = check_table(TableSpec(table="shop.a", keys=("id",), source="shop", owner="o" * 201))
    assert (problem.code, problem.path) == ("FIELD_VALUE", ("owner",))


@pytest.mark.parametrize(("field", "most"), [("pool", 249), ("queue", 256)])
def test_a_longer_name_of_a_pool_or_queue_is_refused(field: str, most: int) -> None:
    fits, wrong = ({"t": {field: "x" * length}} for length in (most, most + 1))
    assert build_tiers(fits)[1] == ()
    (problem,) = build_tiers(wrong)[1]
    assert (problem.code, problem.path) == ("FIELD_VALUE", ("tiers", "t", field))
