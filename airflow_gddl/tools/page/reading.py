"""Reads tables for the page: in this process, or by a job where Airflow's environment lacks the packages for it.

The job is started by `[gddl] job_command`, which names the environment of jobs, on the machine of the API server. It
writes nothing.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_gddl import configuration
from airflow_gddl.contract import codes
from airflow_gddl.contract.actions import Action, Explain, ShowTable
from airflow_gddl.contract.codes import EXPLAIN_BUSY, EXPLAIN_TOO_LONG, NEEDS_SPARK, PACKAGE_MISSING
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.names import HiddenColumns
from airflow_gddl.contract.packages import LEAVES_SPARK_OUT
from airflow_gddl.contract.python_command import JOB
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.runners.interface import ProgressEvent
from airflow_gddl.runners.this_machine import JobProcess
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.stores import delta_tables

LONGEST_SECONDS = 60.0
"""How long the page waits for a job."""
AT_ONCE = 2
"""Jobs for histories of keys at a time, and as many for what tables hold."""
_PATIENCE_SECONDS = 20.0
_GRACE_SECONDS = 2.0
_EXPLAIN_REMEDY = "run the command below where it may start Spark and take its time"
_REMEDY = (
    "set [gddl] job_command to the gddl-job of an environment with airflow-gddl[spark], as "
    "`gddl init --airflow DAGS_FOLDER` does; "
    "until then `gddl errors list` and `gddl explain --table T --key COLUMN=VALUE` say it where jobs run"
)
slots = threading.BoundedSemaphore(AT_ONCE)
_reading = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True)
class TableReader:
    """What the tables of one row hold.

    Attributes:
        document: of the pipeline that loads the table; None: none does, and no job can be asked.
        spec: the table's row in full; None: it is not known, and no value is shown.
    """

    layout: Layout
    document: PipelineDocument | None
    spec: TableSpec | None
    environ: Mapping[str, str]

    def described(self) -> dict[str, Any] | None:
        """Of the replica, see `delta_tables.described`."""
        return self._read("schema", lambda: delta_tables.described(self.layout.replica, self.environ))

    def quarantined(self, code: str, limit: int) -> dict[str, Any]:
        """See `delta_tables.quarantined`."""
        read = lambda: delta_tables.quarantined(self.layout.errors, code, limit, self.environ)  # noqa: E731 - as it reads
        return self._read("quarantine", read, code=code, limit=limit) or {}

    def first_rows(self, limit: int) -> dict[str, Any] | None:
        """Of the replica, see `delta_tables.first_rows`."""
        hides = HiddenColumns(self.spec).hides
        return self._read(
            "rows", lambda: delta_tables.first_rows(self.layout.replica, hides, limit, self.environ), limit=limit
        )

    def _read(
        self, part: Literal["schema", "quarantine", "rows"], read: Callable[[], dict[str, Any] | None], **options: Any
    ) -> dict[str, Any] | None:
        try:
            return read()
        except FatalError as error:
            if error.code != PACKAGE_MISSING:
                raise
            if self.document is None or self.spec is None:
                raise _not_here(self.layout.replica) from error
        with _slot(_reading, self.spec.table, _PATIENCE_SECONDS):
            answer = _asked(self.document, self.spec, ShowTable(part=part, **options), self.environ)
        found: dict[str, Any] | None = answer.get("found")
        return found


def key_history(
    document: PipelineDocument, spec: TableSpec, key: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """What `gddl explain` finds, as details of its result.

    The job reads the key from a file of this machine, which is then removed.

    Args:
        document: of the pipeline that loads the table.
        key: key column to its value as text.

    Raises:
        FatalError: `NEEDS_SPARK`, `JOB_NOT_STARTED`, or the job's error.
        RetriableError: `EXPLAIN_BUSY`, `EXPLAIN_TOO_LONG`.
    """
    with _slot(slots, spec.table, 0.0):
        return _asked(document, spec, Explain(key=key), environ)


@contextmanager
def _slot(some: threading.BoundedSemaphore, table: str, patience: float) -> Iterator[None]:
    """
    Raises:
        RetriableError: `EXPLAIN_BUSY`.
    """
    if not some.acquire(timeout=patience):
        what = f"{AT_ONCE} jobs of the page read tables"
        raise RetriableError(EXPLAIN_BUSY, what, where=table, remedy="try again in some seconds")
    try:
        yield
    finally:
        some.release()


def _asked(document: PipelineDocument, spec: TableSpec, action: Action, environ: Mapping[str, str]) -> dict[str, Any]:
    """Details of a job's result, without Spark: this server need not have Java."""
    command = configuration.job_command()
    job = JobSpec(
        run_id=f"page-{uuid.uuid4().hex}", roots=document.roots, tables=(spec,), tiers=document.tiers,
        options=JobOptions(action=action),
    )  # fmt: skip
    limits = JobLimits(spec.table)
    alone = {**environ, LEAVES_SPARK_OUT: "1"}
    process = JobProcess(command=command, environ=alone, grace_seconds=_GRACE_SECONDS, tick=limits.tick)
    result = process.ask(job, limits)
    if result.error is None:
        return dict(result.details) if isinstance(result.details, Mapping) else {}
    code, message = result.error.code, result.error.message
    if code == PACKAGE_MISSING and command == JOB:
        raise _not_here(spec.table)
    if code == NEEDS_SPARK:
        what = "only Spark can read this table, and the page starts none"
        raise FatalError(NEEDS_SPARK, what, where=spec.table, remedy=_EXPLAIN_REMEDY)
    raise FatalError(codes.of(code), message.removeprefix(f"[{code}] "))


def _not_here(where: str) -> FatalError:
    what = "reading tables needs packages that Airflow's environment lacks"
    return FatalError(PACKAGE_MISSING, what, where=where, remedy=_REMEDY)


@dataclass(frozen=True)
class JobLimits:
    """Listener of a job that ends it when it takes too long."""

    table: str
    began: float = field(default_factory=time.monotonic)

    def tick(self) -> None:
        if time.monotonic() - self.began > LONGEST_SECONDS:
            what = f"the table was not read within {LONGEST_SECONDS:.0f} s"
            raise RetriableError(EXPLAIN_TOO_LONG, what, where=self.table, remedy=_EXPLAIN_REMEDY)

    def on_progress(self, event: ProgressEvent) -> None:
        """Steps are not shown."""

    def on_result(self, result: JobResult) -> None:
        """`_asked` reads it."""
