"""A job that is killed while one of its requests is under way, and the run after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import Layout
from airflow_gddl.stores import Storage
from tests.s3 import delivery
from tests.s3.conftest import Place, Server
from tests.s3.faulty import Fault, Way

STEPS = {
    "the plan": "/_gddl/ledger/s/a/plan",
    "a file of changes": "/lake/s/a__changes/part-",
    "the commit of changes": "/lake/s/a__changes/_delta_log/00000000000000000001.json",
    "the commit of the replica": "/lake/s/a/_delta_log/00000000000000000001.json",
    "the commit of the ledger": "/_gddl/ledger/s/a/commits/",
}


def count(place: Place, path: str) -> int:
    return pa.table(DeltaTable(path, storage_options=Storage(environ=place.environ).options_of(path)).scan()).num_rows


@pytest.mark.parametrize("step", STEPS)
def test_next_job_completes_a_killed_one(
    step: str, server: Server, way: Way, reach: Callable[[Place], None], tmp_path: Path
) -> None:
    place = server.place(way.endpoint)
    reach(place)
    delivery.deliver(place, ["a"])
    stopped = Fault("slow", method="PUT", path=STEPS[step], seconds=20, times=1)
    way.faults = [stopped]
    order = tmp_path / "spec.json"
    order.write_text(to_json(delivery.job(place, ["a"])))
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
    with subprocess.Popen(
        command, env={**os.environ, **place.environ}, process_group=0, stdout=subprocess.PIPE
    ) as killed:
        deadline = time.monotonic() + 120
        while not stopped.met and killed.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(killed.pid, signal.SIGKILL)
    assert stopped.met == 1
    way.faults = []
    result = delivery.run_here(place, ["a"], "again")["a"]
    assert result.status == "succeeded", result.error
    layout = Layout.of(place.roots, delivery.table("a"))
    assert count(place, layout.replica) == len(delivery.ROWS)
    assert count(place, layout.changes) == 5
