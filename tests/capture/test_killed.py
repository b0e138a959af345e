"""A job that is killed at any moment while the source is written to: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from airflow_gddl.contract import codec
from tests.capture.captured import SPEC, Writer, again, end, prepared, replica, rows_of
from tests.databases.test_initial_load import environ
from tests.delta_rs.postgres import execute, postgres
from tests.delta_rs.small_lake import SmallLake

LINES = replace(SPEC, table="s.lines", keys=())
TIMES = int(os.environ.get("GDDL_KILLS", "50"))


@pytest.fixture
def source() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as server:
        prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "CREATE TABLE s.lines (v text)")
        execute(server, "ALTER TABLE s.lines REPLICA IDENTITY FULL")
        execute(server, "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 200) i")
        yield server
        end(server)


@pytest.mark.deep
def test_killed_under_writers_and_ddl(source: sa.Engine, tmp_path: Path) -> None:
    lake, chance = SmallLake(tmp_path), random.Random(1)  # noqa: S311 - repeatable by its seed
    killed = 0
    with Writer(source, 1), Writer(source, 2):
        for number in range(TIMES):
            spec = SPEC if number % 2 else LINES
            execute(source, f"INSERT INTO s.lines SELECT '{number} ' || i FROM generate_series(1, 300) i")
            if number % 10 == 5:
                execute(source, f"ALTER TABLE s.t ADD c{number} int DEFAULT {number}")
            killed += _killed_after(lake, source, replace(spec), number, chance.uniform(0.5, 12))
    assert killed > TIMES // 4
    for spec in (SPEC, LINES):
        again(lake, source, f"last of {spec.table}", spec)
        again(lake, source, f"very last of {spec.table}", spec)
    assert Counter(row["v"] for row in replica(lake, LINES)) == Counter(row["v"] for row in rows_of(source, "s.lines"))
    expected = {row["id"]: row["v"] for row in rows_of(source)}
    assert {row["id"]: row["v"] for row in replica(lake)} == expected


def _killed_after(lake: SmallLake, engine: sa.Engine, spec: object, number: int, seconds: float) -> bool:
    """Whether the job was still running; its engine ends with it."""
    job = replace(lake.job([spec]), run_id=f"killed {number}")  # the writers go on meanwhile
    command = [sys.executable, "-m", "tests.databases.killed_load", codec.to_json(job), "0", "never"]
    log = Path(lake.root, f"killed-{number}.log")
    with (
        log.open("wb") as stream,
        subprocess.Popen(command, env={**os.environ, **environ(engine)}, stdout=stream, stderr=stream) as process,
    ):
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        is_killed = process.wait() == -signal.SIGKILL
    assert is_killed or process.returncode == 0, log.read_text()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive, "an engine outlives its job"
    time.sleep(0.1)
    return is_killed
