"""Writes what is remembered of runs: their records, and the state of their pipeline.

The job writes `<time>-<run id>.json` in `lake/_gddl/runs/<schema>/<name>` when a table is done, a JobResult each;
`stores.lake_files` archives old ones. Concurrent readers, and readers after a crash, see each run once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from airflow_gddl.contract.basics import LOADS
from airflow_gddl.contract.codec import from_json_or_none, to_json
from airflow_gddl.contract.codes import LAKE_UNREADABLE
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import STATE, join, record_name, tells_of_load
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.documents import PipelineState, StageEnd, decode_or_none, encode, place
from airflow_gddl.runtime.state.table_runs import KEPT_RUNS, RunningJob, TableHint, TableRecord, latest, newest_of
from airflow_gddl.stores import Storage, lake_files, open_store, read_if_there, update_object
from airflow_gddl.stores.lake_files import LOOSE_AT_MOST

_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class Records:
    """The newest records of a table.

    Attributes:
        results: newest first.
        loose: all records outside archives.
        damaged: names of records that are not a JobResult, newest first.
    """

    results: tuple[JobResult, ...] = ()
    loose: int = 0
    damaged: tuple[str, ...] = ()


def runs_folder(roots: Roots, table: str) -> str:
    schema, _, name = table.partition(".")
    return join(roots.lake, STATE, "runs", schema, name)


def read_records(
    roots: Roots, table: str, limit: int, environ: Mapping[str, str] = os.environ, *, loads_only: bool = False
) -> Records:
    """The newest runs of a table, `limit` at most; with `loads_only`, of those that load.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    place = runs_folder(roots, table)
    with _telling(table, place):
        store = open_store(environ)
        loose, archives = lake_files.names(store, place)
        results, damaged, seen = [], [], set()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            wanted = [name for name in loose if not loads_only or tells_of_load(name)][:limit]
            contents = pool.map(lambda name: read_if_there(store, join(place, name)), wanted)
            for name, data in zip(wanted, contents, strict=True):
                result = None if data is None else from_json_or_none(JobResult, data)
                if result is not None:
                    results.append(result)
                    seen.add(_key(result))
                elif data is not None:
                    damaged.append(name)
        for name in archives:
            if len(results) >= limit:
                break
            lines = (read_if_there(store, join(place, name)) or b"").splitlines()[::-1]
            parsed = [result for line in lines if (result := from_json_or_none(JobResult, line)) is not None]
            new = [result for result in parsed if _key(result) not in seen]
            older = [result for result in new if not loads_only or result.action in LOADS]
            results += older
            seen |= {_key(result) for result in older}
        return Records(results=tuple(results[:limit]), loose=len(loose), damaged=tuple(damaged))


def record_of(roots: Roots, table: str, now: float, environ: Mapping[str, str] = os.environ) -> TableRecord:
    """The facts of a table, from its records only.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    records = read_records(roots, table, KEPT_RUNS, environ, loads_only=True)
    record = TableRecord()
    for result in reversed(records.results):
        record = record.after(result, now)
    return replace(record, loose=records.loose)


def records_of(
    roots: Roots, tables: Sequence[str], now: float, environ: Mapping[str, str] = os.environ
) -> dict[str, TableRecord]:
    """`record_of` many, those with any run.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        made = pool.map(lambda table: record_of(roots, table, now, environ), tables)
        return {table: record for table, record in zip(tables, made, strict=True) if record.newest is not None}


def write_record(store: Storage, roots: Roots, result: JobResult) -> None:
    """Store the result of a job that crashed or was never started.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    started = datetime.fromisoformat(result.started_at).astimezone(UTC)
    name = record_name(started, result.run_id, result.action)
    store.write(join(runs_folder(roots, result.table), name), to_json(result).encode())


def _key(result: JobResult) -> tuple[str, str]:
    return result.run_id, result.started_at


@contextmanager
def _telling(table: str, place: str) -> Iterator[None]:
    try:
        yield
    except RetriableError as error:
        what = f"the runs of {table} can't be read: {error.what}"
        raise RetriableError(LAKE_UNREADABLE, what, where=place, remedy="check `lake` and its credentials") from error


def rebuild(
    roots: Roots,
    by_pipeline: Mapping[str, Sequence[str]],
    clock: Callable[[], float],
    *,
    write: bool,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, TableRecord]:
    """Read the records of all these tables; one listing and some reads for each.

    Args:
        by_pipeline: name of the object to the tables in it.
        write: also store the result.

    Raises:
        RetriableError: `LAKE_UNREADABLE`, `STORAGE_BUSY`, `STATE_CONTENDED`.
    """
    all_records: dict[str, TableRecord] = {}
    for pipeline, tables in by_pipeline.items():
        records = records_of(roots, tables, clock(), environ)
        all_records |= records
        if write:
            StateRecorder(roots, pipeline, (), clock, environ).change(partial(_rebuilt, records))
    return all_records


def _rebuilt(records: Mapping[str, TableRecord], before: PipelineState) -> PipelineState:
    """Facts that run records lack are kept: an idle run leaves no record, and only the newest runs are read."""
    return before.with_records({name: _kept(record, before.record(name)) for name, record in records.items()})


def _kept(record: TableRecord, known: TableRecord) -> TableRecord:
    looked = max(record, known, key=lambda one: one.waiting_at or 0.0)
    return replace(
        record,
        complete=latest(record.complete, known.complete),
        maintained=known.maintained,
        changed_since=known.changed_since,
        changing_runs=known.changing_runs,
        verified=known.verified,
        missing_from=known.missing_from,
        waiting_since=looked.waiting_since,
        waiting_at=looked.waiting_at,
        detected=newest_of(record.detected, known.detected),
        settled=newest_of(record.settled, known.settled),
        poll=known.poll,
        running=known.running,
        seen=known.seen,
        hint=known.hint,
    )


_LOG = logging.getLogger(__name__)
WRITE_EVERY = 15.0
RUNNING_FOR = 180.0
"""Seconds for which a job counts as running after its last report; a killed worker reports no end."""
RENEWED_EVERY = 60.0
_COMPACTED_AT_ONCE = 10


_COLLECTED = 10_000
"""Results that are kept at most while the store does not answer."""

Change = Callable[[PipelineState], PipelineState]
RecordChange = Callable[[TableRecord], TableRecord]
T = TypeVar("T")


@dataclass
class StateRecorder:
    """Records the results of consecutive jobs in the state of their pipeline, while others may change it.

    Results are collected for some seconds. Errors of their writes are logged, so that they never fail a load, and the
    next write tries again.

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
    _known: PipelineState | None = None
    _read: tuple[PipelineState, str | None] | None = None
    _waiting: list[tuple[str, RecordChange]] = field(default_factory=list)
    _written: float = 0.0
    _running: dict[str, RunningJob] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _renewed: float = 0.0

    @property
    def known(self) -> PipelineState:
        """The state as this recorder read or wrote it last.

        Raises:
            RetriableError: `LAKE_UNREADABLE`, `STORAGE_BUSY`.
        """
        if self._known is None:
            data, tag = None, None
            with suppress(FileNotFoundError):
                data, tag = open_store(self.environ).read_tagged(self._path)
            self._known = self._decoded(data)
            self._read = self._known, tag
        return self._known

    def take(
        self,
        result: JobResult,
        airflow: tuple[str, ...] = (),
        *,
        whole: bool = True,
        hint: TableHint | None = None,
        event: Mapping[str, Any] | None = None,
    ) -> JobResult:
        """
        Args:
            airflow: Airflow's run id and task id, and the job's page where it has one; empty where Airflow did not
                start the run. The same run may be passed again; the last values count.
            whole: it loaded everything that had landed; a replay of the quarantine does not.
            hint, event: see `TableRecord.loaded`.

        Returns:
            the stored result.
        """
        now = self.clock()
        result = recorded(self.roots, result, now, self.environ)
        self._running.pop(result.table, None)
        self._ended.add(result.table)

        def with_run(before: TableRecord) -> TableRecord:
            return before.after(result, now, airflow, whole=whole).loaded(hint, event)

        self._waiting = [*self._waiting[-_COLLECTED:], (result.table, with_run)]
        if now - self._written >= WRITE_EVERY and self._written:
            self.flush()
        self._written = self._written or now
        return result

    def take_maintenance(self, results: Iterable[JobResult]) -> None:
        """Write the results of a maintenance, which is no load of the tables."""
        now = self.clock()
        self._waiting += [(result.table, partial(TableRecord.after, result=result, now=now)) for result in results]
        self.flush()

    def begin(self, tables: Iterable[str], seconds: float = RUNNING_FOR, leave: Collection[str] = ()) -> frozenset[str]:
        """Report that a job loads these tables; expires unless `renew` is called.

        Args:
            leave: tables that are not reported where another run loads them now.

        Returns:
            those. Of two runs that begin at once, one gets the table.
        """
        now = self.clock()
        known = self._running
        self._running |= {
            name: RunningJob(known[name].since if name in known else now, now + seconds, self.run) for name in tables
        }
        self._ended -= self._running.keys()
        self._renewed = now
        left: set[str] = set()

        def without_left(before: PipelineState) -> PipelineState:
            jobs = {name: job for name in leave if (job := before.record(name).running) is not None}
            left.update(name for name, job in jobs.items() if job.is_of_another(self.run, now))
            for name in left:
                self._running.pop(name, None)
            return before

        written = _logged(self.pipeline, lambda: self.change(without_left))
        return frozenset() if written is None else frozenset(left)

    def renew(self) -> None:
        """Report that the job is still running; at most once a minute."""
        if self._running and self.clock() - self._renewed >= RENEWED_EVERY:
            self.begin(tuple(self._running))

    def end(self) -> None:
        """Write the collected results, and that the job of `begin` has ended."""
        changed = bool(self._running)
        self._ended |= self._running.keys()
        self._running = {}
        if changed or self._waiting:
            _logged(self.pipeline, self.change)

    def flush(self) -> None:
        """Write the collected results."""
        if self._waiting:
            _logged(self.pipeline, self.change)

    def take_events(self, *tables: str, end: StageEnd | None = None) -> dict[str, Mapping[str, Any]]:
        """Take the pending asset events of these tables, or of all, to send them; by table.

        Args:
            end: of the stage whose events these are. A retry of a finished stage sends the events of the try before it
                again: Airflow takes them from a task that succeeds.

        Raises:
            RetriableError: as `change`.
        """
        events: dict[str, Mapping[str, Any]] = {}

        def without(before: PipelineState) -> PipelineState:
            sent = None if end is None else before.end_of(end.stage, end.run)
            pending = {name: event for name, event in before.pending.items() if name in tables or not tables}
            events.clear()
            events.update({**(sent.events if sent is not None else {}), **pending})
            after = before.with_hints(pending, announce=None)
            return after if end is None else after.after(replace(end, events=dict(events)))

        if end is not None or not tables or self._waiting or self.known.pending.keys() & tables:
            self.change(without)
        return events

    def change(self, change: Change = lambda before: before) -> PipelineState:
        """Write the collected results and this change, and return the new state; unlike the others, this raises errors.

        Raises:
            RetriableError: `LAKE_UNREADABLE`, `STORAGE_BUSY`, `STATE_CONTENDED`.
        """
        waiting, self._written = tuple(self._waiting), self.clock()

        def changed(before: PipelineState) -> PipelineState:
            tables = dict(before.tables)
            for table, with_run in waiting:
                tables[table] = with_run(tables.get(table, TableRecord()))
            after = change(replace(before, tables=tables, written=self._written))
            jobs = {name: self._running.get(name) for name in {*self._running, *self._ended}}
            return after.with_records({name: replace(after.record(name), running=job) for name, job in jobs.items()})

        self._known = self._update(changed)
        self._waiting = self._waiting[len(waiting) :]
        many = [name for name, one in self._known.tables.items() if one.loose > LOOSE_AT_MOST][:_COMPACTED_AT_ONCE]
        store = open_store(self.environ)
        loose = {name: lake_files.compact(store, runs_folder(self.roots, name)) for name in many}
        if loose:
            self._known = self._update(partial(_left, loose))
        return self._known

    def _update(self, change: Change) -> PipelineState:
        """The first change is tried on what was read, without reading it again."""
        store, read = open_store(self.environ), self._read
        self._read = None
        if read is not None:
            after = change(read[0])
            if store.swap_once(self._path, encode(after), read[1]):
                return after
        return update_object(store, self._path, lambda data: change(self._decoded(data)), encode)

    @property
    def _path(self) -> str:
        return place(self.roots.lake, self.pipeline)

    def _decoded(self, data: bytes | None) -> PipelineState:
        state = decode_or_none(data)
        if state is None:
            if data is not None:
                _LOG.warning("the state of %s is damaged, and rebuilt from the records of its runs", self.pipeline)
            return PipelineState(tables=records_of(self.roots, self.tables, self.clock(), self.environ))
        return state


def end_running(store: Storage, lake: str, pipeline: str, run: str) -> None:
    """Remove the jobs of an Airflow run that was stopped, so that other runs load their tables again.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """

    def ended(data: bytes | None) -> PipelineState:
        state = decode_or_none(data) or PipelineState()
        mine = {name: record for name, record in state.tables.items() if record.running and record.running.run == run}
        return state.with_records({name: replace(record, running=None) for name, record in mine.items()})

    if store.stat(place(lake, pipeline)) is not None:
        update_object(store, place(lake, pipeline), ended, encode)


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


def _left(loose: Mapping[str, int], before: PipelineState) -> PipelineState:
    return before.with_records({name: replace(before.record(name), loose=number) for name, number in loose.items()})


def _logged(what: str, call: Callable[[], T]) -> T | None:
    try:
        return call()
    except GddlError as error:
        _LOG.warning("the state of %s could not be written: %s", what, error)
        return None
