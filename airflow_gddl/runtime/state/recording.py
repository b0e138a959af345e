"""What a task or a command writes of its runs: the records that no job wrote, and the state of its tables."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.documents import RunsDocument, place, update_runs
from airflow_gddl.runtime.state.facts import TableRecord
from airflow_gddl.runtime.state.records import LOOSE_AT_MOST, compact, records_of, write_record
from airflow_gddl.stores import open_store

_LOG = logging.getLogger(__name__)
WRITE_EVERY = 15.0
_COMPACTED_AT_ONCE = 10


Change = Callable[[TableRecord], TableRecord]


@dataclass
class StateRecorder:
    """Takes results of one job after another. Nothing here may stop a load: what fails is logged.

    Attributes:
        pipeline: name of the object to write.
        tables: those of the pipeline; a lost object is made again from the records of their runs.
        clock: seconds since the epoch.
        environ: tells how S3 is reached.
    """

    roots: Roots
    pipeline: str
    tables: Sequence[str]
    clock: Callable[[], float] = time.time
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _waiting: list[tuple[str, Change]] = field(default_factory=list)
    _written: float = 0.0

    def take(self, result: JobResult, airflow: tuple[str, ...] = (), *, whole: bool = True) -> JobResult:
        """
        Args:
            airflow: Airflow's run id and task id, and the job's page where it has one; empty where Airflow did not
                start the run. Told again, the run is the same, and what is told last counts.
            whole: it took all that had landed; a replay of the quarantine does not.

        Returns:
            the result as it is kept.
        """
        now = self.clock()
        result = recorded(self.roots, result, now, self.environ)
        self._waiting.append((result.table, lambda before: before.after(result, now, airflow, whole=whole)))
        if now - self._written >= WRITE_EVERY and self._written:
            self.flush()
        self._written = self._written or now
        return result

    def flush(self) -> None:
        """Write what was taken."""
        if not self._waiting:
            return
        taken, self._waiting = self._waiting, []
        self._written = self.clock()
        _logged(self.pipeline, lambda: self._write(taken))

    def _write(self, taken: Sequence[tuple[str, Change]]) -> None:
        store, path = open_store(self.environ), place(self.roots.lake, self.pipeline, "runs")

        def change(before: RunsDocument) -> RunsDocument:
            tables = dict(before.tables)
            for table, with_run in taken:
                tables[table] = with_run(tables.get(table, TableRecord()))
            return replace(before, tables=tables, written=self.clock())

        after = update_runs(store, path, change, self._lost)
        many = [name for name, record in after.tables.items() if record.loose > LOOSE_AT_MOST][:_COMPACTED_AT_ONCE]
        left = {name: compact(store, self.roots, name) for name in many}
        if left:
            update_runs(store, path, lambda document: _left(document, left), self._lost)

    def _lost(self) -> RunsDocument:
        return RunsDocument(tables=records_of(self.roots, self.tables, self.clock(), self.environ))


def recorded(roots: Roots, result: JobResult, now: float, environ: Mapping[str, str]) -> JobResult:
    """The result with its start; a failure without one comes from the runner, for the job died, and gets a record."""
    if result.started_at:
        return result
    started = datetime.fromtimestamp(now - result.seconds, UTC)
    made = replace(result, started_at=started.isoformat(timespec="microseconds"))
    if result.status == "failed":
        _logged(made.table, lambda: write_record(open_store(environ), roots, made))
    return made


def _left(document: RunsDocument, left: dict[str, int]) -> RunsDocument:
    changed = {name: replace(document.tables[name], loose=loose) for name, loose in left.items()}
    return replace(document, tables={**document.tables, **changed})


def _logged(what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except GddlError as error:
        _LOG.warning("the state of %s could not be written: %s", what, error)
