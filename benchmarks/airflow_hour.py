"""An hour of a fleet: many tables on a schedule, and files that arrive all the time; see README.md beside this file.

    python benchmarks/airflow_hour.py [--tables 10000] [--minutes 60] [--every 5]

The last line on standard output is JSON.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles

import psutil
import sqlalchemy as sa
from airflow_run import land, loads, started, write
from measuring import WrongResultError, print_figures, say
from onboard_source import postgres

from airflow_gddl.runners.child import stoppable
from devtools.standalone import supervisor

_PARTS = ("scheduler", "triggerer", "dag-processor", "api-server")


@dataclass
class Fleet:
    """Tables with landing folders, and what arrived in them.

    Attributes:
        arrived: seconds since the epoch of each table's files after its first load.
    """

    root: Path
    tables: int
    arrived: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def feed(self, chosen: random.Random, count: int) -> None:
        """A change file for so many tables, chosen at random."""
        for n in chosen.sample(range(self.tables), count):
            times = self.arrived[f"shop.t{n}"]
            land(self.root, n, f"20240101-{len(times) + 1:09d}.parquet")
            times.append(time.time())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tables", type=int, default=10_000)
    options.add_argument("--minutes", type=int, default=60, help="of schedules, after the first load of all tables")
    options.add_argument("--every", type=int, default=5, help="minutes between two runs of a DAG; divides 60")
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    root = Path(tempfile.mkdtemp(prefix="gddl-hour-"))
    try:
        with stoppable():
            answer = measure(Fleet(root, asked.tables), asked.minutes, asked.every, random.Random(asked.seed))  # noqa: S311 - no secret
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print_figures(answer, "schedules", "files", "loads", "run_seconds_median")


def measure(fleet: Fleet, minutes: int, every: int, chosen: random.Random) -> dict[str, float]:
    """
    Raises:
        WrongResultError: a run failed, or a file was not loaded.
        GddlError: Airflow did not start.
    """
    write(fleet.root, fleet.tables, "pack", f'"*/{every} * * * *"')
    record = fleet.root / "record"
    with postgres() as engine, started(fleet.root, record, engine) as (airflow, dags):
        first = time.monotonic()
        airflow.wait("first loads", lambda: len({name for name, _ in loads(record)}) == fleet.tables, 3600)
        say(f"{fleet.tables:,} tables in {len(dags)} DAGs: first loads in {time.monotonic() - first:.0f} s")
        begun, cpu = datetime.now(UTC), cpu_by_part(airflow.mark, engine)
        for minute in range(minutes):
            fleet.feed(chosen, max(1, fleet.tables // 60))
            _wait(begun + timedelta(minutes=minute + 1))
        ended = datetime.now(UTC)
        spent = {part: seconds - cpu.get(part, 0.0) for part, seconds in cpu_by_part(airflow.mark, engine).items()}
        _wait(ended + timedelta(minutes=2 * every))
        ticks = list(_ticks(begun, ended, every))
        answer = scheduled(engine, len(dags), ticks)
    answer |= {f"{part}_cpu_seconds": round(seconds, 1) for part, seconds in sorted(spent.items())}
    return {"tables": fleet.tables, "minutes": minutes, **answer, **freshness(fleet, loads(record))}


def _wait(until: datetime) -> None:
    time.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds()))


def _ticks(begun: datetime, ended: datetime, every: int) -> Iterator[datetime]:
    """Moments of the schedule between the two."""
    tick = begun.replace(minute=0, second=0, microsecond=0)
    while tick <= ended:
        if tick > begun:
            yield tick
        tick += timedelta(minutes=every)


def scheduled(engine: sa.Engine, dags: int, ticks: Sequence[datetime]) -> dict[str, float]:
    """Scheduled runs of these moments: how many are missing, and how late the others began.

    Raises:
        WrongResultError: a scheduled run failed, at any moment.
    """
    text = "select run_after, start_date, end_date, state from dag_run where run_type = 'scheduled'"
    with engine.connect() as database:
        all_runs = list(database.execute(sa.text(text)))
    if failed := sum(row.state == "failed" for row in all_runs):
        raise WrongResultError(f"{failed} runs failed")
    rows = [row for row in all_runs if row.run_after.astimezone(UTC) in set(ticks)]
    late = [(row.start_date - row.run_after).total_seconds() for row in rows if row.start_date is not None]
    took = [(row.end_date - row.start_date).total_seconds() for row in rows if row.end_date is not None]
    return {
        "schedules": dags * len(ticks),
        "missed": dags * len(ticks) - len(late),
        "late_seconds_median": round(median(late), 1),
        "late_seconds_p95": round(quantiles(late, n=20)[-1], 1),
        "late_seconds_most": round(max(late), 1),
        "run_seconds_median": round(median(took), 1),
    }


def freshness(fleet: Fleet, loads: Sequence[tuple[str, float]]) -> dict[str, float]:
    """From a file to the first load after it.

    Raises:
        WrongResultError: a file has none, or there are more loads than the first ones and one for each file.
    """
    by_table: dict[str, list[float]] = defaultdict(list)
    for name, at in loads:
        by_table[name].append(at)
    files = [(name, arrived) for name, times in fleet.arrived.items() for arrived in times]
    loaded = [min((at for at in by_table[name] if at > arrived), default=None) for name, arrived in files]
    if lost := loaded.count(None):
        raise WrongResultError(f"{lost} of {len(files)} files were not loaded")
    if len(loads) > fleet.tables + len(files):
        raise WrongResultError(f"{len(loads)} loads for {fleet.tables} tables and {len(files)} files")
    waits = [at - arrived for at, (_, arrived) in zip(loaded, files, strict=True) if at is not None]
    return {"files": len(files), "loads": len(loads), "fresh_seconds_median": round(median(waits), 1),
            "fresh_seconds_p95": round(quantiles(waits, n=20)[-1], 1)}  # fmt: skip


def cpu_by_part(mark: str, engine: sa.Engine) -> dict[str, float]:
    """CPU seconds of each part of Airflow, of `tasks` (all its other processes), and of the database's server."""
    spent: dict[str, float] = defaultdict(float)
    for process in supervisor.marked(mark):
        with suppress(psutil.NoSuchProcess):
            words = process.cmdline()
            spent[next((part for part in _PARTS if part in words), "tasks")] += supervisor.cpu_of(process)
    with engine.connect() as database:
        server = psutil.Process(database.scalar(sa.text("select pg_backend_pid()"))).parent()
        assert server is not None
        for process in (server, *server.children()):
            with suppress(psutil.NoSuchProcess):
                spent["database"] += supervisor.cpu_of(process)
    return dict(spent)


if __name__ == "__main__":
    main()
