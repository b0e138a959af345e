"""A job runs in a folder of the user's, whose own folders are not taken for packages of this project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_gddl.contract.python_command import JOB
from airflow_gddl.contract.result import TableTasks
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.runners.interface import ProgressEvent
from airflow_gddl.runners.this_machine import LocalRunner
from tests.harness.lake import Lake, spec_of
from tests.remote.heard import Heard

OURS = ("spark_jobs", "airflow_gddl", "pyspark", "obstore")


class Steps(Heard):
    def on_progress(self, event: ProgressEvent) -> None: ...


@pytest.mark.parametrize("tasks", ["one", pytest.param("many", marks=pytest.mark.deep)])
def test_modules_in_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: TableTasks
) -> None:
    for name in OURS:
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "__init__.py").write_text("raise ImportError('this is the user\\'s own')\n")
    monkeypatch.chdir(tmp_path / "work")
    lake = Lake(tmp_path, TierSpec(tasks=tasks, memory="1g"))
    lake.load(spec_of("a"))
    lake.change(spec_of("a"), 1, [("U", 0, "first"), ("D", 1, None)])
    heard = Steps()
    LocalRunner(command=JOB, environ=os.environ).run(lake.job([spec_of("a")]), heard)
    assert [(result.status, result.error, result.tasks) for result in heard.results] == [("succeeded", None, tasks)]
    assert lake.replica(spec_of("a")) == {0: "first", 2: "load 2"}


@pytest.mark.deep
def test_spark_tasks_do_not_import_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts Python itself, in the same folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spark_jobs").mkdir()
    (tmp_path / "spark_jobs" / "__init__.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert python(program) == ["spark_jobs.plan.planned_batch"]


PROGRAM = """
import pyarrow as pa
from spark_jobs.spark.session import open_session
from spark_jobs.spark.session_settings import SessionSettings

def where(batches):
    import spark_jobs.plan.planned_batch
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"name": [spark_jobs.plan.planned_batch.__name__] * batch.num_rows})

session = open_session(SessionSettings(cores=1, memory="1g", brief=True))
print("FOUND", session.range(1).mapInArrow(where, "name string").collect()[0]["name"], flush=True)
"""


def python(program: Path) -> list[str]:
    """What the program says it found, else what went wrong."""
    done = subprocess.run([sys.executable, "-P", program], capture_output=True, text=True, check=False, timeout=240)
    found = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND")]
    return found or [done.stderr]
