"""Writes a task's or command's runs: records that the job did not write, and the state of its tables."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.documents import RunsDocument, place, update_runs
from airflow_gddl.runtime.state.facts import TableRecord
from airflow_gddl.runtime.state.judging import RunningJob
from airflow_gddl.runtime.state.records import compact, records_of, write_record
from airflow_gddl.stores import open_store
from airflow_gddl.stores.lake_files import LOOSE_AT_MOST

_LOG = logging.getLogger(__name__)
WRITE_EVERY = 15.0
RUNNING_FOR = 180.0
"""Seconds for which a job counts as running after its last report; a killed worker reports no end."""
RENEWED_EVERY = 60.0
_COMPACTED_AT_ONCE = 10


Change = Callable[[TableRecord], TableRecord]


@dataclass
class StateRecorder:
    """Records the results of consecutive jobs. Errors are logged, so that they never fail a load.

    Attributes:
        pipeline: name of the object to write.
        tables: tables of the pipeline; a lost object is rebuilt from their run records.
        clock: seconds since the epoch.
        environ: says how S3 is reached.
        run: Airflow's id of the run that loads; empty: none.
    """

    roots: Roots
    pipeline: str
    tables: Sequence[str]
    clock: Callable[[], float] = time.time
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    run: str = ""
    _waiting: list[tuple[str, Change]] = field(default_factory=list)
    _written: float = 0.0
    _running: dict[str, RunningJob] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _renewed: float = 0.0

    def take(self, result: JobResult, airflow: tuple[str, ...] = (), *, whole: bool = True) -> JobResult:
        """
        Args:
            airflow: Airflow's run id and task id, and the job's page where it has one; empty where Airflow did not
                start the run. The same run may be passed again; the last values count.
            whole: it loaded everything that had landed; a replay of the quarantine does not.

        Returns:
            the stored result.
        """
        now = self.clock()
        result = recorded(self.roots, result, now, self.environ)
        self._running.pop(result.table, None)
        self._ended.add(result.table)
        self._waiting.append((result.table, lambda before: before.after(result, now, airflow, whole=whole)))
        if now - self._written >= WRITE_EVERY and self._written:
            self.flush()
        self._written = self._written or now
        return result

    def take_maintenance(self, results: Iterable[JobResult]) -> None:
        """Write the results of a maintenance, which is no load of the tables."""
        now = self.clock()
        self._waiting += [(result.table, partial(_after, result=result, now=now)) for result in results]
        self.flush()

    def begin(self, tables: Iterable[str], seconds: float = RUNNING_FOR) -> None:
        """Report that a job loads these tables; expires unless `renew` is called."""
        now = self.clock()
        known = self._running
        self._running |= {
            name: RunningJob(known[name].since if name in known else now, now + seconds, self.run) for name in tables
        }
        self._ended -= self._running.keys()
        self._renewed = now
        _logged(self.pipeline, lambda: self._write(()))

    def renew(self) -> None:
        """Report that the job is still running; at most once a minute."""
        if self._running and self.clock() - self._renewed >= RENEWED_EVERY:
            self.begin(tuple(self._running))

    def end(self) -> None:
        """Write the collected results, and that the job of `begin` has ended."""
        changed = bool(self._running)
        self._ended |= self._running.keys()
        self._running = {}
        if changed and not self._waiting:
            _logged(self.pipeline, lambda: self._write(()))
        self.flush()

    def flush(self) -> None:
        """Write the collected results."""
        if not self._waiting:
            return
        taken, self._waiting = self._waiting, []
        self._written = self.clock()
        _logged(self.pipeline, lambda: self._write(taken))

    def _write(self, taken: Sequence[tuple[str, Change]]) -> None:
        def with_taken(before: RunsDocument) -> RunsDocument:
            tables = dict(before.tables)
            for table, with_run in taken:
                tables[table] = with_run(tables.get(table, TableRecord()))
            now = self.clock()
            others = {name: job for name, job in before.running.items() if job.until > now and name not in self._ended}
            return replace(before, tables=tables, written=now, running={**others, **self._running})

        after = self.change(with_taken)
        many = [name for name, record in after.tables.items() if record.loose > LOOSE_AT_MOST][:_COMPACTED_AT_ONCE]
        left = {name: compact(open_store(self.environ), self.roots, name) for name in many}
        if left:
            self.change(lambda document: _left(document, left))

    def change(self, change: Callable[[RunsDocument], RunsDocument]) -> RunsDocument:
        """Change the stored state, and return the new one; unlike the others, this raises errors.

        Raises:
            RetriableError: `LAKE_UNREADABLE`, `STORAGE_BUSY`, `STATE_CONTENDED`.
        """

        def lost() -> RunsDocument:
            return RunsDocument(tables=records_of(self.roots, self.tables, self.clock(), self.environ))

        return update_runs(open_store(self.environ), place(self.roots.lake, self.pipeline, "runs"), change, lost)


def recorded(roots: Roots, result: JobResult, now: float, environ: Mapping[str, str]) -> JobResult:
    """The result with its start; a failure without a start comes from the runner, since the job crashed, and gets a
    record."""
    if result.started_at:
        return result
    started = datetime.fromtimestamp(now - result.seconds, UTC)
    made = replace(result, started_at=started.isoformat(timespec="microseconds"))
    if result.status == "failed":
        _logged(made.table, lambda: write_record(open_store(environ), roots, made))
    return made


def _after(before: TableRecord, *, result: JobResult, now: float) -> TableRecord:
    return before.after(result, now)


def _left(document: RunsDocument, left: dict[str, int]) -> RunsDocument:
    changed = {name: replace(document.tables[name], loose=loose) for name, loose in left.items()}
    return replace(document, tables={**document.tables, **changed})


def _logged(what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except GddlError as error:
        _LOG.warning("the state of %s could not be written: %s", what, error)
