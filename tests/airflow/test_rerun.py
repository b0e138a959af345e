"""`gddl_rerun`: one address for every table, in whatever DAG it is."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_gddl.dags.factory import build_dags
from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.runtime.landing.run_request import from_params
from airflow_gddl.version_compat import AirflowException, AirflowFailException
from tests.airflow.stage import Stage
from tests.airflow.stored import store

PACK = "gddl_pack.shop.small.1"


@pytest.fixture
def shop(stage: Stage) -> Stage:
    stage.rows(
        "{table: shop.a, keys: [id]}",
        "{table: shop.b, keys: [id]}",
        "{table: shop.big, keys: [id], size: large}",
        "{table: shop.off, keys: [id], enabled: false}",
    )
    return stage


def find(**params: Any) -> list[dict[str, Any]]:
    task = build_upkeep_dags()["gddl_rerun"].get_task("find")
    found: list[dict[str, Any]] = task.execute({"params": params})
    return found


def test_each_dag_gets_a_request_for_its_tables(shop: Stage) -> None:
    found = find(tables=["shop.b", "shop.big", "shop.a", "shop.a"], action="rebuild", **{"from": None})
    assert found == [
        {"trigger_dag_id": "gddl.shop.big", "conf": {"tables": ["shop.big"], "action": "rebuild"}},
        {"trigger_dag_id": PACK, "conf": {"tables": ["shop.a", "shop.b"], "action": "rebuild"}},
    ]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "no table is named"),
        ({"tables": []}, "no table is named"),
        ({"tables": ["shop.typo", "shop.off"]}, r"no table of the metadata: shop\.typo"),
        ({"tables": ["shop.off"]}, r"no DAG loads shop\.off"),
        ({"table": ["shop.a"], "actions": "rebuild"}, r"actions \(did you mean action\?\), table \(did"),
        ({"tables": ["shop.a"], "action": "erase"}, "no action is called"),
    ],
)
def test_invalid_requests_are_refused(shop: Stage, params: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=rf"OPTION_INVALID.*{said}"):
        find(**params)


def test_keys_that_airflow_adds_are_no_request(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the OpenLineage provider on, `TriggerDagRunOperator` names its task in the conf of the run."""
    adding = pytest.importorskip("airflow.providers.standard.utils.openlineage")
    monkeypatch.setattr(adding, "_is_openlineage_provider_accessible", lambda: True)
    monkeypatch.setattr(adding, "_get_openlineage_parent_info", lambda **_: {"parentRunId": "r", "rootJobName": "j"})
    added = adding.safe_inject_openlineage_properties_into_dagrun_conf
    (request,) = find(**added({"tables": ["shop.a"]}, SimpleNamespace()))
    assert request["conf"] == {"tables": ["shop.a"]}
    conf = added(request["conf"], SimpleNamespace())
    assert "openlineage" in conf
    assert from_params(conf).tables == ("shop.a",)


def test_the_form_takes_a_name_with_its_source(shop: Stage) -> None:
    """`TABLE_AMBIGUOUS` tells to write it."""
    for params in (build_dags()[PACK].params, build_upkeep_dags()["gddl_rerun"].params):
        assert params.get_param("tables").resolve(["shop:shop.a", "shop.b"])
        with pytest.raises((ValueError, AirflowException), match="does not match"):  # the second in Airflow 3.0
            params.get_param("tables").resolve(["no table:"])
    assert find(tables=["shop:shop.a"])[0]["conf"] == {"tables": ["shop.a"]}


@pytest.mark.usefixtures("database")
@pytest.mark.skipif(not hasattr(RuntimeTaskInstance, "get_dag"), reason="needs Airflow 3.2 or newer")
def test_a_paused_dag_fails_the_request(stage: Stage) -> None:
    """Its run would stay queued, and the rerun be green."""
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.paused, keys: [id], size: large}")
    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
        session.flush()
        session.merge(DagModel(dag_id="gddl.shop.paused", bundle_name="dags-folder", is_stale=False, is_paused=True))
    dag = build_upkeep_dags()["gddl_rerun"]
    done = dag.test(logical_date=datetime(2027, 1, 3, tzinfo=UTC), run_conf={"tables": ["shop.a", "shop.paused"]})
    states = {ti.task_id: str(ti.state) for ti in done.get_task_instances()}
    assert states == {"find": "failed", "rerun": "upstream_failed", "refused": "upstream_failed"}

    instance = SimpleNamespace(get_dag=lambda dag_id: SimpleNamespace(is_paused=dag_id == "gddl.shop.paused"))
    context: Any = {"params": {"tables": ["shop.a", "shop.paused"]}, "ti": instance}
    with pytest.raises(AirflowFailException, match=r"DAG_PAUSED.*gddl\.shop\.paused.*unpause it"):
        dag.get_task("find").execute(context)


@pytest.mark.usefixtures("database")
@pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False")
def test_runs_are_triggered_by_airflow_itself(shop: Stage) -> None:
    big = build_dags()["gddl.shop.big"]
    big.test(logical_date=datetime(2027, 1, 1, tzinfo=UTC))
    store(big)
    conf = {"tables": ["shop.big", "shop.off"], "action": "rebuild"}
    done = build_upkeep_dags()["gddl_rerun"].test(logical_date=datetime(2027, 1, 2, tzinfo=UTC), run_conf=conf)
    states = {(ti.task_id, ti.map_index): str(ti.state) for ti in done.get_task_instances()}
    # A table that no DAG loads stops no other, and is named.
    assert states == {("find", -1): "success", ("rerun", 0): "success", ("refused", -1): "failed"}
    task = build_upkeep_dags()["gddl_rerun"].get_task("refused")
    found = SimpleNamespace(xcom_pull=lambda **_: ["[OPTION_INVALID] no DAG loads shop.off"])
    with pytest.raises(AirflowFailException, match=r"shop\.off"):
        task.execute({"ti": found})
    task.execute({"ti": SimpleNamespace(xcom_pull=lambda **_: None)})
    with create_session() as session:
        runs = session.scalars(select(DagRun).where(DagRun.dag_id == "gddl.shop.big")).all()
        assert [run.conf["tables"] for run in runs if run.conf] == [["shop.big"]]
