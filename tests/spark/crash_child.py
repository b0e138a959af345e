"""A job that dies by SIGKILL right after a step: `python -m tests.spark.crash_child SPEC DEATHS OCCURRENCE`.

DEATHS is a JSON object, the step of each table. With several tables each stands still after its step, and the process
dies once all of them do.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass, field

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime, Step
from spark_jobs.job.job_tables import run_job
from spark_jobs.program import read_spec
from spark_jobs.spark.session_settings import SessionSettings
from tests.harness.places import bounds_of, with_commits

SURVIVED = 3
"""Exit status when the step never came."""


@dataclass
class Killer:
    """Attributes:
    left: by table and step, occurrences up to the deadly one.
    """

    left: dict[tuple[str, str], int]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, reported: Step) -> None:
        here = (reported.table, reported.step)
        with self._lock:
            if here not in self.left:
                return
            self.left[here] -= 1
            if self.left[here] > 0:
                return
            if not any(self.left.values()):
                os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()


def main(spec: str, deaths: str, occurrence: str) -> int:
    job = read_spec(spec)
    killer = Killer(dict.fromkeys(json.loads(deaths).items(), int(occurrence)))
    spark = LazySpark(SessionSettings(cores=2, memory="2g", brief=True))
    try:
        runtime = Runtime(storage=Storage(), spark=spark, observe=killer, bounds_of=bounds_of)
        run_job(with_commits(job), runtime, _show)
    finally:
        spark.stop()
    return SURVIVED


def _show(result: JobResult) -> None:
    print(to_json(result))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
