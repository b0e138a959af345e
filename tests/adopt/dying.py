"""Commands that die by SIGKILL at one of their writes, counted: a process that is forked with all modules loaded.

The process says which write that is before it dies.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.tables import data_files

_TIMEOUT = 900.0


@dataclass
class Death:
    """Attributes:
    left: writes that are still made.
    after: the process dies once that write is made; else before.
    told: where the process sends the path of that write.
    """

    left: int
    after: bool
    told: Connection

    def around(self, path: str, write: Callable[[], Any]) -> Any:
        due, self.left = self.left == 0, self.left - 1
        if due:
            self.told.send(path)
        if due and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = write()
        if due:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def plant(self) -> None:
        """Files on this machine's disk are written by pyarrow, not by the storage."""
        save = data_files.save_rows
        data_files.save_rows = lambda rows, target, *, packed: self.around(
            str(target), lambda: save(rows, target, packed=packed)
        )


class MortalStorage(Storage):
    """A storage at whose writes and removals the process dies; those of claims are not counted, which renew in time."""

    def __init__(self, death: Death) -> None:
        super().__init__()
        self.death = death

    def write(self, path: str, data: bytes) -> None:
        self._around(path, lambda: super(MortalStorage, self).write(path, data))

    def create(self, path: str, data: bytes) -> bool:
        return bool(self._around(path, lambda: super(MortalStorage, self).create(path, data)))

    def copy(self, path: str, target: str) -> None:
        self._around(target, lambda: super(MortalStorage, self).copy(path, target))

    def delete(self, *paths: str) -> None:
        """File after file."""
        for path in paths:
            self._around(path, lambda path=path: super(MortalStorage, self).delete(path))

    def _around(self, path: str, write: Callable[[], Any]) -> Any:
        return write() if "/claims/" in path else self.death.around(path, write)


def died(job: JobSpec, number: int, *, after: bool) -> str | None:
    """The path of the write of this number, at which a job of one table died; None: it came to its end before."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])
    said, told = server.Pipe(duplex=False)
    with said:
        with told:
            process = server.Process(target=_die, args=(job, Death(number, after, told)))
            process.start()
        process.join(_TIMEOUT)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        return str(said.recv()) if process.exitcode else None


def _die(job: JobSpec, death: Death) -> None:
    death.plant()
    (spec,) = job.tables
    attempt(
        TableRun(job=job, spec=spec, runtime=Runtime(storage=MortalStorage(death), spark=NoSpark())), totals_of(job)
    )
