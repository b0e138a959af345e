"""Airflow in a home of its own, with a database that is made once a session."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow.bag import kept
from tests.airflow.stage import Stage
from tests.harness.s3_server import Bucket, serving

if importlib.util.find_spec("airflow") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's tables, in SQLite."""
    from airflow.utils.db import initdb  # noqa: PLC0415 - not before the settings above

    with contextlib.redirect_stdout(io.StringIO()):
        initdb()
    if importlib.util.find_spec("airflow.sdk.configuration") is None:
        store_before_tests()


def store_before_tests() -> None:
    """`DAG.test` of Airflow 3.0 leaves it to the DAG processor to store a DAG and to activate its assets."""
    from airflow.models.dag import DAG as STORED  # noqa: PLC0415 - not before the settings above
    from airflow.models.dagbundle import DagBundleModel  # noqa: PLC0415 - as above
    from airflow.sdk import DAG  # noqa: PLC0415 - as above
    from airflow.utils.session import create_session  # noqa: PLC0415 - as above

    test = DAG.test

    def stored_first(dag: DAG, **given: object) -> object:
        with create_session() as session:
            session.merge(DagBundleModel(name="dags-folder"))
            session.flush()
            STORED.bulk_write_to_db("dags-folder", None, [kept(dag)], session=session)
        return test(dag, **given)

    DAG.test = stored_first


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An S3 bucket named `bucket`, reached as the environment says."""
    made = Bucket()
    with serving(made) as url:
        settings = {"ENDPOINT_URL": url, "ALLOW_HTTP": "true", "REGION": "eu-west-1"}
        for name, value in {**settings, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield made


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch, database: None) -> Iterator[dict[str, dict[str, str]]]:
    """Headers of a logged-in admin and a viewer; Airflow's own auth manager makes and checks their tokens."""
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "a secret of a test, " * 4)
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_ISSUER", "tests")
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", "admin:admin,viewer:viewer")
    api = importlib.import_module("airflow.api_fastapi.app")
    user = importlib.import_module("airflow.api_fastapi.auth.managers.simple.user").SimpleAuthManagerUser
    api.purge_cached_app()
    manager = api.create_auth_manager()
    manager.init()
    made = {name: user(username=name, role=name.upper()) for name in ("admin", "viewer")}
    yield {name: {"Authorization": f"Bearer {manager.generate_jwt(one)}"} for name, one in made.items()}
    api.purge_cached_app()


@pytest.fixture
def paused(database: None) -> Iterator[None]:
    """Airflow knows the pack, which is paused, and another DAG, which is paused too; other DAGs run."""
    from airflow.models.dag import DagModel  # noqa: PLC0415 - not before the settings
    from airflow.models.dagbundle import DagBundleModel  # noqa: PLC0415 - as above
    from airflow.utils.session import create_session  # noqa: PLC0415 - as above

    ids = ["gddl_pack.shop.small.1", "of.another.team"]
    with create_session() as session:
        session.merge(DagBundleModel(name="of-the-test"))
        session.flush()
        before = {one.dag_id: one.is_paused for one in session.query(DagModel)}
        for one in session.query(DagModel):
            one.is_paused = False
        for dag_id in ids:
            session.merge(DagModel(dag_id=dag_id, bundle_name="of-the-test", is_paused=True))
    yield
    with create_session() as session:
        for one in session.query(DagModel):
            one.is_paused = before.get(one.dag_id, False)
