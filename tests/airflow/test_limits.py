"""No task and no run goes on for ever, and a pack is late when its most urgent table would be."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.topology.pipelines import pipelines
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


def test_a_pack_has_the_freshness_of_its_most_urgent_table() -> None:
    specs = [
        TableSpec(table=f"shop.t{n}", keys=("id",), source="shop", freshness=freshness)
        for n, freshness in enumerate(("2h", None, "30m", "1d"))
    ]
    (pipeline,) = pipelines(specs, DEFAULT_TIERS)
    assert pipeline.freshness == 1800
    (without,) = pipelines(specs[1:2], DEFAULT_TIERS)
    assert without.freshness is None
