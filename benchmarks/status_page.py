"""How quickly the page of all tables and `gddl status` answer for many tables, with Airflow's own authentication.

See README.md beside this file. The last line on standard output is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measuring import WrongResultError, print_figures

from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, MainCounts
from airflow_gddl.metadata.loading import load
from airflow_gddl.runtime.compiled.cache import CompiledSettings
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from airflow_gddl.runtime.state.documents import PipelineState, encode, place
from airflow_gddl.runtime.state.table_runs import KEPT_RUNS, TablePoll, TableRecord
from airflow_gddl.stores import open_store
from airflow_gddl.topology.pipelines import Pipeline, arrange

_TABLES, _LOADS = 10_000, 9
QUERIES = (
    "",
    "state=failed",
    "search=t00&order=lag",
    "order=quarantined",
    "source=s3&tier=small&page=3",
    "order=table&page=40",
)


@dataclass(frozen=True)
class Lake:
    """Made-up state of so many tables: each tenth failed, each tenth waits, the others are fresh."""

    root: Path
    tables: int

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    def make(self, now: float) -> None:
        (self.metadata / "tables").mkdir(parents=True)
        (self.metadata / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
        lines = [f"s{n % 5}.t{n:05d},s{n % 5},id,1h" for n in range(self.tables)]
        (self.metadata / "tables" / "all.csv").write_text("\n".join(["table,source,keys,freshness", *lines]))
        loaded = load(self.metadata, {})
        if loaded.problems:
            raise WrongResultError(str(loaded.problems[0]))
        for pipeline in arrange(loaded.tables, loaded.tiers, loaded.dag_prefix).pipelines:
            self._write(loaded.roots.lake, pipeline, now)

    def _write(self, lake: str, pipeline: Pipeline, now: float) -> None:
        records = {table: _record(table, number_of(table), now) for table in pipeline.tables}
        open_store().write(place(lake, pipeline.dag_id), encode(PipelineState(tables=records, written=now)))


def number_of(table: str) -> int:
    return int(table.partition(".t")[2])


def _record(table: str, number: int, now: float) -> TableRecord:
    record = TableRecord()
    for back in range(KEPT_RUNS, 0, -1):
        started = now - 300 * back
        failed = back == 1 and number % 10 == 0
        error = ErrorInfo(code="SCHEMA_REFUSED", message="a column is text now") if failed else None
        result = JobResult(
            table=table,
            status="failed" if failed else "succeeded",
            started_at=datetime.fromtimestamp(started, UTC).isoformat(timespec="microseconds"),
            rows_read=100 + number,
            changes_written=100 + number,
            main=MainCounts(rows=number),
            freshness=Freshness(commit_ts=_text(started - 60), lag_seconds=60.0),
            error=error,
            seconds=1.5,
            run_id=f"20240101T000000-{number:08x}{back}",
        )
        record = record.after(result, now, ("scheduled__2024-01-01T00:00:00+00:00", "incremental_load"))
    return replace(record, poll=_poll(number, now), seen=now)


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")


def _poll(number: int, now: float) -> TablePoll:
    if number % 10 in (0, 1):
        return TablePoll(polled=now, files=30, waiting=2, since=now - 60, clear=now - 120)
    return TablePoll(polled=now, files=30, clear=now)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--scale", type=float, default=1.0, help="1: 10,000 tables")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-page-") as folder:
        lake = Lake(Path(folder), max(20, round(_TABLES * asked.scale)))
        lake.make(time.time())
        figures = measure(lake)
    print_figures(figures, "tables", "first_list_seconds", "status_command_seconds", "status_cpu_seconds")


def measure(lake: Lake) -> Mapping[str, float]:
    state = sum(path.stat().st_size for path in (lake.root / "lake" / "_gddl" / "state").iterdir())
    client, headers = _client(lake)
    get: Callable[[str], Any] = lambda path: client.get(path, headers=headers)  # noqa: E731 - as it reads
    first, answer = timed(lambda: get("/api/v1/tables"))
    check(lake, answer.json())
    lists = [timed(lambda query=query: get(f"/api/v1/tables?{query}"))[0] for query in QUERIES for _ in range(_LOADS)]
    worked = [cpu(lambda query=query: get(f"/api/v1/tables?{query}")) for query in QUERIES for _ in range(_LOADS)]
    tables = [timed(lambda: get("/api/v1/table?name=s3.t00003"))[0] for _ in range(_LOADS)]
    return {
        "tables": lake.tables,
        "state_mb": round(state / 1e6, 1),
        "first_list_seconds": round(first, 3),
        "list_seconds_median": round(statistics.median(lists), 3),
        "list_seconds_worst": round(max(lists), 3),
        "list_cpu_seconds_median": round(statistics.median(worked), 3),
        "table_seconds_median": round(statistics.median(tables), 3),
        **_status(lake),
    }


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = call()
    return time.perf_counter() - started, answer


def cpu(call: Callable[[], Any]) -> float:
    """Seconds of this process alone: what is left of a figure when others use the machine, too."""
    started = time.process_time()
    call()
    return time.process_time() - started


def check(lake: Lake, reported: Mapping[str, Any]) -> None:
    tenth = sum(n % 10 == 0 for n in range(lake.tables))
    waiting = sum(n % 10 == 1 for n in range(lake.tables))
    expected = {"failed": tenth, "waiting": waiting, "fresh": lake.tables - tenth - waiting}
    counted = {state: reported["choices"][state] for state in expected}
    if counted != expected or reported["tables"] != lake.tables or len(reported["rows"]) != min(50, lake.tables):
        raise WrongResultError(f"{counted} instead of {expected}")


def _status(lake: Lake) -> dict[str, float]:
    """The command twice: as it finds metadata that changed, and as it finds it compiled."""
    command = [sys.executable, "-m", "airflow_gddl.cli.main", "status", "--json", "--metadata", str(lake.metadata)]
    environ = {**os.environ, "XDG_CACHE_HOME": str(lake.root / "command")}

    def run() -> int:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
        return len(done.stdout.splitlines())

    first, lines = timed(run)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, again = timed(run)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if {lines, again} != {lake.tables}:
        raise WrongResultError(f"gddl status has {lines} and {again} lines")
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "status_first_seconds": round(first, 3),
        "status_command_seconds": round(seconds, 3),
        "status_cpu_seconds": round(worked, 3),
    }


def _client(lake: Lake) -> tuple[Any, dict[str, str]]:
    """The page's application, every answer made anew, and a viewer's token."""
    os.environ |= {
        "AIRFLOW_HOME": str(lake.root / "airflow"),
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of a benchmark, " * 3,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "viewer:viewer",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }
    # Airflow reads its configuration when it is imported.
    from airflow.api_fastapi.app import create_auth_manager  # noqa: PLC0415 - as said above
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser  # noqa: PLC0415 - as said above
    from airflow.utils.db import initdb  # noqa: PLC0415 - as said above
    from fastapi.testclient import TestClient  # noqa: PLC0415 - as said above

    from airflow_gddl.tools.page.app import build_app  # noqa: PLC0415 - as said above
    from airflow_gddl.tools.page.responses import PageSource  # noqa: PLC0415 - as said above

    with contextlib.redirect_stdout(io.StringIO()):
        initdb()
    manager = create_auth_manager()
    manager.init()
    token = manager.generate_jwt(SimpleAuthManagerUser(username="viewer", role="VIEWER"))
    settings = CompiledSettings(
        metadata=str(lake.metadata), cache=lake.root / "cache", environ={}, clock=time.time, settle_seconds=0.0
    )
    source = PageSource(lambda: CompiledMetadata.current(settings), patience=0.0)
    return TestClient(build_app(source)), {"Authorization": f"Bearer {token}"}


if __name__ == "__main__":
    main()
