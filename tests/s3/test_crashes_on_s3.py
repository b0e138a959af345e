"""A job that is killed while a request of each of its tables is under way, and the run after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import Layout
from airflow_gddl.stores import Storage
from tests.harness.waiting import wait_for
from tests.s3 import delivery
from tests.s3.conftest import Place, Server
from tests.s3.faulty import Fault, Way

STEPS = {
    "plan": "/_gddl/ledger/s/plan/plan",
    "changes": "/lake/s/changes__changes/part-",
    "changes_commit": "/lake/s/changes_commit__changes/_delta_log/00000000000000000001.json",
    "replica_commit": "/lake/s/replica_commit/_delta_log/00000000000000000001.json",
    "ledger_commit": "/_gddl/ledger/s/ledger_commit/commits/",
}
"""Each table's request that never arrives: the plan, a file of changes, and the commits of each part of a batch."""


def count(place: Place, path: str) -> int:
    return pa.table(DeltaTable(path, storage_options=Storage(environ=place.environ).options_of(path)).scan()).num_rows


def lost(killed: threading.Event) -> None:
    """Hold the request until its sender is gone, and don't pass it on."""
    killed.wait()
    raise ConnectionError("its sender was killed")


def test_next_job_completes_a_killed_one(
    server: Server, way: Way, reach: Callable[[Place], None], tmp_path: Path
) -> None:
    place, names, gone = server.place(way.endpoint), list(STEPS), threading.Event()
    reach(place)
    delivery.deliver(place, names)
    stopped = [Fault("slow", method="PUT", path=path, before=lambda: lost(gone)) for path in STEPS.values()]
    way.faults = list(stopped)
    job, order = delivery.job(place, names), tmp_path / "spec.json"
    at_once = {size: replace(tier, cores=len(names)) for size, tier in job.tiers.items()}
    order.write_text(to_json(replace(job, tiers=at_once)))
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
    with subprocess.Popen(
        command, env={**os.environ, **place.environ}, process_group=0, stdout=subprocess.PIPE
    ) as killed:
        wait_for(lambda: all(fault.met for fault in stopped) or killed.poll() is not None)
        os.killpg(killed.pid, signal.SIGKILL)
    assert [fault.path for fault in stopped if not fault.met] == []
    way.faults = []
    gone.set()
    done = delivery.run_here(place, names, "again")
    assert {name: result.error for name, result in done.items() if result.status != "succeeded"} == {}
    for name in names:
        layout = Layout.of(place.roots, delivery.table(name))
        assert (name, count(place, layout.replica)) == (name, len(delivery.ROWS))
        assert (name, count(place, layout.changes)) == (name, 5)
