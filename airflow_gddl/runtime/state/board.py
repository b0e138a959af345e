"""Every table with its state, read from the lake, to list, filter, sort and count; used by the page and the command.

Over time: throughput, failures, lag and durations of many tables, from the digests of their last runs.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from airflow_gddl.contract.completeness import HeartbeatFacts
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.documents import (
    BY_HAND,
    PollDocument,
    RunsDocument,
    decode_poll,
    decode_runs,
    encode_poll,
    folder,
    place,
)
from airflow_gddl.runtime.state.facts import KEPT_RUNS, RunFact, RunFigures, TableRecord, merged
from airflow_gddl.runtime.state.judging import (
    MOST_QUARANTINED,
    STATES,
    Knowledge,
    RunningJob,
    TablePoll,
    TableStatus,
    heartbeat_of,
    judge,
)
from airflow_gddl.stores import Storage, StoredObject, open_store, read_if_there
from airflow_gddl.topology.rows import TableRow

_AT_ONCE = 16
_RUNS, _POLL = ".runs.json", ".poll.json"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """An object that could not be read; the state shown instead is as of `since`, seconds since the epoch; null: never
    read.

    Attributes:
        pipeline: pipeline of the object; null: all tables are affected.
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
        found = [item for item in store.list(root) if item.name.endswith((_RUNS, _POLL)) and "/" not in item.name]
        changed = [item for item in found if self._kept.get(item.name, ("",))[0] != item.etag]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            contents = list(pool.map(lambda item: read_if_there(store, item.path), changed))
        troubles = [
            trouble for item, data in zip(changed, contents, strict=True) if (trouble := self._take(item, data))
        ]
        here = {item.name for item in found}
        self._kept = {name: kept for name, kept in self._kept.items() if name in here}
        made = combined({name: document for name, (_, document) in self._kept.items()})
        return replace(made, troubles=tuple(troubles), empty=not any(n.endswith(_RUNS) for n in here), read=now)

    def _take(self, item: StoredObject, data: bytes | None) -> Trouble | None:
        if data is None:
            return None
        try:
            document = decode_runs(data) if item.name.endswith(_RUNS) else decode_poll(data)
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
            documents[f"{name}{_RUNS}"] = decode_runs(store.read(place(lake, name, "runs")))
        with suppress(FileNotFoundError):
            documents[f"{name}{_POLL}"] = decode_poll(store.read(place(lake, name, "poll")))
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
                if poll.first is not None:
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


Order = Literal["urgency", "lag", "table", "last_run", "as_of", "rows", "quarantined", "waiting"]
Facet = Literal["source", "tier", "priority", "owner"]
FACETS: tuple[Facet, ...] = ("source", "tier", "priority", "owner")
_PRIORITIES = {"critical": 0, "high": 1, "normal": 2, "low": 3}
_URGENCY = {state: rank for rank, state in enumerate(STATES)}


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """A table, its facts (empty before any run) and its current state."""

    row: TableRow
    record: TableRecord
    poll: TablePoll | None
    state: TableStatus

    @cached_property
    def newest(self) -> RunFact | None:
        return self.record.newest


def standings(
    rows: Iterable[TableRow], known: LakeState, now: float, quarantine_rate: float = MOST_QUARANTINED
) -> list[BoardRow]:
    """One for each row, in the same order; for `quarantine_rate` see `judging.Knowledge`."""
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
        made.append(BoardRow(row=shown, record=of_it.record, poll=of_it.poll, state=judge(row, of_it, now)))
    return made


def _heartbeat(row: TableRow, known: LakeState) -> HeartbeatFacts | None:
    """Of the row's source, as far as the heartbeat table was ever loaded."""
    record = known.records.get(row.heartbeat or "")
    return None if record is None else heartbeat_of(record, known.polls.get(row.heartbeat or ""))


@dataclass(frozen=True, kw_only=True)
class TableQuery:
    """Filters and sorting. Empty: all.

    Attributes:
        search: parts of the table's name, in any case; all of them must be in it.
        states: any of these; `late`, `failed`, `attention` and `running` also match tables with other states at the
            same time, and `quarantined` those with rows or files in quarantine.
    """

    search: str = ""
    states: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    order: Order = "urgency"
    descending: bool = False


def chosen(found: Iterable[BoardRow], query: TableQuery) -> list[BoardRow]:
    """Tables that match the query, in its order, then by name."""
    words = query.search.casefold().split()
    picked = [one for one in found if _fits(one, query, words)]
    picked.sort(key=lambda one: one.row.table, reverse=query.descending and query.order == "table")
    if query.order != "table":
        picked.sort(key=_KEYS[query.order], reverse=query.descending)
    return picked


def counts(found: Iterable[BoardRow]) -> dict[str, int]:
    """State to the number of tables in it, every state."""
    met = Counter(one.state.state for one in found)
    return {state: met[state] for state in STATES}


def choices(found: Iterable[BoardRow], query: TableQuery) -> dict[str, int]:
    """The number of tables that the query lists with one of its states alone, for every state and `quarantined`; and
    as `all` without any."""
    fitting = chosen(found, replace(query, states=(), order="table"))
    met = Counter(state for one in fitting for state in _all_states(one))
    return {"all": len(fitting), **{state: met[state] for state in (*STATES, "quarantined")}}


def facets(found: Iterable[BoardRow]) -> dict[Facet, list[str]]:
    """The values to filter by, sorted."""
    rows = [one.row for one in found]
    return {name: sorted({value for row in rows if (value := getattr(row, name))}) for name in FACETS}


def _fits(one: BoardRow, query: TableQuery, words: Sequence[str]) -> bool:
    row, name = one.row, f"{one.row.table} {one.row.source}:{one.row.name_in_source}".casefold()
    return (
        all(word in name for word in words)
        and _among(row.source, query.sources)
        and _among(row.tier, query.tiers)
        and _among(row.priority, query.priorities)
        and _among(row.owner or "", query.owners)
        and (not query.states or bool(_all_states(one).intersection(query.states)))
    )


def _among(value: str, wanted: Collection[str]) -> bool:
    return not wanted or value in wanted


def _all_states(one: BoardRow) -> set[str]:
    state = one.state
    states = {"late": state.late, "failed": state.failed, "attention": bool(state.attention)}
    states |= {"running": state.running is not None, "quarantined": one.record.quarantined > 0}
    return {state.state, *(name for name, holds in states.items() if holds)}


def _urgency(one: BoardRow) -> tuple[int, int, float]:
    return _URGENCY[one.state.state], _PRIORITIES.get(one.row.priority, 9), -(one.state.behind or 0.0)


_KEYS: dict[str, Callable[[BoardRow], tuple[float, ...]]] = {
    "urgency": _urgency,
    # Longest first; tables without a lag come last.
    "lag": lambda one: (0.0 if one.state.lag is None else -one.state.lag - 1e18,),
    # The stalest first; tables that never were up to date come before.
    "as_of": lambda one: (-1.0 if one.state.as_of is None else one.state.as_of,),
    # Most first; tables of unknown size come last.
    "rows": lambda one: (1.0 if one.record.rows is None else -float(one.record.rows),),
    "last_run": lambda one: (-(one.record.started or 0.0),),
    "quarantined": lambda one: (-float(one.record.quarantined),),
    "waiting": lambda one: (-float(one.state.waiting),),
}


@dataclass(frozen=True, kw_only=True)
class PollRecord:
    """One poll of all tables of a pipeline.

    Attributes:
        polled: seconds since the epoch, before the listing.
        files: table to the number of its data files.
        waiting: tables with pending files.
        held_by: tables that wait, to their dependencies.
        taken: table to the poll of its last load, seconds since the epoch.
        missing: tables whose landing folder is missing, so that nothing is known of their source.
    """

    polled: float
    files: Mapping[str, int]
    waiting: frozenset[str] = frozenset()
    held_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    taken: Mapping[str, float] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()


def after(before: PollDocument | None, seen: PollRecord) -> PollDocument:
    """Pure. The number of pending files, and since when, follows from earlier polls."""
    known = before.tables if before is not None else {}
    return PollDocument(polled=seen.polled, tables={name: _poll(name, known.get(name), seen) for name in seen.files})


def _poll(name: str, before: TablePoll | None, seen: PollRecord) -> TablePoll:
    files, taken = seen.files[name], seen.taken.get(name)
    # For tables polled by an earlier release, which did not store this.
    first = seen.polled if before is None else before.first or before.polled
    missing, clear = name in seen.missing, None if before is None else before.clear
    if name not in seen.waiting:
        clear = clear if missing else seen.polled
        return TablePoll(polled=seen.polled, files=files, clear=clear, first=first, missing=missing)
    # The files pending at the previous poll were loaded since: this is new work.
    same = before is not None and before.since is not None and (taken is None or taken < before.since)
    loaded = 0 if before is None or taken is None else before.files - (before.waiting if same else 0)
    return TablePoll(
        polled=seen.polled,
        files=files,
        waiting=max(1, files - loaded),
        since=before.since if same and before is not None else seen.polled,
        clear=clear,
        held_by=tuple(seen.held_by.get(name, ())),
        first=first,
        missing=missing,
    )


def keep(store: Storage, roots: Roots, pipeline: str, seen: PollRecord) -> None:
    """Write the poll.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    path = place(roots.lake, pipeline, "poll")
    try:
        before: PollDocument | None = decode_poll(store.read(path))
    except (FileNotFoundError, ValueError):
        before = None
    store.write(path, encode_poll(after(before, seen)))


Span = Literal["day", "fortnight"]
_SPANS: Mapping[Span, tuple[int, float]] = {"day": (24, 3600.0), "fortnight": (14, 86_400.0)}
"""Number of periods, and the length of each in seconds."""
NO_OWNER = ""


@dataclass(frozen=True, kw_only=True)
class PeriodFigures:
    """Figures of runs, of a period or of a group of tables.

    Attributes:
        rows: appended to change tables.
        lag, seconds: 50th and 95th percentile, of the runs that did not fail; null without any.
    """

    runs: int
    failed: int
    rows: int
    lag: tuple[float, float] | None
    seconds: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Overview:
    """
    Attributes:
        periods: start of each, seconds since the epoch, and its figures; oldest first, without gaps; the last is under
            way.
        complete_since: start of the oldest run that is known of a table whose older runs are not; earlier periods
            count such tables in part. Null: all runs are known.
        sources, owners: figures of all periods together; tables without an owner are under `NO_OWNER`.
    """

    periods: tuple[tuple[float, PeriodFigures], ...]
    complete_since: float | None
    sources: Mapping[str, PeriodFigures] = field(default_factory=dict)
    owners: Mapping[str, PeriodFigures] = field(default_factory=dict)


def overview(found: Iterable[BoardRow], now: float, span: Span) -> Overview:
    """Of the runs that began in the span before `now`, seconds since the epoch."""
    number, length = _SPANS[span]
    first = (math.floor(now / length) - number + 1) * length
    runs: list[tuple[BoardRow, RunFigures]] = []
    cut: list[float] = []
    for one in found:
        if (one.record.started or 0.0) < first:
            continue  # without decoding its older runs
        facts = one.record.figures
        if len(facts) == KEPT_RUNS and facts[0].started > first:
            cut.append(facts[0].started)
        runs += [(one, fact) for fact in facts if first <= fact.started <= now]
    by_period: list[list[RunFigures]] = [[] for _ in range(number)]
    for _, fact in runs:
        by_period[int((fact.started - first) // length)].append(fact)
    return Overview(
        periods=tuple((first + at * length, _figures(facts)) for at, facts in enumerate(by_period)),
        complete_since=max(cut, default=None),
        sources=_grouped((one.row.source, fact) for one, fact in runs),
        owners=_grouped((one.row.owner or NO_OWNER, fact) for one, fact in runs),
    )


def _grouped(runs: Iterable[tuple[str, RunFigures]]) -> dict[str, PeriodFigures]:
    groups: dict[str, list[RunFigures]] = {}
    for name, fact in runs:
        groups.setdefault(name, []).append(fact)
    return {name: _figures(facts) for name, facts in sorted(groups.items())}


def _figures(facts: Sequence[RunFigures]) -> PeriodFigures:
    good = [fact for fact in facts if fact.status != "failed"]
    return PeriodFigures(
        runs=len(facts),
        failed=len(facts) - len(good),
        rows=sum(fact.appended for fact in facts),
        lag=_percentiles([fact.lag for fact in good if fact.lag is not None]),
        seconds=_percentiles([fact.seconds for fact in good]),
    )


def _percentiles(values: list[float]) -> tuple[float, float] | None:
    """The 50th and 95th, each a value that occurs: the nearest rank."""
    if not values:
        return None
    values.sort()
    half, most = (values[math.ceil(share * len(values)) - 1] for share in (0.5, 0.95))
    return half, most
