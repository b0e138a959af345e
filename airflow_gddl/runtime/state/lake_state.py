"""What is stored of every table, read from all state documents of a lake, and the status that follows from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.completeness import HeartbeatFacts
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.runtime.state.documents import (
    BY_HAND,
    PollDocument,
    RunsDocument,
    decode,
    folder,
    place,
)
from airflow_gddl.runtime.state.table_runs import TableRecord, merged
from airflow_gddl.runtime.state.table_status import (
    MOST_QUARANTINED,
    Knowledge,
    RunningJob,
    TablePoll,
    TableStatus,
    heartbeat_of,
    judge,
)
from airflow_gddl.stores import StoredObject, open_store, read_if_there
from airflow_gddl.topology.table_row import TableRow

_AT_ONCE = 16
_RUNS, _POLL = ".runs.json", ".poll.json"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """An object that could not be read; the state shown instead is as of `since`, seconds since the epoch; None: never
    read.

    Attributes:
        pipeline: pipeline of the object; None: all tables are affected.
        runs: it holds what is known of runs; false: of polls alone.
    """

    what: str
    since: float | None
    pipeline: str | None = None
    runs: bool = True


@dataclass(frozen=True, kw_only=True)
class LakeState:
    """State of the tables of a lake.

    Attributes:
        notified_by: pipeline to its sent alerts.
        running: table to the job that loads it; it may have ended unreported.
        seen: table to when a sensor or `gddl_watch` first saw it, seconds since the epoch.
        homes: table to the pipeline that ran it last, without manual runs.
        empty: no state was written yet, or it was lost.
        read: when it was read, seconds since the epoch.
    """

    records: Mapping[str, TableRecord] = field(default_factory=dict)
    polls: Mapping[str, TablePoll] = field(default_factory=dict)
    notified_by: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    running: Mapping[str, RunningJob] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()
    empty: bool = False
    read: float = 0.0

    def is_unread(self, row: TableRow) -> bool:
        """Whether what is stored of a table's runs, or a part of it, could not be read."""
        pipelines = (None, row.dag_id, BY_HAND)
        return any(trouble.runs and trouble.pipeline in pipelines for trouble in self.troubles)


@dataclass
class StateReader:
    """Reads a lake's state repeatedly; thread-safe.

    If the lake can't be read, the last state is returned with a trouble that says since when.

    Attributes:
        clock: seconds since the epoch.
    """

    lake: str
    clock: Callable[[], float]
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _kept: dict[str, tuple[str, RunsDocument | PollDocument]] = field(default_factory=dict)
    _last: LakeState | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> LakeState:
        with self._lock:
            try:
                self._last = self._fresh(self.clock())
            except RetriableError as error:
                return self._stale(error)
            return self._last

    def read_or_last(self) -> LakeState:
        """`read`, which also returns the last state when the store denies access, so that the page always loads."""
        try:
            return self.read()
        except GddlError as error:
            return self._stale(error)

    def _stale(self, error: GddlError) -> LakeState:
        before = self._last or LakeState()
        since = before.troubles[0].since if before.troubles else (before.read or None)
        # `read` stays unset, so that the next call retries.
        return replace(before, troubles=(Trouble(what=f"the lake can't be read: {error}", since=since),))

    def _fresh(self, now: float) -> LakeState:
        store, root = open_store(self.environ), folder(self.lake)
        objects = [item for item in store.list(root) if item.name.endswith((_RUNS, _POLL)) and "/" not in item.name]
        changed = [item for item in objects if self._kept.get(item.name, ("",))[0] != item.etag]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            contents = list(pool.map(lambda item: read_if_there(store, item.path), changed))
        troubles = [
            trouble for item, data in zip(changed, contents, strict=True) if (trouble := self._take(item, data))
        ]
        here = {item.name for item in objects}
        self._kept = {name: kept for name, kept in self._kept.items() if name in here}
        made = combined({name: document for name, (_, document) in self._kept.items()})
        return replace(made, troubles=tuple(troubles), empty=not any(n.endswith(_RUNS) for n in here), read=now)

    def _take(self, item: StoredObject, data: bytes | None) -> Trouble | None:
        if data is None:
            return None
        try:
            is_runs = item.name.endswith(_RUNS)
            document = decode(RunsDocument, data) if is_runs else decode(PollDocument, data)
        except ValueError as error:
            kept = self._kept.get(item.name)
            since = None if kept is None else _moment(kept[1])
            what = f"{item.name} is damaged ({error}); the pipeline's next load rebuilds it from the runs"
            pipeline = item.name.removesuffix(_RUNS).removesuffix(_POLL)
            return Trouble(what=what, since=since, pipeline=pipeline, runs=item.name.endswith(_RUNS))
        self._kept[item.name] = (item.etag, document)
        return None


def read_pipeline(lake: str, names: Sequence[str], environ: Mapping[str, str] = os.environ) -> LakeState:
    """The state of a few pipelines; reads only their objects.

    Raises:
        RetriableError: `STORAGE_BUSY`.
        ValueError: one is damaged.
    """
    store = open_store(environ)
    documents: dict[str, RunsDocument | PollDocument] = {}
    for name in names:
        with suppress(FileNotFoundError):
            documents[f"{name}{_RUNS}"] = decode(RunsDocument, store.read(place(lake, name, "runs")))
        with suppress(FileNotFoundError):
            documents[f"{name}{_POLL}"] = decode(PollDocument, store.read(place(lake, name, "poll")))
    return combined(documents)


def combined(documents: Mapping[str, RunsDocument | PollDocument]) -> LakeState:
    """Merge documents: a table that moved between pipelines, or was run manually, is in several.

    Args:
        documents: by the names of their objects.
    """
    records: dict[str, TableRecord] = {}
    polls: dict[str, TablePoll] = {}
    notified_by: dict[str, Mapping[str, tuple[str, ...]]] = {}
    running: dict[str, RunningJob] = {}
    seen: dict[str, float] = {}
    for object_name, document in documents.items():
        if isinstance(document, PollDocument):
            for name, poll in document.tables.items():
                if name not in polls or poll.polled > polls[name].polled:
                    polls[name] = poll
                seen[name] = min(poll.first, seen.get(name, poll.first))
            continue
        notified_by[object_name.removesuffix(_RUNS)] = document.notified
        for name, record in document.tables.items():
            records[name] = merged(records[name], record) if name in records else record
        for name, job in document.running.items():
            running[name] = max(job, running.get(name, job), key=lambda one: one.until)
        for name, moment in document.seen.items():
            seen[name] = min(moment, seen.get(name, moment))
    return LakeState(
        records=records, polls=polls, notified_by=notified_by, running=running, seen=seen, homes=_homes(documents)
    )


def _homes(documents: Mapping[str, RunsDocument | PollDocument]) -> dict[str, str]:
    newest: dict[str, tuple[float, str]] = {}
    for object_name, document in documents.items():
        pipeline = object_name.removesuffix(_RUNS)
        if isinstance(document, PollDocument) or pipeline == BY_HAND:
            continue
        for name, record in document.tables.items():
            newest[name] = max(newest.get(name, (0.0, "")), (record.started or 0.0, pipeline))
    return {name: pipeline for name, (_, pipeline) in newest.items()}


def _moment(document: RunsDocument | PollDocument) -> float:
    return document.polled if isinstance(document, PollDocument) else document.written


def table_statuses(
    rows: Iterable[TableRow], known: LakeState, now: float, quarantine_rate: float = MOST_QUARANTINED
) -> list[TableStatus]:
    """One for each row, in the same order; for `quarantine_rate` see `table_status.Knowledge`."""
    made = []
    for row in rows:
        name = row.table
        of_it = Knowledge(
            record=known.records.get(name, TableRecord()),
            poll=known.polls.get(name),
            running=known.running.get(name),
            seen=known.seen.get(name),
            heartbeat=_heartbeat(row, known),
            unread=known.is_unread(row),
            quarantine_rate=quarantine_rate,
        )
        # No pipeline loads an invalid row; users who may see its last pipeline may see its state.
        shown = replace(row, dag_id=known.homes.get(name)) if row.problems else row
        made.append(judge(shown, of_it, now))
    return made


def _heartbeat(row: TableRow, known: LakeState) -> HeartbeatFacts | None:
    """Of the row's source, as far as the heartbeat table was ever loaded."""
    record = known.records.get(row.heartbeat or "")
    return None if record is None else heartbeat_of(record, known.polls.get(row.heartbeat or ""))
