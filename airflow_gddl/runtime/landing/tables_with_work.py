"""Polls the landing folders of a pipeline; decides which tables have work, which wait for others, and in which task.

The decision is pure but for `PipelineListing.exists`.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from airflow_gddl.contract.codec import from_json_or_none, to_document, to_json
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.file_names import LISTED_IN_PART
from airflow_gddl.contract.layout import LandingFolder, Layout, join
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.runtime.compiled.documents import Dependency, PipelineDocument
from airflow_gddl.runtime.landing.events_queue import Following, QueuePollState
from airflow_gddl.runtime.landing.polling import (
    ListedFiles,
    Poll,
    Watermark,
    held,
    joined,
    poll_folders,
    watermark_of,
)
from airflow_gddl.runtime.landing.run_request import RunRequestForm, is_by_person, is_of_backfill
from airflow_gddl.runtime.state.documents import PipelineState
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.table_runs import TablePoll, seconds_of
from airflow_gddl.stores import Storage, open_store

_AT_ONCE = 8
"""Replicas that are looked for at once."""


Stage = Literal["initial", "increments"]
"""Part of a run that a load task does."""


@dataclass(frozen=True, kw_only=True)
class PipelineWork:
    """Work of a run: the sensor's result, small enough for an XCom.

    Attributes:
        looked_at: ISO 8601 UTC, before the listing.
        initial: table to mark, for the task that loads tables that have no replica, and rebuilds.
        increments: table to mark, for the task that brings the others up to date.
        held: table to the dependencies that it waits for.
        unmet: table to tables that it depends on and that nothing loads; it does not wait for them.
        elsewhere: tables with work that another run of the pipeline loads now, and those that depend on them; the next
            run finds what is left.
        again: tables whose files and row are those of their last load, and that are loaded all the same.
        pending: whether asset events of an earlier run are still to be sent.
        metadata_at: when the newest file of the metadata that it was decided by was last modified, seconds since the
            epoch.
        refused: why the run loads nothing, whatever has landed; empty for a run that polls.
        groups: tables that had groups of tasks when the sensor ended, which has skipped those without work.
    """

    looked_at: str
    initial: Mapping[str, str] = field(default_factory=dict)
    increments: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unmet: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    form: RunRequestForm = field(default_factory=RunRequestForm)
    elsewhere: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    pending: bool = False
    metadata_at: float = 0.0
    refused: str = ""
    groups: tuple[str, ...] = ()

    @property
    def is_some(self) -> bool:
        return bool(self.initial or self.increments or self.pending)

    def marks(self, stage: Stage) -> Mapping[str, str]:
        return self.initial if stage == "initial" else self.increments

    def is_last(self, stage: Stage) -> bool:
        """Whether no other task of the run has tables to load: this one then loads those that wait, if it can."""
        return stage == "increments" or not self.increments

    def may_load(self, stage: Stage, table: str) -> bool:
        """Whether the task of this stage loads the table, now or at its end."""
        return table in self.marks(stage) or (table in self.held and self.is_last(stage) and bool(self.marks(stage)))

    @property
    def why_none(self) -> str:
        """Why a run has nothing to do."""
        if self.refused:
            return self.refused
        form = self.form
        if form.window is not None:
            bounds = [f"{word} {moment}" for word, moment in (("from", form.start), ("to", form.end)) if moment]
            of = ", ".join(form.tables) or "any table"
            when, remedy = " ".join(bounds), "change from and to, or leave them out"
            return f"no landing file of {of} was last modified {when}; {remedy}"
        waits = [f"{table} waits for {', '.join(others)}" for table, others in self.held.items()]
        waits += [f"{table} is loaded by another run" for table in self.elsewhere]
        return "; ".join(["no table has work", *waits])


@dataclass(frozen=True, kw_only=True)
class PipelineListing:
    """Input of the decision.

    Attributes:
        polls: of the pipeline's tables, and of those of other pipelines that they depend on.
        state: of the pipeline.
        others: states of the pipelines that load those.
        since: table to the first poll that made it wait, ISO 8601 UTC.
        exists: whether a table has a replica; for tables without a hint, and all in a run by a user.
        of_older_run: tables of this older, cleared run; they are loaded again.
    """

    looked_at: str
    polls: Mapping[str, Poll]
    state: PipelineState
    others: Mapping[str, PipelineState]
    exists: Callable[[TableSpec], bool]
    since: Mapping[str, str] = field(default_factory=dict)
    of_older_run: frozenset[str] = frozenset()


def mark(spec: TableSpec, seen: Poll) -> str:
    """Changes with the table's files and with its row: the job must check a changed row, even without new files."""
    return f"{seen.digest}.{row_digest(spec)}"


def row_digest(spec: TableSpec) -> str:
    """Digest of what the row says; a field that a new version adds, or that has its default, is no part of it."""
    return hashlib.blake2b(to_document(spec).encode(), digest_size=8).hexdigest()


def differing_rows(work: PipelineWork, specs: Iterable[TableSpec]) -> list[str]:
    """Tables with work whose row the sensor had otherwise, sorted; then those without a row here, marked as such."""
    here = {spec.table: spec for spec in specs}
    decided = sorted({**work.initial, **work.increments}.items())
    other = [name for name, mark_ in decided if name in here and mark_.rpartition(".")[2] != row_digest(here[name])]
    return [*other, *(f"{name} (no row)" for name, _ in decided if name not in here)]


def by_rows(work: PipelineWork, specs: Iterable[TableSpec]) -> PipelineWork:
    """The work with marks of these newer rows; tables without a row are dropped."""
    here = {spec.table: row_digest(spec) for spec in specs}

    def marks(decided: Mapping[str, str]) -> dict[str, str]:
        return {name: f"{one.rpartition('.')[0]}.{here[name]}" for name, one in decided.items() if name in here}

    return replace(work, initial=marks(work.initial), increments=marks(work.increments))


def of_table(work: PipelineWork, spec: TableSpec) -> PipelineWork:
    """The work of one of its tables; a table that was waiting gets a mark that no listing produces, so that the next
    run lists its folder again.
    """
    initial = {name: mark_ for name, mark_ in work.initial.items() if name == spec.table}
    increments = {} if initial else {spec.table: work.increments.get(spec.table, f".{row_digest(spec)}")}
    return replace(work, initial=initial, increments=increments, held={}, unmet={})


def decide(document: PipelineDocument, form: RunRequestForm, run: str, seen: PipelineListing) -> PipelineWork:
    """Decide the work of the run with this id.

    A table has work when its files or its row differ from the last load, or when it is requested. A finished run that
    is cleared, or an older one, repeats its tables. The job lists only part of a large folder unless a user started the
    run; then such tables are passed, since an earlier job may have skipped files that were seen here, and loaded tables
    without a replica.

    A table that another run loads now is left to the next run. If it is requested, its job waits for the other one.
    """
    finished = any(seen.state.end_of(stage, run) is not None for stage in ("initial", "increments"))
    hints = seen.state.hints
    again = {name for name, hint in hints.items() if finished and hint.run == run} | seen.of_older_run
    named = form.names(document.pipeline.tables) if form.is_some else set[str]()
    requested = named if form.is_some else again.copy()
    checks_all = is_by_person(run) and not form.is_some
    if checks_all:
        again |= {name for name in document.pipeline.tables if seen.polls[name].files > LISTED_IN_PART}
    forced = named | again
    marks = {spec.table: mark(spec, seen.polls[spec.table]) for spec in document.specs}
    busy = {spec.table: spec for spec in document.specs if _has_work(spec, marks, seen, form, forced)}
    if checks_all:  # their jobs report what became of them
        busy |= _lost([spec for spec in document.specs if spec.table not in busy], seen)
    elsewhere = _elsewhere(busy, requested, _running_elsewhere(run, seen))
    busy = {name: spec for name, spec in busy.items() if name not in elsewhere}
    unmet = {name: tuple(other for other in document.unmet if other in spec.depends_on) for name, spec in busy.items()}
    held = {
        name: waiting
        for name, spec in busy.items()
        if name not in forced and (waiting := tuple(_waiting_for(document, spec, seen)))
    }
    ready = {name: spec for name, spec in busy.items() if name not in held}
    first = _initial(ready, form, seen)
    loaded = {name: hint.mark for name, hint in hints.items()}
    return PipelineWork(
        looked_at=seen.looked_at,
        initial={name: marks[name] for name in sorted(first)},
        increments={name: marks[name] for name in sorted(ready.keys() - first)},
        held=held,
        unmet={name: missing for name, missing in unmet.items() if missing},
        form=form,
        elsewhere=tuple(sorted(elsewhere)),
        again=tuple(sorted(name for name in ready if name in requested or loaded.get(name) == marks[name])),
        pending=bool(seen.state.pending),
        metadata_at=document.metadata_at,
    )


def _running_elsewhere(run: str, seen: PipelineListing) -> set[str]:
    """Tables that other runs of this pipeline load now, as their tasks reported last."""
    now = seconds_of(seen.looked_at) or 0.0
    jobs = {name: record.running for name, record in seen.state.tables.items()}
    return {name for name, job in jobs.items() if job is not None and job.is_of_another(run, now)}


def _elsewhere(busy: Mapping[str, TableSpec], requested: Collection[str], running: set[str]) -> set[str]:
    """See `PipelineWork.elsewhere`."""
    free = busy.keys() - set(requested)
    elsewhere = free & running
    while more := {name for name in free - elsewhere if (elsewhere | running) & set(busy[name].depends_on)}:
        elsewhere |= more
    return elsewhere


def _lost(specs: Sequence[TableSpec], seen: PipelineListing) -> dict[str, TableSpec]:
    """Loaded tables without a replica."""
    loaded = [spec for spec in specs if seen.state.record(spec.table).hint is not None]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        there = list(threads.map(seen.exists, loaded))
    return {spec.table: spec for spec, exists in zip(loaded, there, strict=True) if not exists}


def _has_work(
    spec: TableSpec, marks: Mapping[str, str], seen: PipelineListing, form: RunRequestForm, forced: Collection[str]
) -> bool:
    if form.is_some:
        # Of a named table the job looks for files to reload, also for those that landed then and are others now.
        is_asked = form.window is None or (form.action == "reload" and not form.all)
        return spec.table in forced and (is_asked or seen.polls[spec.table].in_window)
    if spec.table in forced or reads_of(spec):
        return True  # what a log or a topic holds is not listed
    hint = seen.state.record(spec.table).hint
    if hint is None:
        return seen.polls[spec.table].files > 0 or spec.initial_load is not None
    return hint.mark != marks[spec.table] or seen.polls[spec.table].refused


def _waiting_for(document: PipelineDocument, spec: TableSpec, seen: PipelineListing) -> Iterator[str]:
    """Tables of other pipelines that must be loaded first and aren't, as of the first poll of this table."""
    since = seen.since.get(spec.table, seen.looked_at)
    for other in document.dependencies:
        if other.spec.table in spec.depends_on and not _is_loaded(other, since, seen):
            yield other.spec.table


def _is_loaded(other: Dependency, since: str, seen: PipelineListing) -> bool:
    table = other.spec.table
    hint = seen.others.get(other.dag_id, PipelineState()).record(table).hint
    return hint is not None and (hint.looked_at >= since or hint.mark == mark(other.spec, seen.polls[table]))


def _initial(ready: Mapping[str, TableSpec], form: RunRequestForm, seen: PipelineListing) -> set[str]:
    """Tables for `initial_load`, which runs beside `incremental_load`.

    Tables that depend on each other are loaded by one task, in their order: by the latter where one has a replica.
    """
    if form.action != "run":
        return set(ready) if form.repairs else set()
    first = {name for name, spec in ready.items() if seen.state.record(name).hint is None and not seen.exists(spec)}
    linked: dict[str, set[str]] = {name: set() for name in ready}
    for name, spec in ready.items():
        for other in ready.keys() & set(spec.depends_on):
            linked[name].add(other)
            linked[other].add(name)
    while late := {name for name in first if linked[name] - first}:
        first -= late
    return first


_LOG = logging.getLogger(__name__)
_BACKFILL_LOADS_NOTHING = (
    "a backfill loads nothing, because the ledger decides what is loaded, never a run's date. To read the files of a "
    "time again: trigger the DAG with action reload, from and to, or run "
    "`gddl reload --from-files --table T --since … --until …`"
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """Request of a poll.

    Attributes:
        run: Airflow's run id.
        now: ISO 8601 UTC with microseconds.
        since: table to the first poll of this run that deferred it to its dependencies.
        again: whether the run's sensor has run before: the tables of a cleared run are loaded again.
    """

    run: str
    now: str
    form: RunRequestForm = field(default_factory=RunRequestForm)
    since: Mapping[str, str] = field(default_factory=dict)
    again: bool = False


def observe(
    document: PipelineDocument,
    question: Question,
    environ: Mapping[str, str] = os.environ,
    following: Following | None = None,
) -> PipelineWork:
    """List, read the state, decide. Blocks on the store.

    Args:
        environ: says how S3 is reached.
        following: selects the folders to list; None: all.

    Raises:
        RetriableError, FatalError: as `Storage`.
        MetadataError: `OPTION_INVALID`, `TABLE_AMBIGUOUS`.
    """
    if is_of_backfill(question.run):
        return PipelineWork(looked_at=question.now, refused=_BACKFILL_LOADS_NOTHING)
    lake = open_store(environ)
    others = sorted({other.dag_id for other in document.dependencies})
    recorder = StateRecorder(document.roots, document.pipeline.dag_id, document.pipeline.tables, environ=environ)
    state = recorder.known
    known = from_json_or_none(NextPoll, state.next_poll) or NextPoll()
    looks, next_poll = _polls(document, question, following, known, lake)
    seen = PipelineListing(
        looked_at=question.now,
        polls=_by_table(looks),
        state=state,
        others={dag_id: StateRecorder(document.roots, dag_id, (), environ=environ).known for dag_id in others},
        exists=lambda spec: has_replica(lake, document, spec),
        since=question.since,
        of_older_run=_tables_of_older_run(document, question.run, state) if question.again else frozenset(),
    )
    work = decide(document, question.form.resolved(document.specs), question.run, seen)
    is_whole = not question.form.is_some  # a poll of selected tables has no result for the others

    def polled(before: PipelineState) -> PipelineState:
        after = _polled(document, seen, work, before) if is_whole else before
        return replace(after, next_poll=to_json(next_poll))

    if is_whole or next_poll != known:
        try:  # the poll is for the status page and the next poll, which lists more without it
            recorder.change(polled)
        except RetriableError as error:
            _LOG.warning("the poll of %s could not be stored: %s", document.pipeline.dag_id, error)
    return work


def _tables_of_older_run(document: PipelineDocument, run: str, state: PipelineState) -> frozenset[str]:
    """Tables that an older run loaded, or failed to load; empty for the latest run.

    Limited to the runs that the tables' state keeps.
    """
    facts = [(name, fact) for name, record in state.tables.items() for fact in record.runs if fact.airflow]
    starts = {name: fact.started for name, fact in facts if fact.airflow[0] == run}
    newest = max(starts.values(), default=0.0)
    superseded = any(fact.airflow[0] != run and fact.started > newest for _, fact in facts)
    reloaded = frozenset(starts) & frozenset(document.pipeline.tables) if superseded else frozenset()
    if superseded and not reloaded:
        _LOG.warning("no table is known to have been loaded by %s; name tables in the trigger form instead", run)
    return reloaded


def _polled(
    document: PipelineDocument, seen: PipelineListing, work: PipelineWork, before: PipelineState
) -> PipelineState:
    """With the polls of all tables of the pipeline, and of no other."""
    polled, waiting = seconds_of(seen.looked_at) or 0.0, {*work.initial, *work.increments, *work.held}
    records = {name: replace(one, poll=None) for name, one in before.tables.items() if one.poll is not None}
    for spec in document.specs:
        table, found = spec.table, seen.polls[spec.table]
        # The landing folder is missing, and the row does not say what this means.
        missing = found.missing and spec.options.get("missing_folder", "report") == "report"
        poll = TablePoll(polled=polled, files=found.files, held_by=work.held.get(table, ()), missing=missing)
        records[table] = before.record(table).polled(poll, waits=table in waiting)
    return before.with_records(records)


def folders_of(document: PipelineDocument) -> dict[str, LandingFolder]:
    """Where the pipeline's tables land, and those that other pipelines load and its own depend on.

    By table, or by `<table>/<source>` where a table has several sources.
    """
    others = (other.spec for other in document.dependencies)
    return {
        "/".join((spec.table, *part.shards)): LandingFolder.of(document.roots, part)
        for spec in (*document.specs, *others)
        for part in ([spec.of_shard(shard) for shard in spec.shards] or [spec])
    }


def _by_table(by_folder: Mapping[str, Poll]) -> dict[str, Poll]:
    """Polls of `folders_of`, those of a table's sources as one."""
    polls_by_table: dict[str, list[Poll]] = {}
    for place, poll in sorted(by_folder.items()):
        polls_by_table.setdefault(_table_of(place), []).append(poll)
    return {table: joined(of_table) for table, of_table in polls_by_table.items()}


def _table_of(place: str) -> str:
    return place.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class NextPoll:
    """What a poll leaves for the next one of its pipeline.

    Attributes:
        watermarks: of large folders, by table.
        queue: the last poll by the queue of events; None: none.
    """

    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    queue: QueuePollState | None = None


def _polls(
    document: PipelineDocument, question: Question, following: Following | None, known: NextPoll, lake: Storage
) -> tuple[Mapping[str, Poll], NextPoll]:
    """A poll of each of `folders_of`, and what it leaves for the next one."""
    folders, window = folders_of(document), question.form.window
    if following is not None and window is None:
        queue = following.poll(document.roots, folders, known.queue)
        return queue.looks, replace(known, queue=queue)
    in_full = window is not None or question.again or is_by_person(question.run)
    used = {} if in_full else held(known.watermarks, folders, datetime.fromisoformat(question.now))
    listed = poll_folders(lake, folders, used, window)
    watermarks = _watermarks(document, known.watermarks, listed, question.now)
    return {table: files.poll() for table, files in listed.items()}, replace(known, watermarks=watermarks)


def _watermarks(
    document: PipelineDocument, known: Mapping[str, Watermark], listed: Mapping[str, ListedFiles], now: str
) -> dict[str, Watermark]:
    """With those of the tables that were listed in full."""
    specs = {spec.table: spec for spec in (*document.specs, *(other.spec for other in document.dependencies))}
    watermarks = dict(known)
    for table, files in listed.items():
        if files.known is None and not files.refused:
            back = timedelta(seconds=seconds(str(specs[_table_of(table)].options.get("lookback") or "7d")))
            watermarks.pop(table, None)
            if made := watermark_of(files.digests, back, now):
                watermarks[table] = made
    return watermarks


def has_replica(lake: Storage, document: PipelineDocument, spec: TableSpec) -> bool:
    log = join(Layout.of(document.roots, spec).replica, "_delta_log")
    return next(iter(lake.list(log)), None) is not None
