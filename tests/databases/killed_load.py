"""A job of one table that is killed at its n-th write: `python -m tests.databases.killed_load SPEC N before|after`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.program import read_spec

_left = int(sys.argv[2])


def killing(write: Callable[[Storage, str, bytes], Any]) -> Callable[[Storage, str, bytes], Any]:
    """The method, which ends the process before or after the n-th write of all."""

    def found(storage: Storage, path: str, data: bytes) -> Any:
        global _left  # noqa: PLW0603 - counts the writes of the process
        _left -= "/claims/" not in path
        if _left == 0 and sys.argv[3] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = write(storage, path, data)
        if _left == 0 and sys.argv[3] == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return found


if __name__ == "__main__":
    for name in ("write", "create"):
        setattr(Storage, name, killing(getattr(Storage, name)))
    job = read_spec(sys.argv[1])
    run = TableRun(job=job, spec=job.tables[0], runtime=Runtime(storage=Storage(), spark=NoSpark()))
    outcome = attempt(run, totals_of(job))
    assert isinstance(outcome, TableOutcome)
    assert outcome.result.error is None, outcome.result.error
