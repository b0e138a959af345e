"""Pipelines whose metadata, landing and lake are in a bucket that only an Airflow connection knows the keys of."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from deltalake import DeltaTable
from sqlalchemy import select

from airflow_gddl import configuration
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.runtime.landing.polling import poll
from airflow_gddl.stores import Storage, open_store
from tests.airflow.stage import Stage
from tests.airflow.test_run import BROUGHT, DONE, IDLE, PACK, run
from tests.harness.waiting import wait_for
from tests.s3 import delivery
from tests.s3.conftest import Place, Server, server, way
from tests.s3.faulty import Fault, Way
from tests.s3.gateway import find_server, serving

__all__ = ["server", "way"]
pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
AWS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
TABLES = "tables:\n  - {table: s.a, keys: [id], sequence_by: [seq], source: shop}\n"


def connect(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection `lake` alone reaches the place: nothing of it is in the environment."""
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    keys = {"login": place.environ["AWS_ACCESS_KEY_ID"], "password": place.environ["AWS_SECRET_ACCESS_KEY"]}
    extra = {"endpoint_url": place.environ["AWS_ENDPOINT_URL"], "region_name": "us-east-1"}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "aws", **keys, "extra": extra}))
    monkeypatch.setenv("AIRFLOW__GDDL__AWS_CONN_ID", "lake")


@pytest.fixture
def place(server: Server, way: Way, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A bucket behind `way` with metadata, and Airflow pointed to it."""
    made = server.place(way.endpoint)
    obstore.put(made.store, "metadata/gddl.yaml", b"landing: ../landing\nlake: ../lake\n")
    obstore.put(made.store, "metadata/tables/shop.yaml", TABLES.encode())
    connect(made, monkeypatch)
    monkeypatch.setenv("GDDL_METADATA", f"s3://{made.name}/metadata")
    monkeypatch.setenv("AIRFLOW__GDDL__REFRESH_SECONDS", "0")
    monkeypatch.setenv("AIRFLOW__GDDL__JOB_COMMAND", json.dumps([sys.executable, "-m", "spark_jobs.main"]))
    return made


def values(place: Place, table: str) -> Mapping[int, str]:
    path = f"{place.roots.lake}/s/{table}"
    options = Storage(environ=place.environ).options_of(path)
    return {r["id"]: r["v"] for r in pa.table(DeltaTable(path, storage_options=options).scan()).to_pylist()}


def test_a_pipeline_on_s3_by_a_connection_alone(place: Place) -> None:
    delivery.deliver(place, ["a"])
    assert run() == DONE
    assert values(place, "a") == delivery.ROWS
    assert run() == IDLE
    delivery.put(place, "a", "20240101-000000002", {"Op": ["I"], "seq": [3], "id": [9], "v": ["late"]})
    assert run() == BROUGHT
    assert values(place, "a") == {**delivery.ROWS, 9: "late"}
    logs = delivery.objects(place, "lake/_gddl/logs")
    assert len(logs) == 2
    secret = place.environ["AWS_SECRET_ACCESS_KEY"].encode()
    kept = [name for name in delivery.objects(place, "lake") if not name.endswith(".parquet")]
    assert [name for name in kept if secret in bytes(obstore.get(place.store, name).bytes())] == []
    with create_session() as session:
        reported = [str(value) for value in session.scalars(select(XComModel.value)) if secret.decode() in str(value)]
    assert reported == []


def test_a_source_is_read_by_its_own_connection_by_sensor_and_job(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its landing bucket is on a server that refuses the keys of the lake, and the lake's server refuses its keys."""
    program = find_server()
    assert program is not None
    with serving(program, tmp_path / "s3") as gateway:
        landing = Server(gateway, tmp_path / "s3" / "buckets").place()
        source = f"{{landing: 's3://{landing.name}/landing', aws_conn_id: shop_files}}"
        settings = f"landing: ../landing\nlake: ../lake\nsources:\n  shop: {source}\n"
        obstore.put(place.store, "metadata/gddl.yaml", settings.encode())
        keys = {"login": gateway.access, "password": gateway.secret}
        extra = {"endpoint_url": gateway.endpoint, "region_name": "us-east-1"}
        delivery.deliver(landing, ["a"])
        refused = {"conn_type": "aws", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP_FILES", json.dumps(refused))
        assert run()["landed"] == "failed", "the lake's keys never take the place of the connection's"
        monkeypatch.setenv("AIRFLOW_CONN_SHOP_FILES", json.dumps({**refused, **keys}))
        assert run() == DONE
        assert values(place, "a") == delivery.ROWS
        delivery.put(landing, "a", "20240101-000000002", {"Op": ["I"], "seq": [3], "id": [9], "v": ["late"]})
        assert run() == BROUGHT
        assert values(place, "a") == {**delivery.ROWS, 9: "late"}
    kept = {name: bytes(obstore.get(place.store, name).bytes()) for name in delivery.objects(place, "")}
    assert [name for name, data in kept.items() if gateway.secret.encode() in data] == []
    with create_session() as session:
        reported = [value for value in session.scalars(select(XComModel.value)) if gateway.secret in str(value)]
    assert reported == []
    assert gateway.secret not in caplog.text


def test_metadata_on_s3_outlives_its_bucket_and_is_read_again_when_it_is_back(place: Place, way: Way) -> None:
    assert list(build_dags()) == [PACK]
    way.faults = [Fault("answer", path="metadata", status=403, code="AccessDenied")]
    obstore.put(place.store, "metadata/tables/erp.yaml", b"tables:\n  - {table: erp.x, keys: [id], size: large}\n")
    assert list(build_dags()) == [PACK]
    state = configuration.compiled_metadata(f"s3://{place.name}/metadata").state
    assert state.stale_since is not None
    assert "STORAGE_DENIED" in state.why
    way.faults = []
    # What was written just now may still be being written, and waits a second.
    wait_for(lambda: sorted(build_dags()) == ["gddl.erp.x", PACK])
    assert configuration.compiled_metadata(f"s3://{place.name}/metadata").state.stale_since is None


def test_a_folder_that_may_not_be_listed_is_work_for_the_job_and_hinders_no_other(place: Place, way: Way) -> None:
    delivery.deliver(place, ["a", "b", "c"])
    store = open_store(place.environ)
    tables = ["s.a", "s.b", "s.c"]
    before = poll(store, place.roots.landing, tables)
    # The right to list may be given folder by folder: neither the folder of all, nor that of one.
    way.faults = [
        Fault("answer", path="prefix=landing/s/&", status=403, code="AccessDenied"),
        Fault("answer", path="prefix=landing/s/b/", status=403, code="AccessDenied"),
    ]
    now = poll(store, place.roots.landing, tables)
    assert [name for name in tables if now[name] != before[name]] == ["s.b"]
    assert now["s.b"].refused
    assert now["s.b"].files == 1
