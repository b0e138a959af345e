"""A Python process of Spark that dies between what it wrote and the commit: tables are right, its files go later."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from airflow_gddl.contract.actions import Maintain, Rebuild
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.spark.tasks import run_in_tasks
from spark_jobs.tables import many_tasks
from spark_jobs.tables.places import TaskBounds
from tests.conftest import LocalPort
from tests.harness.lake import Lake, on_spark
from tests.oracle import replay
from tests.spark.crash_tables import BEFORE, BROKEN, RUNS, TYPES, spec_of
from tests.spark.table_lines import by_engine, by_oracle, differences

SPEC = spec_of("lost")
PHASES = ("load", "changes", "rebuild")
TABLES = ("changes", "replica", "history", "tombstones", "errors")


IN_TASKS = LocalPort("many", TaskBounds(files=-1, load=-1, key_range=2_000))
"""However few bytes there are, they go to tasks."""


def dying(lake: str, deaths: Path, most: int) -> Callable[..., Any]:
    """`run_in_tasks` whose first `most` processes that have written a data file die before they report it."""

    def in_tasks(session: Any, rule: Callable[[Any], Iterator[bytes]], parts: Any) -> Any:
        def run(part: Any) -> Iterator[bytes]:
            def data_files() -> set[Path]:
                return {path for path in Path(lake).rglob("*.parquet") if "_delta_log" not in path.parts}

            before = data_files()
            reports = list(rule(part))
            if data_files() - before:
                number = len(list(deaths.iterdir()))
                if number < most:
                    (deaths / str(os.getpid())).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            yield from reports

        return run_in_tasks(session, run, parts)

    return in_tasks


def run_of(phase: str, lake: Lake, spec: TableSpec) -> JobResult:
    options = JobOptions(action=Rebuild()) if phase == "rebuild" else JobOptions()
    return lake.results(IN_TASKS, on_spark(lake.job([spec], options, run_id=phase)))[spec.table]


def unnamed(lake: Lake, spec: TableSpec) -> set[Path]:
    """Data files in the tables' folders that no commit ever named."""
    found: set[Path] = set()
    for name in TABLES:
        folder = Path(getattr(lake.layout(spec), name))
        lines = [line for log in (folder / "_delta_log").glob("*.json") for line in log.read_text().splitlines()]
        actions = [action for line in lines for action in json.loads(line).values()]
        named = {folder / unquote(one["path"]) for one in actions if isinstance(one, dict) and "path" in one}
        found |= {path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts} - named
    return found


@pytest.mark.deep
@pytest.mark.parametrize(
    ("phase", "most"),
    [
        ("changes", 1),
        pytest.param("changes", 100, marks=pytest.mark.deep),
        *(pytest.param(phase, n, marks=pytest.mark.deep) for phase in ("load", "rebuild") for n in (1, 100)),
    ],
)
def test_files_of_a_lost_process_are_never_named_and_go_later(
    phase: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: Spark tries the task again. Each time: the table fails, and the next run does all."""
    lake, deaths = Lake(tmp_path / "lake"), tmp_path / "deaths"
    deaths.mkdir()
    for step in PHASES:
        if step != "rebuild":
            lake.land(SPEC, BEFORE if step == "load" else BROKEN, TYPES)
        if step == phase:
            with monkeypatch.context() as patched:
                patched.setattr(many_tasks, "run_in_tasks", dying(str(tmp_path / "lake"), deaths, most))
                result = run_of(step, lake, SPEC)
            assert list(deaths.iterdir()), "no process died"
            if most > 1:
                assert result.error is not None
                assert (result.error.code, result.error.fatal) == ("WORKER_DIED", False), result.error
                assert ".parquet" in result.error.message, "it names the files of the task"
                result = run_of(step, lake, SPEC)
        else:
            result = run_of(step, lake, SPEC)
        assert result.error is None, result.error
    assert differences(by_oracle(replay(SPEC, RUNS), SPEC), by_engine(lake.layout(SPEC))) == []
    left = unnamed(lake, SPEC)
    assert left, "the dead process left nothing behind"
    old = time.time() - 30 * 86_400
    for path in (tmp_path / "lake").rglob("*"):
        os.utime(path, (old, old))
    options = JobOptions(action=Maintain())
    swept = lake.results(IN_TASKS, on_spark(lake.job([SPEC], options, run_id="maintain")))[SPEC.table]
    assert swept.error is None, swept.error
    assert not left & unnamed(lake, SPEC)
    assert differences(by_oracle(replay(SPEC, RUNS), SPEC), by_engine(lake.layout(SPEC))) == []
