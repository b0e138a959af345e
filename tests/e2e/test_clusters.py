"""Two schedulers on PostgreSQL, with LocalExecutor and with Celery: one is lost in the middle of loads."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
import sqlalchemy as sa

from airflow_gddl.contract.errors import FatalError
from devtools.standalone import supervisor
from devtools.standalone.part import PARTS, PartSpec
from devtools.standalone.supervisor import Standalone
from tests.e2e import database
from tests.e2e.conftest import populate
from tests.e2e.site import Site, order
from tests.one_task.postgres import postgres

pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]
LANES = ("queue.low", "queue.normal", "queue.high", "queue.critical")
SECOND = PartSpec("second-scheduler", ("scheduler", "--skip-serve-logs"))
WORKER = PartSpec("celery-worker", ("celery", "worker", "--skip-serve-logs", "--concurrency", "4"))


@pytest.fixture(scope="module", params=["LocalExecutor", "CeleryExecutor"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, sa.Engine]]:
    """An Airflow with two schedulers; under Celery with a worker, whose broker is a database."""
    celery = request.param == "CeleryExecutor"
    if celery and importlib.util.find_spec("celery") is None:
        pytest.skip("apache-airflow-providers-celery is not installed")
    root = tmp_path_factory.mktemp("cluster")
    with postgres() as engine:
        url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        asked = order(root)
        more = {**asked.settings.more, "database": database.options(url), "core": {"executor": request.param}}
        # Tasks of a lost scheduler must be retried soon; PostgreSQL does not delay heartbeats.
        more["scheduler"] = {**more["scheduler"], "task_instance_heartbeat_timeout": "30"}
        if celery:
            more["celery"] = {
                "broker_url": f"sqla+sqlite:///{root}/broker.db",
                "result_backend": f"db+sqlite:///{root}/results.db",
            }
        parts = (*PARTS, SECOND, *([WORKER] if celery else []))
        settings = replace(asked.settings, more=more, parallelism=8)
        running = Standalone(replace(asked, settings=settings, parts=parts, ready_seconds=600.0))
        site = Site(root, running)
        populate(site)
        with running:
            running.begin()
            running.start()
            running.wait_ready()
            site.runs.wait_for([f"gddl.{lane}" for lane in LANES])
            running.wait("two schedulers", lambda: schedulers(engine) == 2)
            yield site, engine
        assert not any(mark.endswith(str(running.request.home.root)) for mark in supervisor.marks()), (
            "a process is left"
        )


def schedulers(engine: sa.Engine) -> int:
    """That say that they run."""
    query = sa.text("select count(*) from job where job_type = 'SchedulerJob' and state = 'running'")
    with engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def test_loads_end_although_a_scheduler_is_lost(cluster: tuple[Site, sa.Engine]) -> None:
    site, engine = cluster
    for lane in LANES:
        site.land(lane)
    holds = [site.hold(lane) for lane in LANES]
    pool = {"pool": "gddl_solo", "slots": len(LANES), "include_deferred": True}
    site.running.rest.patch("pools/gddl_solo", pool)
    runs = [site.runs.trigger(f"gddl.{lane}") for lane in LANES]
    site.running.wait("all jobs to start", lambda: len(site.jobs("queue")) >= len(LANES))
    assert schedulers(engine) == 2
    site.running.parts.pop("scheduler").kill()
    for hold in holds:
        hold.unlink()
    site.runs.finish(runs)
    ended = Counter(table for job in site.jobs("queue", "end") for table in job["tables"])
    assert ended == dict.fromkeys(LANES, 1), "each table is loaded once, by a job that came to its end"

    for lane in LANES:
        site.land(lane, "20240102-000000000.parquet")
    site.runs.finish([site.runs.trigger(f"gddl.{lane}") for lane in LANES])
    ended = Counter(table for job in site.jobs("queue", "end") for table in job["tables"])
    assert ended == dict.fromkeys(LANES, 2), "one scheduler is enough"


def test_a_wait_outlives_its_triggerer(cluster: tuple[Site, sa.Engine]) -> None:
    site, _ = cluster
    site.land("wait.a")
    site.land("wait.b")
    waiting = site.runs.trigger("gddl.wait.a")
    place = f"{waiting.path}/taskInstances/landed"
    site.running.wait("the sensor to wait", lambda: site.running.rest.get(place)["state"] == "deferred")
    os.kill(site.running.parts["triggerer"].pid, signal.SIGKILL)
    with suppress(FatalError):
        site.running.wait("the triggerer to be missed", lambda: False, 5)
    site.restart("triggerer")
    site.load("gddl.wait.b")
    site.runs.finish([waiting])
    assert [job["tables"] for job in site.jobs("wait", "end")] == [["wait.b"], ["wait.a"]]
