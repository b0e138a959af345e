"""`gddl_rerun`: one address for every table, in whatever DAG it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_gddl.dags.factory import build_dags
from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.version_compat import AirflowFailException
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
    found = find(tables=["shop.b", "shop.big", "shop.a", "shop.a"], full_refresh=True, action="run", **{"from": None})
    assert found == [
        {"trigger_dag_id": "gddl.shop.big", "conf": {"tables": ["shop.big"], "full_refresh": True, "action": "run"}},
        {"trigger_dag_id": PACK, "conf": {"tables": ["shop.a", "shop.b"], "full_refresh": True, "action": "run"}},
    ]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "no table is named"),
        ({"tables": []}, "no table is named"),
        ({"tables": ["shop.typo", "shop.a"]}, r"no table of the metadata: shop\.typo"),
        ({"tables": ["shop.off"]}, r"no DAG loads shop\.off"),
        ({"table": ["shop.a"], "fullrefresh": True}, r"fullrefresh \(did you mean full_refresh\?\), table \(did"),
        ({"tables": ["shop.a"], "action": "erase"}, "no action is called"),
    ],
)
def test_invalid_requests_are_refused(shop: Stage, params: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=rf"REQUEST_INVALID.*{said}"):
        find(**params)


@pytest.mark.usefixtures("database")
@pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False")
def test_runs_are_triggered_by_airflow_itself(shop: Stage) -> None:
    big = build_dags()["gddl.shop.big"]
    big.test(logical_date=datetime(2027, 1, 1, tzinfo=UTC))
    store(big)
    conf = {"tables": ["shop.big"], "full_refresh": True}
    done = build_upkeep_dags()["gddl_rerun"].test(logical_date=datetime(2027, 1, 2, tzinfo=UTC), run_conf=conf)
    states = {(ti.task_id, ti.map_index): str(ti.state) for ti in done.get_task_instances()}
    assert states == {("find", -1): "success", ("rerun", 0): "success"}
    with create_session() as session:
        runs = session.scalars(select(DagRun).where(DagRun.dag_id == "gddl.shop.big")).all()
        assert [run.conf["tables"] for run in runs if run.conf] == [["shop.big"]]
