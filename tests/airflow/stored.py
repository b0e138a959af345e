"""DAGs as rows of Airflow's database, where triggering and clearing find them."""

from __future__ import annotations

import importlib
import tempfile
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


def put(dag: Any) -> None:
    """Write a DAG that is in no DAGs folder, as a DAG processor does; in 3.0 `DAG.test` does it here."""
    try:
        module = importlib.import_module("airflow.dag_processing.dagbag")
    except ImportError:
        return
    with tempfile.TemporaryDirectory() as empty, create_session() as session:
        session.merge(DagBundleModel(name=_BUNDLE))
        session.commit()
        bag = module.DagBag(empty)
        bag.bag_dag(dag)
        module.sync_bag_to_db(bag, _BUNDLE, None)
