"""Look and decide: the one place where a pipeline's landing folders and hints are read together."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import MetadataError, RetriableError
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.runtime.landing import hints, watermarks
from airflow_gddl.runtime.landing.polling import Poll, Scope, Tally, look_from
from airflow_gddl.runtime.landing.queue_polling import Following
from airflow_gddl.runtime.landing.run_request import RunRequestForm, is_by_person
from airflow_gddl.runtime.landing.watermarks import Watermarks, watermark_of
from airflow_gddl.runtime.landing.work import ListingSnapshot, PipelineWork, decide
from airflow_gddl.runtime.snapshot import PipelineDocument
from airflow_gddl.runtime.state import polls as looks
from airflow_gddl.runtime.state.moments import seconds_of
from airflow_gddl.runtime.state.reading import read_pipeline
from airflow_gddl.stores import Storage, open_store

_LOG = logging.getLogger(__name__)
Source = Storage | Following
_BACKFILL = "backfill__"
"""How Airflow begins the ids of a backfill's runs."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a look is made for.

    Attributes:
        run: Airflow's run id.
        now: ISO 8601 UTC with microseconds.
        since: table to the first look of this run that held it back.
        again: whether the run's sensor has run before: tables of a run that a person cleared are done again.
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
        environ: tells how S3 is reached.
        following: tells which folders to list; null: all of them.

    Raises:
        RetriableError, FatalError: as `Storage`.
        MetadataError: `REQUEST_INVALID`.
    """
    if question.run.startswith(_BACKFILL):
        what = "a backfill loads nothing: what is loaded is told by the ledger, never by a run's date"
        remedy = "trigger the DAG with from and to, or with tables"
        raise MetadataError("REQUEST_INVALID", what, where=question.run, remedy=remedy)
    lake = open_store(environ)
    source: Source = open_store(environ)
    if following is not None and question.asked.window is None:
        source = following
    others = {other.table: other.dag_id for other in document.dependencies if other.dag_id is not None}
    tables = (*document.pipeline.tables, *others)
    seen = ListingSnapshot(
        looked_at=question.now,
        looks=_looks(document, tables, question, source, lake),
        hints=hints.read(lake, document.roots.lake, document.pipeline.dag_id),
        others={dag_id: hints.read(lake, document.roots.lake, dag_id) for dag_id in sorted(set(others.values()))},
        exists=lambda spec: has_replica(lake, document, spec),
        since=question.since,
        of_older_run=_tables_of_older_run(document, question.run, environ) if question.again else frozenset(),
    )
    work = decide(document, question.asked, question.run, seen)
    if not question.asked.is_some:  # a look that was asked for some tables tells nothing of the others
        _keep(lake, document, seen, work)
    return work


def _tables_of_older_run(document: PipelineDocument, run: str, environ: Mapping[str, str]) -> frozenset[str]:
    """Tables that the run loaded, or failed to load, before a later one worked on the pipeline; none of the latest run.

    As far back as the state of the tables remembers their runs.
    """
    records = read_pipeline(document.roots.lake, (document.pipeline.dag_id,), environ).records
    facts = [(name, fact) for name, record in records.items() for fact in record.facts if fact.airflow]
    own = {name: fact.started for name, fact in facts if fact.airflow[0] == run}
    newest = max(own.values(), default=0.0)
    superseded = any(fact.airflow[0] != run and fact.started > newest for _, fact in facts)
    found = frozenset(own) & frozenset(document.pipeline.tables) if superseded else frozenset()
    if superseded and not found:
        _LOG.warning("no table is known to have been loaded by %s; name tables in the trigger form instead", run)
    return found


def _keep(lake: Storage, document: PipelineDocument, seen: ListingSnapshot, work: PipelineWork) -> None:
    """Remember what was seen, for people: no run may fail because this could not be written."""
    taken = {name: seconds_of(hint.looked_at) for name, hint in seen.hints.tables.items()}
    sighting = looks.PollRecord(
        looked=seconds_of(seen.looked_at) or 0.0,
        files={name: seen.looks[name].files for name in document.pipeline.tables},
        waiting=frozenset({*work.initial, *work.increments, *work.held}),
        held_by=work.held,
        taken={name: moment for name, moment in taken.items() if moment is not None},
    )
    try:
        looks.keep(lake, document.roots, document.pipeline.dag_id, sighting)
    except RetriableError as error:
        _LOG.warning("the look at %s could not be kept: %s", document.pipeline.dag_id, error)


def _looks(
    document: PipelineDocument, tables: Collection[str], question: Question, source: Source, lake: Storage
) -> dict[str, Poll]:
    roots, dag_id = document.roots, document.pipeline.dag_id
    if isinstance(source, Following):
        return source.looks(roots, dag_id, tables)
    window, now = question.asked.window, datetime.fromisoformat(question.now)
    known = watermarks.read(lake, roots.lake, dag_id)
    in_full = window is not None or question.again or is_by_person(question.run)
    used = {} if in_full else watermarks.held(known, tables, now)
    tallies = look_from(source, roots.landing, tables, Scope(window, used))
    _keep_watermarks(document, known, tallies, question.now, lake)
    return {table: tally.look() for table, tally in tallies.items()}


def _keep_watermarks(
    document: PipelineDocument, known: Watermarks, tallies: Mapping[str, Tally], now: str, lake: Storage
) -> None:
    """Remember how far the tables are known that were listed in full; without it, the next poll lists them so again."""
    specs = {spec.table: spec for spec in document.specs}
    specs |= {other.table: other.spec for other in document.dependencies if other.spec is not None}
    found = dict(known.tables)
    for table, tally in tallies.items():
        if tally.known is None and not tally.refused:
            back = timedelta(seconds=seconds(str(specs[table].options.get("lookback") or "7d")))
            made = watermark_of(tally.digests, back, now)
            found = {name: mark for name, mark in found.items() if name != table} | ({table: made} if made else {})
    if found != known.tables:
        try:
            watermarks.write(lake, document.roots.lake, document.pipeline.dag_id, Watermarks(tables=found))
        except RetriableError as error:
            _LOG.warning("the watermarks of %s could not be kept: %s", document.pipeline.dag_id, error)


def has_replica(lake: Storage, document: PipelineDocument, spec: TableSpec) -> bool:
    log = join(Layout.of(document.roots, spec).replica, "_delta_log")
    return next(iter(lake.list(log)), None) is not None
