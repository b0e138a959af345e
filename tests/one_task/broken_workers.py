"""What worker processes run in tests: the real thing, but for tables whose names say otherwise."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

from airflow_gddl.contract.spec import JobSpec
from spark_jobs.batch.runtime import Runtime
from spark_jobs.job import spread_local
from spark_jobs.job.spread_local import Answer, Task

_answer = spread_local.answer


def serve(orders: Connection, job: JobSpec) -> None:
    """`spread_local.serve` that dies, hangs or lacks memory at tables of such names."""
    spread_local.answer = answer
    spread_local.serve(orders, job)


def answer(task: Task, job: JobSpec, runtime: Runtime) -> Answer:
    name = "" if task.polls else task.specs[0].name
    if name == "dies" or (name == "dies_once" and _first_time(job, name)):
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "hangs":
        time.sleep(600)
    if name == "hungry":
        held = bytearray(512 * 1024**2)
        time.sleep(30)
        del held
    return _answer(task, job, runtime)


def _first_time(job: JobSpec, name: str) -> bool:
    marker = Path(job.roots.lake, f"{name}.marker")
    if marker.exists():
        return False
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return True
