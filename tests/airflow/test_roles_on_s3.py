"""A pipeline whose Airflow and whose jobs have the policies of docs/permissions.md, and nothing else."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from tests.airflow.test_run import BROUGHT, DONE, IDLE, run
from tests.s3.gateway import find_server
from tests.s3.restricted import LAKE, LANDING, RestrictedServer, policies_of_page, restricted

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
SETTINGS = f"landing: s3://{LANDING}/dms\nlake: s3://{LAKE}/gddl\n"
TABLES = "tables:\n  - {table: shop.a, keys: [id], sequence_by: [seq], source: shop}\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestrictedServer]:
    program = find_server()
    if program is None:
        pytest.skip("no S3 server: neither versitygw nor Go to build it with")
    with restricted(program, tmp_path / "iam") as running:
        yield running


def land(server: RestrictedServer, file: str, rows: Mapping[str, list[Any]]) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink)
    obstore.put(server.gateway.store(LANDING), f"dms/shop/a/{file}.parquet", sink.getvalue())


@pytest.mark.usefixtures("stage")
def test_a_pipeline_runs_with_the_roles_of_the_page(
    server: RestrictedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = policies_of_page()
    accounts = {role: server.account(role, [policies[role]]) for role in ("airflow", "job", "page")}
    folder = tmp_path / "of_roles"
    (folder / "tables").mkdir(parents=True)
    (folder / "gddl.yaml").write_text(SETTINGS)
    (folder / "tables" / "shop.yaml").write_text(TABLES)
    keys = accounts["airflow"]
    connection = {
        "conn_type": "aws", "login": keys["AWS_ACCESS_KEY_ID"], "password": keys["AWS_SECRET_ACCESS_KEY"],
        "extra": {"endpoint_url": keys["AWS_ENDPOINT_URL"], "region_name": "us-east-1"},
    }  # fmt: skip
    for name in keys:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__GDDL__AWS_CONN_ID", "lake")
    monkeypatch.setenv("GDDL_METADATA", str(folder))
    monkeypatch.setenv("AIRFLOW__GDDL__REFRESH_SECONDS", "0")
    env = shutil.which("env")
    assert env is not None
    of_job = [f"{name}={value}" for name, value in accounts["job"].items()]
    monkeypatch.setenv(
        "AIRFLOW__GDDL__JOB_COMMAND", json.dumps([env, *of_job, sys.executable, "-m", "spark_jobs.main"])
    )
    land(server, "LOAD00000001", {"id": [1, 2], "v": ["a", "b"]})
    assert run() == DONE
    assert run() == IDLE
    land(server, "20240101-000000001", {"Op": ["I"], "seq": [3], "id": [9], "v": ["late"]})
    assert run() == BROUGHT
    options = {**server.gateway.environ, "AWS_ALLOW_HTTP": "true"}
    rows = pa.table(DeltaTable(f"s3://{LAKE}/gddl/shop/a", storage_options=options).scan()).to_pylist()
    assert {row["id"]: row["v"] for row in rows} == {1: "a", 2: "b", 9: "late"}
    with monkeypatch.context() as patch:  # what the page reads, too
        for name, value in accounts["page"].items():
            patch.setenv(name, value)
        capsys.readouterr()
        assert invoke(["status", "--json", "--metadata", str(folder)], real()) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["table"], line["status"], line["rows"]) == ("shop.a", "succeeded", 3)
