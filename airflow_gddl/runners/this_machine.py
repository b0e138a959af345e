"""Jobs on this machine: child processes, the local runner, and checks of Java and packages.

A job's JobSpec is passed in a file, its results are read from its standard output.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from airflow_gddl import __version__
from airflow_gddl.contract import codes
from airflow_gddl.contract.codec import from_json_or_none, report_from_json, to_document
from airflow_gddl.contract.codes import JOB_CANCELLED, JOB_DIED, JOB_NOT_STARTED, LAKE_NOT_WRITABLE, RETRIED
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.extensions import ProbeSkippedError
from airflow_gddl.contract.java import INSTALL_JAVA, find_java
from airflow_gddl.contract.layout import join, log_folder
from airflow_gddl.contract.packages import LEAVES_SPARK_OUT, leaves_spark_out, package_missing
from airflow_gddl.contract.python_command import JOB
from airflow_gddl.contract.result import PROGRESS, ErrorInfo, JobResult, error_info
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.spark_versions import job_packages
from airflow_gddl.contract.spec import CONTRACT_VERSION, JobSpec
from airflow_gddl.runners.child import Child, Line, nothing
from airflow_gddl.runners.descriptor import Probe, RunnerCheck
from airflow_gddl.runners.interface import JobOutcome, Listener, ProgressEvent
from airflow_gddl.stores import open_store
from airflow_gddl.stores.lake_files import check_roots
from airflow_gddl.stores.scratch import scratch

if TYPE_CHECKING:
    from airflow_gddl.runners.descriptor import RunnerSettings

EVERY_SECONDS = 30.0
_SHOWN = 5


class Heartbeat:
    """Tracks the progress of a job's tables; `line` is due when nothing was logged for `EVERY_SECONDS`.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._logged = clock()
        self._steps: dict[str, ProgressEvent] = {}
        self._done: set[str] = set()

    def moved(self, event: ProgressEvent) -> None:
        """Record the current step of a table; the newest come last."""
        self._steps.pop(event.table, None)
        self._steps[event.table] = event

    def ended(self, table: str) -> None:
        """Record a finished table, whose result was logged."""
        self._steps.pop(table, None)
        self._done.add(table)
        self._logged = self._clock()

    def line(self) -> str | None:
        """The line to log now; null: none is due."""
        now = self._clock()
        if now - self._logged < EVERY_SECONDS:
            return None
        self._logged = now
        at_work = list(self._steps.values())[-_SHOWN:]
        more = len(self._steps) - len(at_work)
        steps = [*map(_step, at_work), *([f"and {more} more"] if more else [])]
        return "; ".join([f"running for {now - self._began:.0f} s, tables done: {len(self._done)}", *steps])


def _step(event: ProgressEvent) -> str:
    of = f" of {event.batches}" if event.batches is not None else ""
    batch = f", batch {event.batch}{of}" if event.batch else ""
    rows = f", {event.rows} rows read" if event.rows else ""
    return f"{event.table}: {event.step}{batch}{rows}"


KEPT_DAYS = 30
"""Retention of a log in days."""
KEPT_AT_LEAST, KEPT_AT_MOST = 10, 200
"""Minimum and maximum number of logs kept for a group, regardless of their age."""
_TAIL_LINES = 10
_LOG = logging.getLogger(__name__)


def open_log(spec: JobSpec) -> JobLog:
    """In the lake's folder of the job's group; for a lake on S3 in a new folder of the machine's temporary one.

    Raises:
        FatalError: `LAKE_NOT_WRITABLE`.
    """
    try:
        if is_s3(spec.roots.lake):
            return JobLog(Path(tempfile.mkdtemp(prefix="gddl-logs-")), spec.run_id)
        folder = Path(log_folder(spec.roots.lake, spec.log_group))
        folder.mkdir(parents=True, exist_ok=True)
        return JobLog(folder, spec.run_id)
    except OSError as error:
        what, remedy = f"no log can be written: {error}", "check `lake` in gddl.yaml and the folder's permissions"
        raise FatalError(LAKE_NOT_WRITABLE, what, where=spec.roots.lake, remedy=remedy) from error


def keep(log: Path, spec: JobSpec, environ: Mapping[str, str]) -> str:
    """Location of a finished log: below `<lake>/_gddl/logs` of a lake on S3, else where it was written.

    A log that can't be uploaded stays on this machine; the job's outcome is unaffected.
    """
    if not is_s3(spec.roots.lake):
        return str(log)
    place = log_folder(spec.roots.lake, spec.log_group)
    try:
        _put(place, log, environ)
    except Exception as error:  # noqa: BLE001 - an error of the store must not change the job's outcome
        _LOG.warning("the job's log could not be uploaded and stays at %s: %s", log, str(error).partition("\n")[0])
        return str(log)
    shutil.rmtree(log.parent, ignore_errors=True)
    return join(place, log.name)


def expired(logs: Mapping[str, float], now: float) -> list[str]:
    """Names of expired logs.

    Args:
        logs: of one group: when each was last modified, by name. Run ids begin with their time, so names sort by it.
        now: seconds since the epoch, as those.
    """
    newest_first = sorted((name for name in logs if name.endswith(".log")), reverse=True)
    old = now - KEPT_DAYS * 86_400
    rest = newest_first[KEPT_AT_LEAST:KEPT_AT_MOST]
    return [name for name in rest if logs[name] < old] + newest_first[KEPT_AT_MOST:]


def _put(folder: str, log: Path, environ: Mapping[str, str]) -> None:
    import obstore  # noqa: PLC0415 - a local lake needs no client

    from airflow_gddl.stores.s3 import client  # noqa: PLC0415 - as above

    bucket, key = split(join(folder, log.name))
    obstore.put(client(bucket, environ, quick=True), key, log)  # in parts: it may be large
    store = open_store(environ)
    store.delete(*expired({item.path: item.modified for item in store.list(folder)}, time.time()))


class JobLog:
    """Writes lines and keeps the last few in memory. Removes expired logs of its folder."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = folder / f"{run_id}.log"
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._has_gaps = False
        self._file: IO[str] = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        with contextlib.suppress(OSError):
            for old in expired({path.name: path.stat().st_mtime for path in folder.glob("*.log")}, time.time()):
                (folder / old).unlink()

    def write(self, line: str) -> None:
        """A log that can't be written, as on a full disk, changes nothing of the job's outcome."""
        if line.strip():
            self._tail.append(line.rstrip())
        try:
            if not self.path.exists():
                # A continuous job may outlive its log file; then the file is created again.
                self._file.close()
                self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            self._missed(error)

    def _missed(self, error: OSError) -> None:
        if not self._has_gaps:
            self._has_gaps = True
            _LOG.warning("lines are missing in the job's log %s: %s", self.path, error)

    @property
    def tail(self) -> str:
        """The last lines that aren't blank, at most ten, in one text."""
        return "\n".join(self._tail)

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            self._missed(error)


GRACE_SECONDS = 30.0
_REFUSED, _RETRY = 2, 75
"""Exit statuses of a job that rejected its JobSpec, or could not read it for now; its last line gives the reason."""
_CODED = re.compile(r"^\[([A-Z][A-Z0-9_]+)\] ")
_LACKING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


@dataclass(frozen=True, kw_only=True)
class JobProcess:
    """Starts `command --spec FILE --progress --parent PID` and reads its results from its standard output.

    The job ends by itself when this process is killed.

    Attributes:
        command: the job's program and first arguments.
        environ: the child's environment.
        grace_seconds: how long a job that was asked to stop may take before it is killed.
        tick: called in the caller's thread while the job runs, several times a second.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    grace_seconds: float = GRACE_SECONDS
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
            child = self._child(spec, folder)
            with closing(open_log(spec)) as log:
                reader = _Reader(listener, log, is_continuous=spec.options.continuous is not None)
                try:
                    _attend(child, spec, reader)
                except BaseException:  # such as the task's time limit
                    keep(log.path, spec, self.environ)
                    raise
        return JobOutcome(
            results=tuple(reader.results.values()),
            exit_status=child.exit_status,
            cancelled_by=child.cancelled_by,
            log=keep(reader.log.path, spec, self.environ),
        )

    def ask(self, spec: JobSpec, listener: Listener) -> JobResult:
        """As `run`, for a job of one table that only reads: nothing is written to the lake, and its log is not kept.

        Raises:
            FatalError: `JOB_NOT_STARTED`.
        """
        with scratch("order") as folder, closing(JobLog(folder, spec.run_id)) as log:
            reader = _Reader(listener, log)
            _attend(self._child(spec, folder), spec, reader)
        return reader.results[spec.tables[0].table]

    def _child(self, spec: JobSpec, folder: Path) -> Child:
        path = Path(folder, "spec.json")
        path.write_text(to_document(spec), encoding="utf-8")
        command = [*self.command, "--spec", str(path), "--progress", "--parent", str(os.getpid())]
        return Child(command, self.environ, self.grace_seconds, self.tick)


@dataclass
class _Reader:
    """Sorts the child's lines into results, progress and log."""

    listener: Listener
    log: JobLog
    is_continuous: bool = False
    results: dict[str, JobResult] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        if line.stream == "stderr" and line.text.startswith(PROGRESS):
            event = from_json_or_none(ProgressEvent, line.text.removeprefix(PROGRESS))
            if event is not None:  # else the line belongs to the log
                self.listener.on_progress(event)
                return
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
        raise FatalError(JOB_NOT_STARTED, f"the job's process did not start: {error}") from error
    status = child.exit_status
    if reader.is_continuous and status == 0:
        return  # stopped before these tables started: no result, no error
    for table in spec.tables:
        if table.table not in reader.results:
            why = _why(child, status, reader.log)
            reader.add(JobResult(table=table.table, status="failed", run_id=spec.run_id, error=why))


def _why(child: Child, status: int, log: JobLog) -> ErrorInfo:
    if child.cancelled_by is not None:
        what = f"the run was stopped by {child.cancelled_by.name}; the next run resumes where it stopped"
        return ErrorInfo(code=JOB_CANCELLED, message=what)
    last = log.tail.rpartition("\n")[2]
    if status in (_REFUSED, _RETRY) and (coded := _CODED.match(last)):
        return ErrorInfo(code=coded[1], message=last, fatal=status == _REFUSED and coded[1] not in RETRIED)
    if lacking := _LACKING.fullmatch(last):
        error = package_missing("the job", lacking[1], install="airflow-gddl[spark]", where="the Python of jobs")
        return error_info(error)
    said = f"; last lines of its log:\n{log.tail}" if log.tail else "; it wrote no log"
    return ErrorInfo(code=JOB_DIED, message=f"the job {how_it_ended(status)} before this table was done{said}")


def how_it_ended(status: int) -> str:
    """In words, from the exit status; see `JobOutcome`."""
    if status <= 128:
        return f"ended with exit status {status}"
    number = status - 128
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"was killed by {name}{' (out of memory?)' if number == signal.SIGKILL else ''}"


class LocalRunner(JobProcess):
    """A `Runner` on this machine; JAVA_HOME and PATH of `environ` select the Java."""

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """See `JobProcess.run`.

        Raises:
            FatalError: `JAVA_MISSING`, `JOB_NOT_STARTED`, or as `check_roots`.
            RetriableError: as `check_roots`.
        """
        over_many = any(not spec.tier_of(table).in_one_task for table in spec.tables if table.size in spec.tiers)
        if over_many and not leaves_spark_out(self.environ):
            find_java(self.environ)
        return super().run(spec, listener)


def make(settings: RunnerSettings) -> LocalRunner:
    """See `RunnerDescriptor.runner`."""
    return LocalRunner(command=settings.command, environ=settings.environ, tick=settings.tick)


_CHECK_SECONDS = 120.0


def check(given: RunnerCheck) -> Iterator[tuple[str, Probe]]:
    """See `RunnerDescriptor.check`: packages and Java of jobs on this machine."""
    yield f"runner {given.name}", lambda: job_packages() if given.command == JOB else _asked(given)
    yield "Java", lambda: _java(given)


def _asked(given: RunnerCheck) -> str:
    """What `[gddl] job_command` says of its Python.

    Raises:
        FatalError: `JOB_NOT_STARTED`, `CONTRACT_VERSION`, or the job's own.
    """
    command = [*given.command, "--check", *given.modules]
    shown, remedy = shlex.join(given.command), "correct `[gddl] job_command` of Airflow's configuration"
    try:
        done = subprocess.run(  # noqa: S603 - the program that Airflow itself would start
            command, env=dict(given.environ), capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FatalError(JOB_NOT_STARTED, f"{shown} does not start: {error}", remedy=remedy) from error
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode and (coded := _CODED.match(last)):
        raise FatalError(codes.of(coded[1]), last.removeprefix(f"[{coded[1]}] ").rstrip("."), where=shown)
    try:
        found = json.loads(done.stdout)
    except ValueError as error:
        what = f"{shown} --check {how_it_ended(done.returncode)}: {last}"
        raise FatalError(JOB_NOT_STARTED, what, remedy=remedy) from error
    if found["contract_version"] != CONTRACT_VERSION:
        what = (
            f"{shown} has contract version {found['contract_version']} (airflow-gddl {found['version']}),"
            f" this Python {CONTRACT_VERSION} (airflow-gddl {__version__})"
        )
        raise FatalError(codes.CONTRACT_VERSION, what, remedy="install the same airflow-gddl on both sides")
    return f"{shown}: airflow-gddl {found['version']}, {found['packages']}"


def _java(given: RunnerCheck) -> str:
    if leaves_spark_out(given.environ) and not given.reads_log:
        raise ProbeSkippedError(f"{LEAVES_SPARK_OUT} is set")
    try:
        return str(find_java(given.environ))
    except FatalError as error:
        if not given.reads_log:
            raise
        what = f"{error.what}; jobs that read a source's log need Java, whatever the tier"
        raise FatalError(error.code, what, remedy=INSTALL_JAVA) from error
