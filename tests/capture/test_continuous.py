"""A continuous job of tables whose source's log it reads: what is written while it runs arrives, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract import codec
from airflow_gddl.contract.spec import Continuous, JobOptions
from tests.capture.captured import SPEC, Writer, end, prepared, replica, rows_of
from tests.databases.test_initial_load import environ
from tests.harness.lake import Lake
from tests.harness.waiting import PATIENCE_SECONDS, wait_for
from tests.one_task.postgres import execute, postgres

OTHER = replace(SPEC, table="s.other")
SPECS = (SPEC, OTHER)


@pytest.fixture
def source() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as server:
        prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "CREATE TABLE s.other (id int PRIMARY KEY)")
        execute(server, "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 200) i")
        execute(server, "INSERT INTO s.other SELECT i FROM generate_series(1, 20) i")
        yield server
        end(server)


@contextmanager
def running(lake: Lake, source: sa.Engine) -> Iterator[psutil.Popen]:
    """The job as `gddl` starts it."""
    order = lake.root / "order.json"
    order.write_text(codec.to_json(lake.job(SPECS, JobOptions(continuous=Continuous()))), encoding="utf-8")
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
    with (
        (lake.root / "job.log").open("ab") as log,
        psutil.Popen(command, env={**os.environ, **environ(source)}, stdout=log, stderr=subprocess.STDOUT) as job,
    ):
        try:
            yield job
        finally:
            if job.poll() is None:
                job.kill()


def has_all(lake: Lake, source: sa.Engine) -> bool:
    there = all(DeltaTable.is_deltatable(lake.layout(spec).replica) for spec in SPECS)
    return there and all(replica(lake, spec) == rows_of(source, spec.table) for spec in SPECS)


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_rows_arrive_and_no_end_loses_any(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with running(lake, source) as job:
        wait_for(lambda: has_all(lake, source), "the load")
        execute(source, "INSERT INTO s.t VALUES (1000, 'x')", "DELETE FROM s.other WHERE id < 5")
        wait_for(lambda: has_all(lake, source), "the first changes")
        with Writer(source, 1):
            wait_for(lambda: _is_reading(job), "an engine at work")
            _end(job, signal.SIGKILL)
        execute(source, "INSERT INTO s.other VALUES (1000)")
    with running(lake, source) as job:
        wait_for(lambda: has_all(lake, source), "what was written meanwhile")
        execute(source, "UPDATE s.t SET v = 'last' WHERE id < 50")
        wait_for(lambda: has_all(lake, source), "the last changes")
        with Writer(source, 2):
            wait_for(lambda: _is_reading(job), "an engine at work")
            assert _end(job, signal.SIGTERM) == 0, (lake.root / "job.log").read_text()
    with running(lake, source) as job:
        wait_for(lambda: has_all(lake, source), "what was written when it ended")
        assert _end(job, signal.SIGTERM) == 0, (lake.root / "job.log").read_text()


def _is_reading(job: psutil.Popen) -> bool:
    return any("engine_process" in part for child in _children(job) for part in _command(child))


def _end(job: psutil.Popen, how: signal.Signals) -> int:
    """Exit status; processes of a job that was killed finish their tables, and end."""
    children = _children(job)
    job.send_signal(how)
    status = job.wait(120)
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_SECONDS)
    assert not alive
    return int(status)


def _children(job: psutil.Popen) -> list[psutil.Process]:
    return job.children(recursive=True)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
