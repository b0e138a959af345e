"""Runs that die by SIGKILL at a write: a process that is forked with all modules loaded, so that a death costs little.

The process works in one task, without Spark; whoever has Spark carries its batch on, and compares it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime, silent
from spark_jobs.batch.table_run import TableRun
from spark_jobs.job.spread_local import NoSpark
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.tables import data_files

OF_REPLICA = "commit of replica"
BEFORE = (
    "claim", "plan", "columns of changes", "columns of replica",
    "file of changes", "commit of changes", "file of errors", "commit of errors",
    "file of tombstones", "commit of tombstones", "file of replica", "vectors of replica", OF_REPLICA,
)  # fmt: skip
"""Kinds of writes up to the replica's commit: a batch whose run dies before one of them is compared by the next run."""
USUAL = ("claim", "plan", "file of changes", "commit of changes", "file of replica", OF_REPLICA)
"""Those that most runs make."""
AFTER = ("file of history", "vectors of history", "commit of history", "ledger")
OF_SHADOW = ("commit of shadow", "columns of shadow")
"""Writes of a comparison, which only a process with Spark makes."""
_PLACES = {"/_gddl/shadow/": "shadow", "/_gddl/tombstones/": "tombstones", "__changes/": "changes",
           "__history/": "history", "__errors/": "errors"}  # fmt: skip
_TIMEOUT = 900.0


def kind_of(path: str, data: bytes = b"") -> str:
    """The kind of a write by its path; empty: of none that matters.

    Args:
        data: of a commit; one without a transaction makes a table, changes columns or arranges files.
    """
    if "/_gddl/ledger/" in path:
        names = {"/claims/": "claim", "/plan.json": "plan", "/commits/": "ledger"}
        return next((kind for part, kind in names.items() if part in path), "")
    table = next((name for part, name in _PLACES.items() if part in path), "replica")
    if "/_delta_log/" in path:
        return f"commit of {table}" if b'"txn"' in data else f"columns of {table}"
    what = {"parquet": "file", "bin": "vectors"}.get(path.rpartition(".")[2], "")
    return f"{what} of {table}" if what else ""


@dataclass
class Death:
    """When a process dies.

    Attributes:
        kind: of the write at which it does. Where the run makes none: at the replica's commit, or for kinds that follow
            that one, at the ledger's.
        after: once the write is made; else before it.
        told: called with the kind before the end.
    """

    kind: str
    after: bool
    told: Callable[[str], object] = silent
    is_armed: bool = True

    def around(self, path: str, write: Callable[[], Any], data: bytes = b"") -> Any:
        kind = kind_of(path, data) if self.is_armed else ""
        late = (kind == OF_REPLICA and self.kind in BEFORE) or (kind == "ledger" and self.kind in AFTER)
        due = kind != "" and (kind == self.kind or late)
        if due and not (self.after and kind == self.kind):
            self._die(kind, "before")
        done = write()
        if due:
            self._die(kind, "after")
        return done

    def _die(self, kind: str, when: str) -> None:
        self.told(f"{when} {kind}")
        os.kill(os.getpid(), signal.SIGKILL)

    def plant(self) -> None:
        """Files on this machine's disk are written by pyarrow, not by the storage."""
        save = data_files.save_rows

        def saved(rows: Any, target: Any, *, packed: bool) -> None:
            self.around(str(target), lambda: save(rows, target, packed=packed))

        data_files.save_rows = saved


class MortalStorage(Storage):
    """A storage at whose writes the process may die."""

    def __init__(self, death: Death) -> None:
        super().__init__()
        self.death = death

    def write(self, path: str, data: bytes) -> None:
        self.death.around(path, lambda: super(MortalStorage, self).write(path, data), data)

    def create(self, path: str, data: bytes) -> bool:
        return bool(self.death.around(path, lambda: super(MortalStorage, self).create(path, data), data))


def died(job: JobSpec, kind: str, *, after: bool) -> str:
    """Run a job of one table in a process that dies at a write.

    Returns:
        the write; `no write` where the run came to none, as it had nothing to do, or needs Spark.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__, "tests.shadow.random_batches"])  # the latter may be the main module
    mine, its = server.Pipe(duplex=False)
    process = server.Process(target=_die, args=(job, kind, after, its))
    process.start()
    its.close()
    process.join(_TIMEOUT)
    said: str = mine.recv() if mine.poll() else ""
    mine.close()
    assert process.exitcode == (0 if said == "no write" else -signal.SIGKILL), (process.exitcode, said, kind)
    return said


def _die(job: JobSpec, kind: str, after: bool, connection: Connection) -> None:
    death = Death(kind, after, connection.send)
    death.plant()
    tiers = {size: replace(tier, tasks="processes", cores=1) for size, tier in job.tiers.items()}
    tables = tuple(replace(spec, shadow=False) for spec in job.tables)
    runtime = Runtime(storage=MortalStorage(death), spark=NoSpark())
    job = replace(job, tiers=tiers, tables=tables)
    (spec,) = tables
    attempt(TableRun(job=job, spec=spec, runtime=runtime), totals_of(job))
    connection.send("no write")
