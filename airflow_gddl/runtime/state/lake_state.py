"""What is stored of every table, read from all state documents of a lake, and the status that follows from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.codes import LAKE_UNREADABLE
from airflow_gddl.contract.completeness import HeartbeatFacts
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.runtime.state.documents import BY_HAND, SUFFIX, PipelineState, decode, folder, place
from airflow_gddl.runtime.state.table_runs import TableRecord, merged
from airflow_gddl.runtime.state.table_status import MOST_QUARANTINED, TableStatus, heartbeat_of, judge
from airflow_gddl.runtime.table_directory import TableRow
from airflow_gddl.stores import StoredObject, open_store, read_if_there

_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """An object that could not be read; the state shown instead is as of `since`, seconds since the epoch; None: never
    read.

    Attributes:
        pipeline: pipeline of the object; None: all tables are affected.
    """

    what: str
    since: float | None
    pipeline: str | None = None


@dataclass(frozen=True, kw_only=True)
class LakeState:
    """State of the tables of a lake.

    Attributes:
        notified_by: pipeline to its sent alerts.
        homes: table to the pipeline that ran it last, without manual runs.
        empty: no state was written yet, or it was lost.
        read: when it was read, seconds since the epoch.
    """

    records: Mapping[str, TableRecord] = field(default_factory=dict)
    notified_by: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()
    empty: bool = False
    read: float = 0.0

    def record(self, table: str) -> TableRecord:
        """Empty where nothing is known of the table."""
        return self.records.get(table, TableRecord())

    def with_records(self, records: Mapping[str, TableRecord]) -> LakeState:
        return replace(self, records={**self.records, **records})

    def is_unread(self, row: TableRow) -> bool:
        """Whether what is stored of a table's runs, or a part of it, could not be read."""
        pipelines = (None, row.dag_id, BY_HAND)
        return any(trouble.pipeline in pipelines for trouble in self.troubles)


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
    _kept: dict[str, tuple[str, PipelineState]] = field(default_factory=dict)
    _last: LakeState | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> LakeState:
        with self._lock:
            try:
                self._last = self._fresh(self.clock())
            except RetriableError as error:
                return self._stale(error)
            return self._last

    def required(self) -> LakeState:
        """`read`, where nothing can be done without any state.

        Raises:
            RetriableError: `LAKE_UNREADABLE`.
        """
        known = self.read()
        if known.troubles and not known.read:
            raise RetriableError(LAKE_UNREADABLE, known.troubles[0].what, remedy="check `lake` and its credentials")
        return known

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
        objects = [item for item in store.list(root) if item.name.endswith(SUFFIX) and "/" not in item.name]
        changed = [item for item in objects if self._kept.get(item.name, ("",))[0] != item.etag]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            contents = list(pool.map(lambda item: read_if_there(store, item.path), changed))
        troubles = [
            trouble for item, data in zip(changed, contents, strict=True) if (trouble := self._take(item, data))
        ]
        here = {item.name for item in objects}
        self._kept = {name: kept for name, kept in self._kept.items() if name in here}
        made = combined({name.removesuffix(SUFFIX): state for name, (_, state) in self._kept.items()})
        return replace(made, troubles=tuple(troubles), empty=not here, read=now)

    def _take(self, item: StoredObject, data: bytes | None) -> Trouble | None:
        if data is None:
            return None
        try:
            self._kept[item.name] = (item.etag, decode(data))
        except ValueError as error:
            kept = self._kept.get(item.name)
            what = f"{item.name} is damaged ({error}); the pipeline's next load rebuilds it from the runs"
            since = None if kept is None else kept[1].written
            return Trouble(what=what, since=since, pipeline=item.name.removesuffix(SUFFIX))
        return None


def read_pipeline(lake: str, names: Sequence[str], environ: Mapping[str, str] = os.environ) -> LakeState:
    """The state of a few pipelines; reads only their objects.

    Raises:
        RetriableError: `STORAGE_BUSY`.
        ValueError: one is damaged.
    """
    store = open_store(environ)
    states: dict[str, PipelineState] = {}
    for name in names:
        with suppress(FileNotFoundError):
            states[name] = decode(store.read(place(lake, name)))
    return combined(states)


def combined(states: Mapping[str, PipelineState]) -> LakeState:
    """Merge states of pipelines: a table that moved between pipelines, or was run manually, is in several."""
    records: dict[str, TableRecord] = {}
    newest: dict[str, tuple[float, str]] = {}
    for pipeline, state in states.items():
        for name, record in state.tables.items():
            records[name] = merged(records[name], record) if name in records else record
            if pipeline != BY_HAND:
                newest[name] = max(newest.get(name, (0.0, "")), (record.started or 0.0, pipeline))
    notified_by = {pipeline: state.notified for pipeline, state in states.items()}
    homes = {name: pipeline for name, (_, pipeline) in newest.items()}
    return LakeState(records=records, notified_by=notified_by, homes=homes)


def table_statuses(
    rows: Iterable[TableRow], known: LakeState, now: float, quarantine_rate: float = MOST_QUARANTINED
) -> list[TableStatus]:
    """One for each row, in the same order; for `quarantine_rate` see `table_status.judge`."""
    made = []
    for row in rows:
        name = row.table
        # No pipeline loads an invalid row; users who may see its last pipeline may see its state.
        shown = replace(row, dag_id=known.homes.get(name)) if row.problems else row
        made.append(
            judge(
                shown,
                known.record(name),
                now,
                _heartbeat(row, known),
                unread=known.is_unread(row),
                quarantine_rate=quarantine_rate,
            )
        )
    return made


def _heartbeat(row: TableRow, known: LakeState) -> HeartbeatFacts | None:
    """Of the row's source, as far as the heartbeat table was ever loaded."""
    record = known.record(row.heartbeat or "")
    return heartbeat_of(record) if record.has_run else None
