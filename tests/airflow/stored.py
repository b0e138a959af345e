"""DAGs as rows of Airflow's database, where triggering and clearing find them."""

from __future__ import annotations

from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagbundle import DagBundleModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session

_BUNDLE = "dags-folder"


def store(dag: Any) -> None:
    """Write a DAG as a DAG processor does, unless it is there: before 3.1 a run in this process writes none."""
    with create_session() as session:
        if DagVersion.get_latest_version(dag.dag_id, session=session) is None:
            session.merge(DagBundleModel(name=_BUNDLE))
            session.flush()
            session.merge(DagModel(dag_id=dag.dag_id, bundle_name=_BUNDLE, is_stale=False))
            session.flush()
            SerializedDagModel.write_dag(dag, bundle_name=_BUNDLE, session=session)
