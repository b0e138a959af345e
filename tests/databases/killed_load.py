"""A job of one table that is killed at its n-th write: `python -m tests.databases.killed_load SPEC N before|after`."""

from __future__ import annotations

import os
import signal
import sys

from airflow_gddl.stores import Storage
from spark_jobs.job.spread_local import NoSpark
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.main import read_spec
from spark_jobs.table.runtime import Runtime, TableOutcome
from spark_jobs.table.table_run import TableRun

_write = Storage.write
_left = int(sys.argv[2])


def _killing(storage: Storage, path: str, data: bytes) -> None:
    global _left  # noqa: PLW0603 - counts the writes of the process
    _left -= "/claims/" not in path
    if _left == 0 and sys.argv[3] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    _write(storage, path, data)
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Storage.write = _killing  # type: ignore[method-assign] # counts the writes
    job = read_spec(sys.argv[1])
    run = TableRun(job=job, spec=job.tables[0], runtime=Runtime(storage=Storage(), spark=NoSpark()))
    outcome = attempt(run, totals_of(job))
    assert isinstance(outcome, TableOutcome)
    assert outcome.result.error is None, outcome.result.error
