"""Airflow's own application clears failed runs; prints the status of its answers by DAG.

`PACK` is a DAG of the metadata. `of_airflow` has a deadline of its own, where Airflow has any.
"""

import json
import os
import sys
from datetime import timedelta

from airflow import sdk
from airflow.api_fastapi.app import create_app
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import update

from airflow_gddl.dags.factory import build_dags
from airflow_gddl.notifications.webhook import GddlNotifier
from tests.airflow.stored import put, store


def with_deadline() -> sdk.DAG:
    more = {}
    if hasattr(sdk, "DeadlineAlert"):
        reference, callback = sdk.DeadlineReference.DAGRUN_QUEUED_AT, sdk.AsyncCallback(GddlNotifier, {})
        more = {"deadline": sdk.DeadlineAlert(reference=reference, interval=timedelta(minutes=30), callback=callback)}
    with sdk.DAG("of_airflow", schedule=None, **more) as dag:
        EmptyOperator(task_id="empty")
    return dag


def main() -> int:
    client = TestClient(create_app("core"), raise_server_exceptions=False)
    headers = json.loads(os.environ["USERS"])["admin"]
    answers = {}
    for dag in (build_dags()[os.environ["PACK"]], with_deadline()):
        put(dag)
        store(dag)
        path = f"/api/v2/dags/{dag.dag_id}"
        run = client.post(f"{path}/dagRuns", headers=headers, json={"logical_date": None}).json()["dag_run_id"]
        with create_session() as session:
            for model in (TaskInstance, DagRun):
                of_run = update(model).where(model.dag_id == dag.dag_id, model.run_id == run)
                session.execute(of_run.values(state="failed"))
        asked = {"dry_run": False, "dag_run_id": run, "only_failed": True}
        answers[dag.dag_id] = client.post(f"{path}/clearTaskInstances", headers=headers, json=asked).status_code
    sys.stdout.write("\n" + json.dumps(answers) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
