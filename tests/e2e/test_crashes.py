"""Parts and workers that are killed: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.tools.simulate.simulator import prepare
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape
from airflow_gddl.tools.simulate.table import differences, read_replica
from devtools.standalone import supervisor
from tests.e2e.site import Site

# A batch a file, so that the job has most of its batches before it when the first one is seen.
REAL = "gddl_pack.real.spark.1"
ORDERS = 400


def orders() -> pa.Table:
    ids = list(range(ORDERS))
    return pa.table(
        {"id": pa.array(ids, pa.int32()), "note": [f"note {n}" for n in ids], "price": [n / 4 for n in ids]}
    )


def commits(table: Path) -> int:
    return len(list((table / "_delta_log").glob("*.json")))


def jobs(site: Site) -> list[psutil.Process]:
    """Processes of the real job, not of its JVM."""

    def is_job(process: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):  # it ended since, or is a zombie
            return "spark_jobs.main" in process.cmdline()
        return False

    return [process for process in supervisor.marked(site.running.mark) if is_job(process)]


def kill_worker(site: Site) -> None:
    """As a machine that is lost: the task and the worker that it runs in, at once."""
    (job,) = jobs(site)
    task = job.parent()
    worker = task.parent()
    assert "LocalExecutor" in " ".join(worker.cmdline())
    for process in (worker, task):
        process.kill()


def changes(site: Site) -> list[dict[str, Any]]:
    return read_replica(site.lake / "real" / "orders__changes").to_pylist()


def test_a_worker_killed_during_a_job_loses_and_repeats_no_rows(site: Site) -> None:
    spec = SimulateSpec(
        input={"orders": orders()},
        landing=site.landing,
        schema="real",
        tables={"orders": TableShape(keys=("id",))},
        rounds=1,
        changes=100,
        files_per_round=20,
    )
    simulator = prepare(spec)
    simulator.land(0)
    site.load(REAL)
    replica = site.lake / "real" / "orders"
    assert not differences(simulator.truth("orders"), read_replica(replica), ("id",))

    simulator.land(1)
    before = commits(site.lake / "real" / "orders__changes")
    run = site.runs.trigger(REAL)
    site.running.wait(
        "changes to be appended", lambda: commits(site.lake / "real" / "orders__changes") > before, 120, 0.05
    )
    kill_worker(site)
    site.running.wait("the job to end with its worker", lambda: not jobs(site))
    site.forget_worker(run)
    site.runs.finish([run])

    tried = site.running.rest.get(f"{run.path}/taskInstances/incremental_load")["try_number"]
    assert tried > 1, "the job was done before its worker was killed"
    assert not differences(simulator.truth("orders"), read_replica(replica), ("id",))
    report = simulator.report().tables["orders"]
    kept = Counter((row["id"], row["_gddl"]["op"], str(row["_gddl"]["sequence"])) for row in changes(site))
    assert sum(kept.values()) == report.load_rows + sum(report.changes.values())
    assert set(kept.values()) == {1}


def test_a_killed_triggerer_is_noticed_and_a_new_one_resumes_waiting(site: Site) -> None:
    site.land("wait.a")
    site.land("wait.b")
    waiting = site.runs.trigger("gddl.wait.a")
    landed = f"{waiting.path}/taskInstances/landed"
    site.running.wait("it to wait", lambda: site.running.rest.get(landed)["state"] == "deferred")
    os.kill(site.running.parts["triggerer"].pid, signal.SIGKILL)
    with pytest.raises(FatalError, match="triggerer was ended by SIGKILL; its last lines:") as caught:
        site.running.wait("somebody to notice", lambda: False, 30)
    assert caught.value.code == "DEMO_FAILED"
    assert site.jobs("wait") == []
    site.restart("triggerer")
    site.load("gddl.wait.b")
    site.runs.finish([waiting])
    assert [job["tables"] for job in site.jobs("wait")] == [["wait.b"], ["wait.a"]]
