"""`gddl` on small tables: as a user starts it, or in this process, its job included."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runners.interface import JobOutcome, Listener
from airflow_gddl.runners.this_machine import JobProcess
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime, SparkLeftOut
from spark_jobs.job.job_tables import exit_status, run_job

GDDL = [sys.executable, "-m", "airflow_gddl.cli.main"]
Answer = tuple[list[dict[str, Any]], str]
"""The lines of `--json`, and what was said beside them."""


def gddl_process(folder: Path, *arguments: str, status: int = 0) -> Answer:
    """A process of the command, which starts one of the job, which starts those of the tables."""
    command = [*GDDL, *arguments, "--metadata", str(folder / "metadata"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return _answer(done.stdout, done.stderr, done.returncode, status)


def gddl(folder: Path, *arguments: str, status: int | None = 0, as_json: bool = True) -> Answer:
    """The same in this process: the job gets its JobSpec and gives its results as the other process would.

    Args:
        status: that it has to end with; None: any.
    """
    out, err = io.StringIO(), io.StringIO()
    with patch.object(JobProcess, "run", _run_here), redirect_stdout(out), redirect_stderr(err):
        form = ["--json"] if as_json else []
        ended = invoke([*arguments, "--metadata", str(folder / "metadata"), *form], context.real())
    return _answer(out.getvalue(), err.getvalue(), ended, status)


def _answer(out: str, err: str, ended: int, status: int | None) -> Answer:
    assert status in (ended, None), out + err
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], out + err


def _run_here(_: JobProcess, spec: JobSpec, listener: Listener) -> JobOutcome:
    """`JobProcess.run` without the process."""
    results: list[JobResult] = []

    def show(result: JobResult) -> None:
        results.append(from_json(JobResult, to_json(result)))
        listener.on_result(results[-1])

    runtime = Runtime(storage=Storage(), spark=SparkLeftOut())
    outcomes = run_job(from_json(JobSpec, to_json(spec)), runtime, show)
    return JobOutcome(results=tuple(results), exit_status=exit_status(outcomes))
