"""What the package declares to Airflow: provider, plugin, pools, notifier, metrics."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.models.pool import Pool
from airflow.utils.session import create_session
from sqlalchemy import delete

from airflow_gddl import configuration
from airflow_gddl import version_compat as capabilities
from airflow_gddl.cli.context import real
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.notifications.webhook import GddlNotifier, message_of, url_of
from airflow_gddl.operators.jobs import AssetsLink, JobLogLink, PlatformRunLink
from airflow_gddl.plugins import pools
from airflow_gddl.plugins.pools import GddlPlugin, create_missing_pools
from airflow_gddl.provider import DEFAULTS, get_provider_info
from airflow_gddl.runners.descriptor import RunnerSettings, make_runner
from tests.airflow.stage import Stage
from tests.harness.waiting import wait_for

ROOT = Path(__file__).parents[2]
PACK = "gddl_pack.shop.small.1"


def test_the_provider_info_obeys_airflow_s_schema_and_names_what_exists() -> None:
    info = get_provider_info()
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(info, schema)
    parts = ("operators", "sensors", "triggers")
    modules = [module for part in parts for entry in info[part] for module in entry["python-modules"]]
    classes = [*info["extra-links"], *info["notifications"]]
    assert all(importlib.import_module(module) for module in modules)
    for path in classes:
        module, _, name = path.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), name), type)
    assert set(info["config"]["gddl"]["options"]) == set(DEFAULTS)


def test_the_provider_info_is_light() -> None:
    code = "import sys; before = set(sys.modules); from airflow_gddl.provider import get_provider_info as i; i();"
    code += "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["airflow_gddl"]


def test_entry_points_lead_somewhere() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["apache_airflow_provider"] == {"provider_info": "airflow_gddl.provider:get_provider_info"}
    assert points["airflow.plugins"] == {"gddl": "airflow_gddl.plugins.pools:GddlPlugin"}
    assert GddlPlugin.name == "gddl"


def test_every_option_is_read_and_documented() -> None:
    page = (ROOT / "docs" / "airflow.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "airflow_gddl").rglob("*.py") if path.name != "provider.py")
    for option in DEFAULTS:
        assert f"`{option}`" in page
        assert f'"{option}"' in code


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("refresh_seconds", "soon"),
        ("job_command", "rm -rf"),
        ("job_command", "[]"),
    ],
)
def test_unusable_options_are_reported(option: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"AIRFLOW__GDDL__{option.upper()}", value)
    read = {"job_command": configuration.job_command}
    with pytest.raises(MetadataError, match=rf"OPTION_INVALID.*\[gddl\] {option}.*Remedy: write"):
        read.get(option, lambda: configuration.number(option))()


def test_metadata_is_found_next_to_the_dag_file_or_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GDDL_METADATA", raising=False)
    dag_file = tmp_path / "dags" / "gddl.py"
    (tmp_path / "metadata").mkdir()
    assert configuration.metadata_place(beside=dag_file) == str(tmp_path / "metadata")
    (tmp_path / "dags" / "metadata").mkdir(parents=True)
    assert configuration.metadata_place(beside=dag_file) == str(tmp_path / "dags" / "metadata")
    monkeypatch.setenv("GDDL_METADATA", "/from/environment")
    assert configuration.metadata_place(beside=dag_file) == "/from/environment"
    monkeypatch.setenv("AIRFLOW__GDDL__METADATA", "s3://bucket/meta/")
    assert configuration.metadata_place(beside=dag_file) == "s3://bucket/meta"
    assert configuration.metadata_place("/given", dag_file) == "/given"


@pytest.mark.usefixtures("database")
def test_a08_missing_pools_are_created_and_existing_ones_kept(stage: Stage) -> None:
    stage.write("gddl.yaml", "landing: ../landing\nlake: ../lake\ntiers: {large: {pool: big, slots: 2}}\n")
    stage.rows("{table: shop.a, keys: [id], size: large}", "{table: shop.b, keys: [id]}")
    with create_session() as session:
        session.execute(delete(Pool).where(Pool.pool.in_(["big", "gddl_continuous"])))  # other tests may have made them
        Pool.create_or_update_pool(
            name="gddl_small", slots=77, description="tuned", include_deferred=False, session=session
        )
    assert create_missing_pools() == ["big", "gddl_continuous"]
    assert create_missing_pools() == []
    with create_session() as session:
        found = {pool.pool: (pool.slots, pool.include_deferred) for pool in Pool.get_pools(session=session)}
    assert (found["big"], found["gddl_small"]) == ((2, True), (77, False))


@pytest.mark.usefixtures("database")
def test_a_pool_that_another_process_creates_meanwhile_is_there(stage: Stage) -> None:
    """Scheduler, triggerer and DAG processor start together."""
    stage.rows("{table: shop.a, keys: [id]}")
    create_missing_pools()
    stage.monkeypatch.setattr(Pool, "get_pools", lambda **_: [])
    stage.monkeypatch.setattr(Pool, "get_pool", lambda *_, **__: None)

    def insert(name: str, session: Any, **values: Any) -> None:
        session.add(Pool(pool=name, **values))
        session.commit()

    stage.monkeypatch.setattr(Pool, "create_or_update_pool", insert)
    assert create_missing_pools() == []


@pytest.mark.usefixtures("database")
def test_the_triggerer_creates_the_pool_of_a_tier_that_is_added_later(stage: Stage) -> None:
    stage.monkeypatch.setattr(pools, "EVERY_SECONDS", 0.05)
    stage.rows("{table: shop.a, keys: [id]}")
    triggerer, scheduler = (type("Job", (), {})() for _ in range(2))
    scheduler.job_type, triggerer.job_type = "SchedulerJob", "TriggererJob"
    pools.keep_creating(scheduler)  # ends at once
    pools.PoolListener().on_starting(component=triggerer)
    stage.write("gddl.yaml", "landing: ../landing\nlake: ../lake\ntiers: {late: {pool: of_late, slots: 3}}\n")
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], size: late}")
    try:
        wait_for(lambda: known("of_late"))
    finally:
        triggerer.job_type = None
    assert known("of_late") == [3]


def known(name: str) -> list[int]:
    with create_session() as session:
        return [pool.slots for pool in Pool.get_pools(session=session) if pool.pool == name]


@pytest.mark.usefixtures("database")
def test_pools_never_stop_airflow_from_starting(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    (listener,) = GddlPlugin.listeners
    listener.on_starting(component=object())
    stage.monkeypatch.setenv("AIRFLOW__GDDL__REFRESH_SECONDS", "never")
    listener.on_starting(component=type("Job", (), {})())


def test_an_unknown_runner_is_refused() -> None:
    settings = RunnerSettings(command=real().job_command, environ={})
    assert make_runner("local", settings) is not None
    with pytest.raises(MetadataError, match="RUNNER_UNKNOWN"):
        make_runner("nowhere", settings)


# Telling people


class Webhook:
    """An HTTP server that remembers what it was sent."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))) | {"path": self.path})
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> str:
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def context() -> dict[str, Any]:
    task = SimpleNamespace(dag_id="gddl.shop.a", task_id="incremental_load", log_url="http://ui/log")
    return {"task_instance": task, "run_id": "r1", "exception": "1 of 3 tables failed", "dag": None}


def test_a_failure_is_posted_to_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Webhook()
    with hook as url:
        monkeypatch.setenv("AIRFLOW_CONN_ALERTS", json.dumps({"conn_type": "http", "host": url, "password": "t0ken"}))
        GddlNotifier(connection="alerts").notify(context())  # type: ignore[arg-type] # the parts that are used
    (failed,) = hook.heard
    assert failed["text"] == "gddl.shop.a incremental_load r1 failed: 1 of 3 tables failed"
    assert (failed["path"], failed["dag_id"], failed["log_url"]) == ("/hook/t0ken", "gddl.shop.a", "http://ui/log")


def test_without_a_connection_it_is_only_logged() -> None:
    sent: list[object] = []
    GddlNotifier(post=lambda *args: sent.append(args)).notify(context())  # type: ignore[arg-type] # the parts that are used
    assert sent == []
    assert message_of({"dag_run": {"dag_id": "d", "dag_run_id": "r"}})["dag_id"] == "d"


@pytest.mark.parametrize("host", ["", "ftp://x", "file:///etc/passwd"])
def test_a_connection_without_a_web_address_is_refused(host: str) -> None:
    with pytest.raises(FatalError, match="CONNECTION_UNUSABLE"):
        url_of(SimpleNamespace(conn_id="c", host=host, port=None, schema="", password=""))


def test_failures_are_posted_where_a_connection_is_configured(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    assert build_dags()[PACK].get_task("initial_load").on_failure_callback in (None, [])
    monkeypatch.setenv("AIRFLOW__GDDL__NOTIFY_CONNECTION", "alerts")
    assert build_dags()[PACK].get_task("initial_load").on_failure_callback


def test_a09_metrics_go_where_airflow_sends_them() -> None:
    capabilities.gauge("gddl.lag_seconds", 1.5, {"table": "shop.a"})


def test_links_of_a_task_lead_to_its_log_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://ui/")
    operator: Any = SimpleNamespace(job_log="/lake/_gddl/logs/gddl.s.a/r-1.log", loaded=("shop.a$b",))
    page = "http://ui/gddl/#/log?dag_id=gddl.s.a&job=r-1"
    assert JobLogLink().get_link(operator, ti_key=None) == page
    operator.job_log = "s3://bucket/lake/_gddl/logs/gddl.s.a/r-1.log"
    assert JobLogLink().get_link(operator, ti_key=None) == page
    assert PlatformRunLink().get_link(operator, ti_key=None) == ""
    operator.job_log = "https://databricks/run/1"
    assert PlatformRunLink().get_link(operator, ti_key=None) == "https://databricks/run/1"
    assert JobLogLink().get_link(operator, ti_key=None) == ""
    operator.job_log = "/var/gddl-logs-x/r-1.log"  # it could not be put into the lake
    assert JobLogLink().get_link(operator, ti_key=None) == ""
    assert AssetsLink().get_link(operator, ti_key=None) == "http://ui/assets?name_pattern=shop.a%24b"
    assert JobLogLink().get_link(SimpleNamespace(), ti_key=None) == ""  # type: ignore[arg-type] # no job was started
