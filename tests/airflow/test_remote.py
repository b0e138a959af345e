"""Loads whose jobs run elsewhere: submitted, watched from the triggerer, collected; stopped and taken up again."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

pytest.importorskip("databricks.sdk")
pytest.importorskip("airflow.providers.databricks")

from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_gddl import configuration, triggers
from airflow_gddl import version_compat as capabilities
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.layout import join, result_name, results_folder
from airflow_gddl.contract.spec import DEFAULT_TIERS, DesiredState
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.operators.execution import Execution
from airflow_gddl.operators.jobs import LoadOperator, PlatformRunLink
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline
from airflow_gddl.runners.databricks.jobs import jobs_of
from airflow_gddl.runners.databricks.settings import DatabricksSettings
from airflow_gddl.runners.interface import Handle, WaitPolicy
from airflow_gddl.runners.remote import Attempts, Submission, TaskKey
from airflow_gddl.runtime.landing.continuous_job import DesiredStateKeeper
from airflow_gddl.runtime.state.lake_state import read_pipeline
from airflow_gddl.stores import open_store
from airflow_gddl.triggers import TIME_TO_END, GddlRunTrigger, Watch
from airflow_gddl.version_compat import TaskDeferred
from devtools.fake_databricks.server import FakeServer, serving
from devtools.fake_databricks.workspace import LIVE, FakeRun
from tests.airflow.clearing import clear
from tests.airflow.stage import Stage
from tests.airflow.test_alerting import ListNotifier
from tests.harness.waiting import wait_for

PACK = "gddl_pack.shop.small.1"
FAKE = Path(__file__).with_name("fake_job.py")
pytestmark = [
    pytest.mark.usefixtures("database"),
    # Each test is a new version of the same DAG to this database; Airflow's own query does not expect that in one run.
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
DATES = (datetime(2025, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in itertools.count())
BEGUN = {"tables": ["shop.a"], "since": 0, "of_try": 1}
OWN = {"wheel": "/Volumes/w.whl", "node_type": "i3.xlarge", "local_roots": True}


@pytest.fixture
def fake(stage: Stage) -> Iterator[FakeServer]:
    """A workspace with the job of small tables, which an Airflow connection leads to."""
    with serving([sys.executable, str(FAKE)]) as server:
        address = {"conn_type": "databricks", "schema": "http", "host": "127.0.0.1", "password": server.token}
        port = int(server.workspace.url.rpartition(":")[2])
        stage.monkeypatch.setenv("AIRFLOW_CONN_DATABRICKS_DEFAULT", json.dumps({**address, "port": port}))
        stage.monkeypatch.setattr("airflow_gddl.triggers.FIRST_PAUSE", 0.1)
        lines = ["landing: ../landing", "lake: ../lake", "runner: databricks"]
        stage.write("gddl.yaml", "\n".join([*lines, f"runners: {{databricks: {json.dumps(OWN)}}}", ""]))
        for settings in jobs_of({"small": DEFAULT_TIERS["small"]}, DatabricksSettings(**OWN)).values():
            server.workspace.create(settings)
        yield server


def run(**conf: Any) -> dict[str, str]:
    """Task to state after a run."""
    return {ti.task_id: str(ti.state) for ti in played(**conf).get_task_instances()}


def played(**conf: Any) -> Any:
    """The DAG run."""
    return build_dags()[PACK].test(logical_date=next(DATES), run_conf=conf)


def tables(stage: Stage, *names: str) -> None:
    stage.rows(*(f"{{table: shop.{name}, keys: [id]}}" for name in names))
    for name in names:
        stage.land(f"shop.{name}")


def test_a_load_waits_in_the_triggerer_and_collects(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a", "b")
    assert run() == {"landed": "success", "initial_load": "success", "incremental_load": "skipped"}
    assert stage.loaded == [["shop.a", "shop.b"]]
    assert sorted(stage.state(PACK).hints) == ["shop.a", "shop.b"]
    (made,) = fake.workspace.runs.values()
    assert made.state == LIVE.TERMINATED
    stage.land("shop.b", "20240102-000000000.parquet")
    assert run()["incremental_load"] == "success"
    assert stage.loaded == [["shop.a", "shop.b"], ["shop.b"]]


def test_the_grid_links_to_the_run(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a")
    done = played()
    (made,) = fake.workspace.runs.values()
    with create_session() as session:
        rows = session.scalars(select(XComModel).where(XComModel.run_id == done.run_id)).all()
        links = {(row.task_id, row.key): str(row.value).strip('"') for row in rows if row.key.startswith("_link_")}
    assert links["initial_load", "_link_PlatformRunLink"] == made.page
    assert links["initial_load", "_link_JobLogLink"] == ""


def test_the_link_is_there_while_the_run_goes_on() -> None:
    pushed: dict[str, str] = {}
    ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    operator: Any = SimpleNamespace(job_log=None)
    context: Any = {"ti": ti}
    Execution(operator, context, None).show_run(Handle(run="1", page="https://w/run/1"))
    assert pushed == {"_link_PlatformRunLink": "https://w/run/1"}
    assert PlatformRunLink().get_link(operator, ti_key=None) == "https://w/run/1"
    Execution(operator, context, None).show_run(Handle(run="2"))  # a platform without pages
    assert operator.job_log == "https://w/run/1"


def test_tables_that_depend_on_others_have_runs_one_after_the_other(stage: Stage, fake: FakeServer) -> None:
    stage.rows("{table: shop.a, keys: [id], depends_on: [shop.b]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.a")
    stage.land("shop.b")
    assert run()["initial_load"] == "success"
    assert stage.loaded == [["shop.b"], ["shop.a"]]
    assert len(fake.workspace.runs) == 2


def test_a11_a_failure_is_submitted_again_with_the_remaining_tables(stage: Stage, fake: FakeServer) -> None:
    stage.monkeypatch.setenv("AIRFLOW__GDDL__RETRIES", "1")
    tables(stage, "a", "b", "c")
    stage.order(fail={"shop.b": ["SCHEMA_REFUSED", "a column is text now"]}, fail_jobs=1)
    assert run()["initial_load"] == "success"
    assert stage.loaded == [["shop.a", "shop.b", "shop.c"], ["shop.b"]]
    assert len(fake.workspace.tokens) == 2


def test_a_run_with_a_cloud_failure_is_repaired_while_deferred(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a")
    fake.workspace.cloud_failures = 1
    assert run()["initial_load"] == "success"
    (made,) = fake.workspace.runs.values()
    assert (len(made.repairs), made.attempts, len(stage.jobs)) == (1, 1, 1)


def test_mapped_instances_that_are_cleared_have_runs_of_their_own(stage: Stage, fake: FakeServer) -> None:
    stage.monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", "mapped")
    tables(stage, "a", "b", "c")
    stage.order(fail={f"shop.{name}": ["SCHEMA_REFUSED", "a column is text now"] for name in "ab"})
    dag = build_dags()[PACK]
    done = dag.test(logical_date=next(DATES))
    assert str(done.state) == "failed"
    stage.order()
    assert clear(dag, done, lambda one: one.rendered_map_index in ("shop.a", "shop.b")) == "success"
    assert stage.loaded == [["shop.a", "shop.b", "shop.c"], ["shop.a"], ["shop.b"]]
    assert len(fake.workspace.tokens) == 3, "instances of a task never take up each other's runs"
    assert sorted(stage.state(PACK).hints) == ["shop.a", "shop.b", "shop.c"]


def test_without_work_the_platform_is_not_called(stage: Stage, fake: FakeServer) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    assert set(run().values()) == {"skipped"}
    assert fake.requests == []


def test_maintenance_runs_remotely_without_a_worker(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a", "b")
    stage.order(sleep=1)  # else the run may have ended before it is looked at for the first time
    task = build_upkeep_dags()["gddl_maintenance"].get_task("maintain_small")

    def waited(cleared: int) -> dict[str, Any]:
        """The summary; its worker is free while the run goes on."""
        context: Any = {"params": {}, "run_id": "r", "ti": SimpleNamespace(try_number=1, xcom_push=lambda **_: None)}
        context["dag_run"] = SimpleNamespace(clear_number=cleared)
        with pytest.raises(TaskDeferred) as deferred:
            task.execute(context)
        assert timedelta(hours=24) < deferred.value.timeout <= timedelta(hours=24) + TIME_TO_END
        event = asyncio.run(anext(deferred.value.trigger.run()))
        return task.resumed(context, event.payload)

    reported = waited(cleared=0)
    assert (reported["tables"], reported["succeeded"], stage.loaded) == (2, 2, [["shop.a", "shop.b"]])
    assert stage.jobs[0]["options"]["action"]["name"] == "maintain"
    (made,) = fake.workspace.runs.values()
    assert task.job_log == made.page
    # A person who clears it has all of it done once more.
    assert waited(cleared=1)["succeeded"] == 2
    assert len(fake.workspace.runs) == 2


# The trigger, on its own


def going(
    stage: Stage, fake: FakeServer, kept: MonitoredPipeline | None = None, options: dict[str, Any] | None = None
) -> tuple[GddlRunTrigger, FakeRun, Attempts]:
    """A run that takes its time, and the trigger that watches it, as a triggerer makes one."""
    if kept is None:
        tables(stage, "a")
        stage.order(sleep=300)
    lake, task = str(stage.lake), TaskKey(pipeline=PACK, run="r", task="initial_load")
    spec = stage.root / "spec.json"
    roots = {"landing": str(stage.landing), "lake": lake}
    order = {"run_id": "j", "tables": [{"table": "shop.a"}], "options": options or {}, "roots": roots}
    spec.write_text(json.dumps(order))
    (job,) = fake.workspace.jobs
    started = fake.workspace.run_now({"job_id": job, "job_parameters": {"spec": str(spec)}})
    handle = Handle(run=str(started.run_id), group=str(job))
    run_ = WaitPolicy(number=1, handle=handle)
    watch = Watch(runner="databricks", settings=OWN, lake=lake, task=task, run=run_, begun=BEGUN, kept=kept)
    path, arguments = GddlRunTrigger(watch=plain(watch)).serialize()
    module, _, name = path.rpartition(".")
    made = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))
    return made, started, Attempts(open_store(), lake, task)


def polled(fake: FakeServer, times: int) -> Callable[[], bool]:
    """Whether the workspace was asked for a run so often from now on."""
    asked = len(fake.requests) + times
    return lambda: len(fake.requests) >= asked


def answered(stage: Stage, *names: str) -> bool:
    """Whether the job of `going` has done these tables."""
    folder = Path(results_folder(str(stage.lake), "j"))
    return all((folder / result_name(f"shop.{name}")).exists() for name in names)


async def watched(trigger: GddlRunTrigger, until: Callable[[], object] = lambda: False, stop: str | None = None) -> Any:
    """The trigger's event; it is cancelled as soon as `until` holds, in the way a triggerer does when `stop`."""
    task = asyncio.ensure_future(anext(trigger.run()))
    deadline = time.monotonic() + 120
    while not (task.done() or until()):
        assert time.monotonic() < deadline, "neither an event, nor what was waited for"
        await asyncio.sleep(0.02)
    if task.done():
        return task.result().payload
    try:
        with is_deferred(stop is None):
            task.cancel(stop)
            return (await task).payload
    except asyncio.CancelledError:
        if stop is not None and capabilities.TELLS_TRIGGERS_OF_KILLS:
            await trigger.on_kill()
        return None


@contextmanager
def is_deferred(still: bool) -> Iterator[None]:
    """Where Airflow tells triggers nothing of kills, its database has this of the task; a test may say it, too."""
    if capabilities.TELLS_TRIGGERS_OF_KILLS or triggers.is_still_deferred is not capabilities.is_still_deferred:
        yield
        return
    with patch("airflow_gddl.triggers.is_still_deferred", AsyncMock(return_value=still)):
        yield


def ended(run_: FakeRun) -> bool:
    return wait_for(lambda: not run_.is_going)


def test_a11_a_stopped_task_cancels_its_run_and_the_next_try_starts_a_new_one(stage: Stage, fake: FakeServer) -> None:
    trigger, started, attempts = going(stage, fake)
    assert asyncio.run(watched(trigger, polled(fake, 2), stop="user")) is None
    assert ended(started)
    assert started.end is not None
    assert started.end.as_dict()["code"] == "USER_CANCELED"
    assert (stage.lake / "_gddl" / "submissions" / PACK / attempts.key.digest / "000001-stop.json").exists()


CONTINUOUS = "gddl_pack.shop.small.1"
ROWS = tuple(f"{{table: shop.{name}, keys: [id], schedule: continuous}}" for name in "ab")


def test_a_remote_continuous_job_is_monitored_from_the_triggerer(stage: Stage, fake: FakeServer) -> None:
    stage.rows(ROWS[0])
    stage.order(lasts=1)
    (task,) = build_dags()[CONTINUOUS].test(logical_date=next(DATES)).get_task_instances()
    assert str(task.state) == "success"
    (made,) = fake.workspace.runs.values()
    assert made.state == LIVE.TERMINATED
    assert stage.jobs[0]["options"]["continuous"]["seconds"] == 6 * 3600
    assert sorted(stage.state(CONTINUOUS).hints) == ["shop.a"]
    known = read_pipeline(str(stage.lake), (CONTINUOUS,))
    assert known.records["shop.a"].rows == 7


def kept_job(stage: Stage, fake: FakeServer, **orders: Any) -> tuple[GddlRunTrigger, FakeRun]:
    stage.rows(ROWS[0])
    stage.order(lasts=300, **orders)
    kept = MonitoredPipeline(
        metadata=str(stage.metadata), pipeline=CONTINUOUS, run="r", task="continuous_load", job="j"
    )
    document = configuration.compiled_metadata(str(stage.metadata)).pipeline(CONTINUOUS)
    assert document is not None
    standing = DesiredStateKeeper(document.roots, CONTINUOUS, lambda: None)
    standing.put(DesiredState(tables=document.specs, tiers=document.tiers))
    trigger, started, _ = going(stage, fake, kept, {"continuous": {"folder": standing.folder}})
    return trigger, started


def test_stopping_a_remote_continuous_job_lets_it_finish_its_batch(stage: Stage, fake: FakeServer) -> None:
    trigger, started = kept_job(stage, fake)
    assert asyncio.run(watched(trigger, lambda: answered(stage, "a"), stop="user")) is None
    assert ended(started)
    assert stage.jobs[-1]["ended"] is True
    assert started.end is not None
    assert started.end.as_dict()["code"] == "SUCCESS"


def test_rows_that_come_while_it_runs_elsewhere_reach_it_by_the_triggerer(stage: Stage, fake: FakeServer) -> None:
    stage.monkeypatch.setattr("airflow_gddl.runtime.landing.continuous_job.FRESH_SECONDS", 0.1)
    trigger, started = kept_job(stage, fake)
    stage.rows(*ROWS)
    asyncio.run(watched(trigger, lambda: answered(stage, "a", "b"), stop="user"))
    assert ended(started)
    assert stage.jobs[-1]["tables"] == ["shop.a", "shop.b"]


def test_rows_reach_a_remote_job_independent_of_the_poll_interval(stage: Stage, fake: FakeServer) -> None:
    stage.monkeypatch.setattr("airflow_gddl.runtime.landing.continuous_job.FRESH_SECONDS", 0.1)
    stage.monkeypatch.setattr("airflow_gddl.triggers.KEPT_EVERY", 0.1)
    stage.monkeypatch.setattr("airflow_gddl.triggers.FIRST_PAUSE", 600)
    trigger, started = kept_job(stage, fake)

    def both_done() -> bool:
        if answered(stage, "a") and "shop.b" not in (stage.metadata / "tables" / "shop.yaml").read_text():
            stage.rows(*ROWS)
        return answered(stage, "a", "b")

    asyncio.run(watched(trigger, both_done, stop="user"))
    assert ended(started)
    assert stage.jobs[-1]["tables"] == ["shop.a", "shop.b"]


def test_alerts_are_sent_while_a_remote_continuous_job_runs(stage: Stage, fake: FakeServer) -> None:
    reported: list[str] = []
    stage.monkeypatch.setattr(ListNotifier, "reported", reported)
    given = [
        {"notifier": f"{ListNotifier.__module__}.ListNotifier", "arguments": {"text": "{{ run_id }} {{ gddl_text }}"}}
    ]
    stage.monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", json.dumps(given))
    stage.monkeypatch.setattr("airflow_gddl.runtime.landing.continuous_job.FLUSH_SECONDS", 0.2)
    stage.monkeypatch.setattr("airflow_gddl.runtime.landing.continuous_job.ALERT_SECONDS", 0.2)
    trigger, started = kept_job(stage, fake, fail={"shop.a": ["SCHEMA_REFUSED", "a column is text now"]})
    asked: list[Callable[[], bool]] = []

    def polled_since() -> bool:
        """Often enough to be told twice."""
        if reported and not asked:
            asked.append(polled(fake, 3))
        return bool(asked) and asked[0]()

    asyncio.run(watched(trigger, polled_since))
    assert started.is_going
    assert reported == ["r shop.a: [SCHEMA_REFUSED] a column is text now ▸ gddl status --table shop.a"]


def test_a_run_is_watched_even_if_the_state_cannot_be_written(stage: Stage, fake: FakeServer) -> None:
    """Else worker and triggerer would hand it to and fro without end."""
    trigger, started = kept_job(stage, fake)
    stage.write("no-folder", "a file")
    stage.monkeypatch.setenv("AIRFLOW__GDDL__CACHE_DIR", str(stage.metadata / "no-folder" / "cache"))
    assert asyncio.run(watched(trigger, polled(fake, 3))) is None
    assert started.is_going


def test_the_triggerer_logs_how_far_a_run_is(
    stage: Stage, fake: FakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trigger, started, attempts = going(stage, fake)
    submission = Submission(run_id="j", size="small", tables=("shop.a", "shop.b", "shop.c"))
    attempts.begin(1, submission)
    answers = open_store()
    answers.write(join(results_folder(str(stage.lake), "j"), result_name("shop.b")), b"{}")
    monkeypatch.setattr("airflow_gddl.triggers.LOGGED_EVERY", 0.2)
    monkeypatch.setattr(GddlRunTrigger, "log", logging.getLogger("trigger"))
    caplog.set_level(logging.INFO, "trigger")
    logged = lambda: [line for line in caplog.messages if "is watched since" in line]  # noqa: E731 - as it reads
    assert asyncio.run(watched(trigger, lambda: len(logged()) >= 2)) is None
    lines = logged()
    assert len(lines) >= 2
    assert all(
        re.fullmatch(rf"run {started.run_id} is watched since \d+ s, 1 of 3 tables done", line) for line in lines
    )


def test_a_triggerer_that_ends_leaves_the_run_alone(
    stage: Stage, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deferred(_: object) -> bool:
        return True

    monkeypatch.setattr("airflow_gddl.triggers.is_still_deferred", deferred)
    trigger, started, _ = going(stage, fake)
    assert asyncio.run(watched(trigger, polled(fake, 2))) is None
    assert started.is_going


def test_triggers_query_their_task_where_airflow_gives_no_cancel_reason(
    stage: Stage, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def marked(_: object) -> bool:
        return False

    monkeypatch.setattr("airflow_gddl.triggers.TELLS_TRIGGERS_OF_KILLS", False)
    monkeypatch.setattr("airflow_gddl.triggers.is_still_deferred", marked)
    trigger, started, _ = going(stage, fake)
    assert asyncio.run(watched(trigger, polled(fake, 2))) is None
    assert ended(started)


def test_an_unreachable_platform_is_retried_and_a_refusal_is_raised_by_the_task(stage: Stage, fake: FakeServer) -> None:
    trigger, started, _ = going(stage, fake)
    fake.mood.answers = [500] * 4
    fake.workspace.cancel(started.run_id)
    assert asyncio.run(watched(trigger)) == {"begun": BEGUN, "state": "cancelled"}
    fake.mood.answers = [403]
    found = asyncio.run(watched(trigger))
    assert "PLATFORM_REFUSED" in found["error"]


def test_the_pages_of_runs_and_secrets(stage: Stage, fake: FakeServer) -> None:
    trigger, _, _ = going(stage, fake)
    assert fake.token not in json.dumps(trigger.serialize()[1])
    task = build_dags()[PACK].get_task("initial_load")
    assert isinstance(task, LoadOperator)
    task.job_log = f"{fake.workspace.url}/runs/1"
    assert PlatformRunLink().get_link(task, ti_key=None) == f"{fake.workspace.url}/runs/1"


@pytest.mark.parametrize("dag_id", ["gddl_maintenance", "gddl_verify"])
def test_the_maintenance_dags_run(stage: Stage, fake: FakeServer, dag_id: str) -> None:
    tables(stage, "a")
    done = build_upkeep_dags()[dag_id].test(logical_date=next(DATES))
    assert {str(ti.state) for ti in done.get_task_instances()} == {"success"}
    (job,) = stage.jobs
    assert (job["tables"], job["options"]["action"]["name"]) == (
        ["shop.a"],
        dag_id.removeprefix("gddl_").replace("maintenance", "maintain"),
    )
    assert job["options"]["origin"][0] == dag_id


def test_a_run_links_to_its_job(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a")
    run()
    record = read_pipeline(str(stage.lake), (PACK,)).records["shop.a"]
    (fact,) = record.runs
    assert fact.airflow[1] == "initial_load"
    assert fact.airflow[2].startswith("http://127.0.0.1")
