"""Poll and decide: reads a pipeline's landing folders and hints together."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import MetadataError, RetriableError
from airflow_gddl.contract.layout import LandingFolder, Layout, join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.runtime.landing import hints
from airflow_gddl.runtime.landing.hints import Watermarks, watermark_of
from airflow_gddl.runtime.landing.polling import ListedFiles, Poll, Scope, joined, poll_folders
from airflow_gddl.runtime.landing.queue import Following
from airflow_gddl.runtime.landing.run_request import RunRequestForm, is_by_person
from airflow_gddl.runtime.landing.work import ListingSnapshot, PipelineWork, decide
from airflow_gddl.runtime.snapshot import PipelineDocument
from airflow_gddl.runtime.state import board
from airflow_gddl.runtime.state.board import read_pipeline
from airflow_gddl.runtime.state.facts import seconds_of
from airflow_gddl.stores import Storage, open_store

_LOG = logging.getLogger(__name__)
_BACKFILL = "backfill__"
"""Prefix of the run ids of Airflow's backfills."""


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
    asked: RunRequestForm = field(default_factory=RunRequestForm)
    since: Mapping[str, str] = field(default_factory=dict)
    again: bool = False


def observe(
    document: PipelineDocument,
    question: Question,
    environ: Mapping[str, str] = os.environ,
    following: Following | None = None,
) -> PipelineWork:
    """List, read the hints, decide. Blocks on the store.

    Args:
        environ: says how S3 is reached.
        following: selects the folders to list; null: all.

    Raises:
        RetriableError, FatalError: as `Storage`.
        MetadataError: `REQUEST_INVALID`, `TABLE_AMBIGUOUS`.
    """
    if question.run.startswith(_BACKFILL):
        what = "a backfill loads nothing: what is loaded is decided by the ledger, never by a run's date"
        remedy = "trigger the DAG with from and to, or with tables"
        raise MetadataError("REQUEST_INVALID", what, where=question.run, remedy=remedy)
    lake = open_store(environ)
    others = sorted({other.dag_id for other in document.dependencies})
    seen = ListingSnapshot(
        looked_at=question.now,
        polls=_by_table(_polls(document, folders_of(document), question, following, lake)),
        hints=hints.read_hints(lake, document.roots.lake, document.pipeline.dag_id),
        others={dag_id: hints.read_hints(lake, document.roots.lake, dag_id) for dag_id in others},
        exists=lambda spec: has_replica(lake, document, spec),
        since=question.since,
        running=lambda: _running_elsewhere(document, question, environ),
        of_older_run=_tables_of_older_run(document, question.run, environ) if question.again else frozenset(),
    )
    work = decide(document, question.asked.resolved(document.specs), question.run, seen)
    if not question.asked.is_some:  # a poll of selected tables has no result for the others
        _keep(lake, document, seen, work)
    return work


def _running_elsewhere(document: PipelineDocument, question: Question, environ: Mapping[str, str]) -> frozenset[str]:
    """Tables that other runs of this pipeline load now, as their tasks reported last."""
    try:
        running = read_pipeline(document.roots.lake, (document.pipeline.dag_id,), environ).running
    except ValueError:  # damaged, and rebuilt by the next load
        return frozenset()
    now = seconds_of(question.now) or 0.0
    return frozenset(name for name, job in running.items() if job.until > now and job.run not in ("", question.run))


def _tables_of_older_run(document: PipelineDocument, run: str, environ: Mapping[str, str]) -> frozenset[str]:
    """Tables that an older run loaded, or failed to load; empty for the latest run.

    Limited to the runs that the tables' state keeps.
    """
    try:
        records = read_pipeline(document.roots.lake, (document.pipeline.dag_id,), environ).records
    except ValueError as error:
        what = "the state of %s is damaged, and rebuilt by its next load; name the tables of %s in the trigger form: %s"
        _LOG.warning(what, document.pipeline.dag_id, run, error)
        return frozenset()
    facts = [(name, fact) for name, record in records.items() for fact in record.facts if fact.airflow]
    own = {name: fact.started for name, fact in facts if fact.airflow[0] == run}
    newest = max(own.values(), default=0.0)
    superseded = any(fact.airflow[0] != run and fact.started > newest for _, fact in facts)
    found = frozenset(own) & frozenset(document.pipeline.tables) if superseded else frozenset()
    if superseded and not found:
        _LOG.warning("no table is known to have been loaded by %s; name tables in the trigger form instead", run)
    return found


def _keep(lake: Storage, document: PipelineDocument, seen: ListingSnapshot, work: PipelineWork) -> None:
    """Store the poll for the status page: a failed write must not fail the run."""
    taken = {name: seconds_of(hint.looked_at) for name, hint in seen.hints.tables.items()}
    record = board.PollRecord(
        polled=seconds_of(seen.looked_at) or 0.0,
        files={name: seen.polls[name].files for name in document.pipeline.tables},
        waiting=frozenset({*work.initial, *work.increments, *work.held}),
        held_by=work.held,
        taken={name: moment for name, moment in taken.items() if moment is not None},
        missing=frozenset(spec.table for spec in document.specs if _is_lost(spec, seen.polls[spec.table])),
    )
    try:
        board.keep(lake, document.roots, document.pipeline.dag_id, record)
    except RetriableError as error:
        _LOG.warning("the poll of %s could not be stored: %s", document.pipeline.dag_id, error)


def _is_lost(spec: TableSpec, poll: Poll) -> bool:
    """Whether the landing folder is missing, and the row does not say what this means."""
    return poll.missing and spec.options.get("missing_folder", "report") == "report"


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


def _by_table(polls: Mapping[str, Poll]) -> dict[str, Poll]:
    """Polls of `folders_of`, those of a table's sources as one."""
    found: dict[str, list[Poll]] = {}
    for place, poll in sorted(polls.items()):
        found.setdefault(_table_of(place), []).append(poll)
    return {table: joined(of_table) for table, of_table in found.items()}


def _table_of(place: str) -> str:
    return place.partition("/")[0]


def _polls(
    document: PipelineDocument,
    folders: Mapping[str, LandingFolder],
    question: Question,
    following: Following | None,
    lake: Storage,
) -> dict[str, Poll]:
    roots, dag_id = document.roots, document.pipeline.dag_id
    window, now = question.asked.window, datetime.fromisoformat(question.now)
    if following is not None and window is None:
        return following.poll(roots, dag_id, folders)
    known = hints.read_watermarks(lake, roots.lake, dag_id)
    in_full = window is not None or question.again or is_by_person(question.run)
    used = {} if in_full else hints.held(known, folders, now)
    listed = poll_folders(lake, folders, Scope(window, used))
    _keep_watermarks(document, known, listed, question.now, lake)
    return {table: files.poll() for table, files in listed.items()}


def _keep_watermarks(
    document: PipelineDocument, known: Watermarks, listed: Mapping[str, ListedFiles], now: str, lake: Storage
) -> None:
    """Store the watermarks of the tables that were listed in full; without them, the next poll lists in full again."""
    specs = {spec.table: spec for spec in (*document.specs, *(other.spec for other in document.dependencies))}
    found = dict(known.tables)
    for table, files in listed.items():
        if files.known is None and not files.refused:
            back = timedelta(seconds=seconds(str(specs[_table_of(table)].options.get("lookback") or "7d")))
            made = watermark_of(files.digests, back, now)
            found = {name: mark for name, mark in found.items() if name != table} | ({table: made} if made else {})
    if found != known.tables:
        try:
            hints.write_watermarks(lake, document.roots.lake, document.pipeline.dag_id, Watermarks(tables=found))
        except RetriableError as error:
            _LOG.warning("the watermarks of %s could not be stored: %s", document.pipeline.dag_id, error)


def has_replica(lake: Storage, document: PipelineDocument, spec: TableSpec) -> bool:
    log = join(Layout.of(document.roots, spec).replica, "_delta_log")
    return next(iter(lake.list(log)), None) is not None
