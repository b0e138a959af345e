"""A job as a child process: its JobSpec is passed in a file, its results are read from its standard output."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from airflow_gddl.contract.codec import from_json_or_none, report_from_json, to_document
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runtime.runners.base import JobOutcome, Listener, ProgressEvent
from airflow_gddl.runtime.runners.child import Child, Line, nothing
from airflow_gddl.runtime.runners.joblog import JobLog, keep, open_log
from airflow_gddl.stores.reaching import check_roots
from airflow_gddl.stores.scratch import scratch

GRACE_SECONDS = 30.0
_PROGRESS = "GDDL-PROGRESS "
_APPLICATION = "GDDL-APPLICATION "
_REFUSED = 2
"""Exit status of a job that rejected its JobSpec; its last line gives the reason."""
_CODED = re.compile(r"^\[([A-Z][A-Z_]+)\] ")
_LACKING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


@dataclass(frozen=True, kw_only=True)
class JobProcess:
    """Starts `command --spec FILE --progress --parent PID` and reads its results from its standard output.

    The job ends by itself when this process is killed.

    Attributes:
        command: the job's program and first arguments.
        environ: the child's environment.
        grace_seconds: how long a job that was asked to stop may take before it is killed.
        page: URL of the job for users, with Spark's application id for `{application}`; null: its log.
        tick: called in the caller's thread while the job runs, several times a second.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    grace_seconds: float = GRACE_SECONDS
    page: str | None = None
    tick: Callable[[], None] = nothing

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """See `Runner.run`. A table without a result from the job fails with `JOB_DIED`, or `JOB_CANCELLED` after a
        signal.

        Of a continuous job, the listener gets every turn of a table, and the outcome has the last one of each.

        Raises:
            FatalError: `JOB_NOT_STARTED`, `LAKE_NOT_WRITABLE`, or as `check_roots`.
            RetriableError: as `check_roots`.
        """
        check_roots(spec, self.environ)
        with scratch("order") as folder:
            order = Path(folder, "spec.json")
            order.write_text(to_document(spec), encoding="utf-8")
            command = [*self.command, "--spec", str(order), "--progress", "--parent", str(os.getpid())]
            with closing(_open_log(spec)) as log:
                reader = _Reader(listener, log, is_continuous=spec.options.continuous is not None)
                child = Child(command, self.environ, self.grace_seconds, self.tick)
                try:
                    _attend(child, spec, reader)
                except BaseException:  # such as the task's time limit
                    keep(log.path, spec, self.environ)
                    raise
        status = child.exit_status if child.exit_status is not None else 1
        return JobOutcome(
            results=tuple(reader.results.values()),
            exit_status=status,
            cancelled_by=child.cancelled_by,
            log=self._place(reader, keep(reader.log.path, spec, self.environ)),
        )

    def _place(self, reader: _Reader, log: str) -> str:
        if self.page is not None and reader.application is not None:
            return self.page.replace("{application}", reader.application)
        return log


@dataclass
class _Reader:
    """Sorts the child's lines into results, progress and log."""

    listener: Listener
    log: JobLog
    is_continuous: bool = False
    results: dict[str, JobResult] = field(default_factory=dict)
    application: str | None = None

    def take(self, line: Line) -> None:
        if line.stream == "stderr" and line.text.startswith(_PROGRESS):
            event = from_json_or_none(ProgressEvent, line.text.removeprefix(_PROGRESS))
            if event is not None:  # else the line belongs to the log
                self.listener.on_progress(event)
                return
        if line.stream == "stderr" and line.text.startswith(_APPLICATION):
            self.application = line.text.removeprefix(_APPLICATION).strip()
        if line.stream == "stdout" and line.text.startswith("{"):
            try:
                self.add(report_from_json(JobResult, line.text))
            except GddlError as error:
                self.log.write(f"not a result: {error}")
            else:
                return
        self.log.write(line.text)

    def add(self, result: JobResult) -> None:
        self.results[result.table] = result
        self.listener.on_result(result)


def _attend(child: Child, spec: JobSpec, reader: _Reader) -> None:
    try:
        for line in child.lines():
            reader.take(line)
    except OSError as error:
        raise FatalError("JOB_NOT_STARTED", f"the job's process did not start: {error}") from error
    status = child.exit_status if child.exit_status is not None else 1
    if reader.is_continuous and status == 0:
        return  # stopped before these tables started: no result, no error
    for table in spec.tables:
        if table.table not in reader.results:
            why = _why(child, status, reader.log)
            reader.add(JobResult(table=table.table, status="failed", run_id=spec.run_id, error=why))


def _why(child: Child, status: int, log: JobLog) -> ErrorInfo:
    if child.cancelled_by is not None:
        what = f"the run was stopped by {child.cancelled_by.name}; the next run resumes where it stopped"
        return ErrorInfo(code="JOB_CANCELLED", message=what)
    last = log.tail.rpartition("\n")[2]
    if status == _REFUSED and (coded := _CODED.match(last)):
        return ErrorInfo(code=coded[1], message=last)
    if lacking := _LACKING.fullmatch(last):
        what = f"the job's Python lacks the package {lacking[1]}: install 'airflow-gddl[spark]' where jobs run"
        return ErrorInfo(code="JOB_PACKAGE_MISSING", message=what)
    said = f"; last lines of its log:\n{log.tail}" if log.tail else "; it wrote no log"
    return ErrorInfo(code="JOB_DIED", message=f"the job {how_it_ended(status)} before this table was done{said}")


def how_it_ended(status: int) -> str:
    """In words, from the exit status; see `JobOutcome`."""
    if status <= 128:
        return f"ended with exit status {status}"
    number = status - 128
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"was killed by {name}{' (out of memory?)' if number == signal.SIGKILL else ''}"


def _open_log(spec: JobSpec) -> JobLog:
    try:
        return open_log(spec)
    except OSError as error:
        remedy = "check `lake` in gddl.yaml and the folder's permissions"
        raise FatalError(
            "LAKE_NOT_WRITABLE", f"no log can be written: {error}", where=spec.roots.lake, remedy=remedy
        ) from error
