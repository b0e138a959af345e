"""A job that dies by SIGKILL right after a step: `python -m tests.spark.crash_child SPEC STEP OCCURRENCE`."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.result import JobResult
from spark_jobs.job import run_job
from spark_jobs.main import read_spec
from spark_jobs.runtime import LazySpark, Runtime, Step
from spark_jobs.session_settings import SessionSettings
from spark_jobs.storage import Storage

SURVIVED = 3
"""Exit status when the step never came."""


@dataclass
class Killer:
    """Attributes:
    left: occurrences of the step up to the deadly one.
    """

    step: str
    left: int

    def __call__(self, told: Step) -> None:
        self.left -= told.step == self.step
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(spec: str, step: str, occurrence: str) -> int:
    job = read_spec(spec)
    spark = LazySpark(SessionSettings(cores=2, memory="2g", brief=True))
    try:
        run_job(job, Runtime(storage=Storage(), spark=spark, observe=Killer(step, int(occurrence))), _show)
    finally:
        spark.stop()
    return SURVIVED


def _show(result: JobResult) -> None:
    print(to_json(result))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
