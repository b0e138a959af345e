"""Whole runs of a pipeline's DAG, through Airflow's own task runner."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_gddl.dag_factory import build_dags
from tests.airflow.stage import Stage

PACK = "gddl_pack.shop.small.hourly.normal.all"
pytestmark = pytest.mark.usefixtures("database")


def run(dag_id: str, conf: dict[str, Any] | None = None, day: int = 1) -> dict[str, str]:
    """Task to state after a run."""
    done = build_dags()[dag_id].test(logical_date=datetime(2024, 1, day, tzinfo=UTC), run_conf=conf)
    states = {ti.task_id: str(ti.state) for ti in done.get_task_instances()}
    return {**states, "run": str(done.state)}


def test_a_pack_is_loaded_then_has_nothing_to_do_then_takes_what_is_new(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}", "{table: shop.c, keys: [id]}")
    stage.land("shop.a")
    stage.land("shop.b")
    assert run(PACK) == {
        "landed": "success",
        "initial_load": "success",
        "incremental_load": "skipped",
        "run": "success",
    }
    assert stage.loaded == [["shop.a", "shop.b"]]
    assert run(PACK, day=2) == {
        "landed": "skipped",
        "initial_load": "skipped",
        "incremental_load": "skipped",
        "run": "success",
    }
    stage.land("shop.b", "20240102-000000000.parquet")
    assert run(PACK, day=3) == {
        "landed": "success",
        "initial_load": "skipped",
        "incremental_load": "success",
        "run": "success",
    }
    assert stage.loaded == [["shop.a", "shop.b"], ["shop.b"]]
