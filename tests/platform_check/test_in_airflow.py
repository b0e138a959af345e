"""The DAG in an Airflow with all of its processes: scheduler, worker, triggerer and DAG processor."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("airflow")

from airflow_gddl.platform_check.checks import STORAGE
from airflow_gddl.platform_check.dag_file import DAG_ID, write_dag
from airflow_gddl.platform_check.place import FOLDER
from devtools.standalone.home import Home, HomeSettings, free_port
from devtools.standalone.runs import Runs
from devtools.standalone.supervisor import Standalone, StartRequest
from tests.platform_check.ground import SETTINGS, Ground

pytestmark = pytest.mark.deep
ROOT = Path(__file__).parents[2]


def test_every_process_of_airflow_makes_the_checks(tmp_path: Path) -> None:
    """With jobs of this machine, as the worker starts them."""
    ground = replace(Ground(tmp_path), settings=SETTINGS)
    ground.write()
    dags = tmp_path / "dags"
    dags.mkdir()
    write_dag(dags / "check.py")
    settings = HomeSettings(
        dags=dags,
        port=free_port(0),
        title="platform check",
        parallelism=4,
        more={
            "gddl": {"metadata": str(ground.metadata)},
            "dag_processor": {"min_file_process_interval": "4"},
        },
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    request = StartRequest(
        home=Home(tmp_path / "airflow"), settings=settings, environ=environ, variables={}, ready_seconds=900
    )
    with Standalone(request) as airflow:
        airflow.begin()
        airflow.start()
        airflow.wait_ready()
        runs = Runs(airflow, print)
        runs.wait_for([DAG_ID])
        run = runs.trigger(DAG_ID)
        runs.finish([run])
        entry = airflow.rest.get(f"{run.path}/taskInstances/results/xcomEntries/return_value", deserialize="true")
    checks = entry["value"]["checks"]
    found = {(one["check"], one["from"]): one["result"] for one in checks}
    assert {one["check"]: one["code"] for one in checks if one["result"] == "FAIL"} == {}
    for origin in ("worker", "triggerer", "dag processor"):
        assert {name: found[name, origin] for name in STORAGE if name != "storage.denied"} == dict.fromkeys(
            (name for name in STORAGE if name != "storage.denied"), "PASS"
        )
        assert found["cleanup", origin] == "PASS"
    for name in ("job.load", "job.cancel", "job.killed", "job.resume", "tables.verify", "tables.rows"):
        assert found[name, "worker"] == "PASS"
    assert found["airflow.triggerer", "triggerer"] == found["airflow.dag_processor", "dag processor"] == "PASS"
    assert not Path(ground.lake, FOLDER).exists()
