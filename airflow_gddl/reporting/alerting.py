"""Table alerts through Airflow notifiers of any provider: after each load, and for all tables without a load."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.errors import GddlError, invalid_option
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import Roots
from airflow_gddl.links import table_page
from airflow_gddl.notifications import make_notifier
from airflow_gddl.reporting.results import Logger
from airflow_gddl.runtime.compiled.documents import Directory, PipelineDocument
from airflow_gddl.runtime.compiled.proposals import notes_of
from airflow_gddl.runtime.state.alerts import (
    LATENESS,
    Alert,
    AlertLimits,
    Moves,
    Notified,
    after_notifying,
    alerts,
    moves,
    of_metadata,
    of_notes,
    of_removed,
    without_load,
)
from airflow_gddl.runtime.state.documents import BY_HAND, PipelineState
from airflow_gddl.runtime.state.lake_state import LakeState, StateReader, read_pipeline, table_statuses
from airflow_gddl.runtime.state.recording import StateRecorder, read_records, records_of
from airflow_gddl.runtime.state.table_runs import earliest, merged
from airflow_gddl.runtime.table_directory import TableRow, row_of
from airflow_gddl.version_compat import gauge

_SHOWN = 50
_LONGEST = 2900
"""Characters of a message, with which services take it whole."""
_GAUGED = 500
"""Tables whose figures are sent at most."""
_FILES = 3
"""Files of a warning that are named at most."""


def notify(context: Context, document: PipelineDocument, log: Logger, environ: Mapping[str, str]) -> list[Alert]:
    """Send alerts for problems that began or ended in the pipeline's tables; return those sent.

    If no notifier is configured, or one fails, nothing counts as sent and the next load retries. Errors are logged, so
    that they never fail a load.
    """
    try:
        wanted = notifiers()
        return _tell(context, document, wanted, environ) if wanted else []
    except Exception as error:  # noqa: BLE001 - an error of a notifier must not fail the load
        log.warning("alerts could not be sent: %s", error)
        return []


def notifiers() -> list[Any]:
    """Notifiers of `[gddl] alert_notifiers`; else the webhook of `notify_connection`, if set.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    written = configuration.text("alert_notifiers")
    if not written:
        connection = configuration.text("notify_connection")
        return [make_notifier("webhook", {"connection": connection})] if connection else []
    try:
        return [make_notifier(given["notifier"], given.get("arguments", {})) for given in json.loads(written)]
    except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        what = f"not a list of notifiers: {error}"
        remedy = 'write e.g. [{"notifier": "webhook", "arguments": {"connection": "ops"}}]'
        raise invalid_option(what, remedy, "[gddl] alert_notifiers") from error


def _tell(
    context: Context, document: PipelineDocument, wanted: Sequence[Any], environ: Mapping[str, str]
) -> list[Alert]:
    lake, dag_id = document.roots.lake, document.pipeline.dag_id
    known = read_pipeline(lake, (dag_id, BY_HAND, *document.heartbeats), environ)
    limits = _limits()
    rows = [row_of(spec, document.pipeline) for spec in document.specs]
    statuses = table_statuses(rows, known, time.time(), limits.quarantine_rate)
    fresh = _explained(alerts(statuses, known.notified_by.get(dag_id, {}), limits), document.roots, environ)
    if fresh:
        _notify(context, wanted, fresh)
        _remember(document.roots, dag_id, fresh, environ)
    return fresh


def _limits() -> AlertLimits:
    """
    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    runs = max(1, int(configuration.number("alert_failed_runs")))
    return AlertLimits(quarantine_rate=configuration.number("alert_quarantine_rate"), failed_runs=runs)


def _explained(fresh: Sequence[Alert], roots: Roots, environ: Mapping[str, str]) -> list[Alert]:
    """With the messages and files of the warnings that caused them, from the records of the newest runs."""
    shown = list(dict.fromkeys(alert.table for alert in fresh if alert.of_run and alert.change == "began"))[:_SHOWN]
    texts: dict[tuple[str, str], str] = {}
    for table in shown:
        with suppress(GddlError):  # the alert matters more than its details
            for result in read_records(roots, table, 1, environ, loads_only=True).results:
                texts |= {(table, warning.code): _with_files(warning) for warning in result.warnings}
    base = configuration.airflow_address()
    return [
        replace(
            alert,
            text=texts.get((alert.table, alert.code), alert.text),
            page=table_page(base, alert.table) if alert.is_of_table else "",
        )
        for alert in fresh
    ]


def _with_files(warning: RunWarning) -> str:
    named = [name for name in warning.files[:_FILES] if name not in warning.message]
    return f"{warning.message} ({', '.join(named)})" if named else warning.message


def watch(
    context: Context, directory: Directory, of_no_pipeline: str, log: Logger, environ: Mapping[str, str]
) -> list[Alert]:
    """Send alerts for problems of tables, invalid rows and the metadata that began or ended without a load, those that
    a load could not send, and notes of what awaits a person; return those sent.

    Args:
        of_no_pipeline: name of the state's object for what no pipeline loads: invalid rows, and the metadata.

    Raises:
        RetriableError: the lake can't be read. Errors of notifiers pass through; then nothing counts as sent.
        MetadataError: `OPTION_INVALID`.
    """
    known = StateReader(directory.roots.lake, time.time, environ=environ).required()
    for trouble in known.troubles:
        log.warning("%s", trouble.what)
    homes = {row.table: row.dag_id for row in directory.rows if row.dag_id is not None}
    moved = moves(known.notified_by, homes)
    _follow(directory.roots, moved, environ)
    due = [row for row in directory.rows if row.dag_id is not None and row.freshness is not None]
    known = _with_lost(directory.roots, due, known, moved.notified, environ)
    known = _with_new(directory.roots, due, known, environ)
    limits, now = _limits(), time.time()
    rows = [row for row in directory.rows if row.dag_id is not None or row.problems]
    statuses = table_statuses(rows, known, now, limits.quarantine_rate)
    notified = {**known.notified_by.get(of_no_pipeline, {}), **moved.notified}
    fresh = [*without_load(statuses, notified, limits, now), *of_metadata(directory.problems, notified)]
    fresh += of_notes(notes_of(directory.proposals, environ), notified)
    fresh = _explained(fresh, directory.roots, environ)
    tables = {row.table for row in directory.rows}
    removed_alerts = of_removed(
        {name: known.notified_by.get(name, {}) for name in {of_no_pipeline, *homes.values()}}, tables
    )
    homes |= {alert.table: pipeline for pipeline, alert in removed_alerts}
    fresh += [alert for _, alert in removed_alerts]
    late = [alert for alert in fresh if alert.code in LATENESS]
    for alert in sorted(late, key=lambda alert: alert.change == "began")[:_GAUGED]:  # one may follow the other
        gauge("gddl.late", int(alert.change == "began"), {"table": alert.table})
    if fresh:
        if sent := [alert for alert in fresh if alert.is_sent]:
            _notify(context, notifiers(), sent)
        for name in sorted({homes.get(alert.table, of_no_pipeline) for alert in fresh}):
            of_it = [alert for alert in fresh if homes.get(alert.table, of_no_pipeline) == name]
            _remember(directory.roots, name, of_it, environ)
    return [alert for alert in fresh if alert.is_sent]


def _follow(roots: Roots, moved: Moves, environ: Mapping[str, str]) -> None:
    """Move a table's sent alerts to its new pipeline before the old one drops them."""
    for dag_id, taken in sorted(moved.taken.items()):
        StateRecorder(roots, dag_id, tuple(taken), environ=environ).change(partial(_with, taken))
    for dag_id, strays in sorted(moved.strays.items()):
        StateRecorder(roots, dag_id, (), environ=environ).change(partial(_without, strays))


def _with(taken: Notified, before: PipelineState) -> PipelineState:
    return replace(before, notified={**taken, **before.notified})


def _without(removed: Collection[str], before: PipelineState) -> PipelineState:
    return replace(before, notified={table: codes for table, codes in before.notified.items() if table not in removed})


def _with_lost(
    roots: Roots, rows: Sequence[TableRow], known: LakeState, notified: Notified, environ: Mapping[str, str]
) -> LakeState:
    """Add the state from run records for tables whose state was lost, so that they do not count as never loaded.

    Tables with an alert already sent are not read again.
    """
    unknown = [row.table for row in rows if not known.record(row.table).has_run and not notified.get(row.table)]
    return known.with_records(
        {
            table: merged(known.record(table), record)
            for table, record in records_of(roots, unknown, time.time(), environ).items()
        }
    )


def _with_new(roots: Roots, rows: Sequence[TableRow], known: LakeState, environ: Mapping[str, str]) -> LakeState:
    """Add tables seen for the first time, as of now: their first load is due from now on."""
    now = time.time()
    records = {row.table: known.record(row.table) for row in rows}
    unmet = [row for row in rows if not (one := records[row.table]).has_run and one.seen is None]
    by_dag: dict[str, list[str]] = {}
    for row in unmet:
        by_dag.setdefault(str(row.dag_id), []).append(row.table)
    for dag_id, tables in sorted(by_dag.items()):
        pipeline = tuple(row.table for row in rows if row.dag_id == dag_id)
        StateRecorder(roots, dag_id, pipeline, environ=environ).change(partial(_met, tables, now))
    return known.with_records({row.table: replace(records[row.table], seen=now) for row in unmet})


def _met(tables: Sequence[str], now: float, before: PipelineState) -> PipelineState:
    records = {table: before.record(table) for table in tables}
    return before.with_records({table: replace(one, seen=earliest(one.seen, now)) for table, one in records.items()})


def _notify(context: Context, wanted: Sequence[Any], fresh: Sequence[Alert]) -> None:
    # A trigger's context has no DAG; notifiers of Airflow 3.0 fail without the key.
    given = {"dag": None, **context, "gddl_alerts": fresh, "gddl_text": text_of(fresh)}
    for notifier in wanted:
        notifier(given)


def _remember(roots: Roots, dag_id: str, fresh: Sequence[Alert], environ: Mapping[str, str]) -> None:
    """Store the sent alerts in the state of the pipeline's runs; rebuild a lost state from the run records."""
    tables = tuple(dict.fromkeys(alert.table for alert in fresh))
    recorder = StateRecorder(roots, dag_id, tables, environ=environ)
    recorder.change(lambda before: replace(before, notified=after_notifying(before.notified, fresh)))


def text_of(fresh: Sequence[Alert]) -> str:
    """One line for each alert, new problems first, truncated."""
    lines = [one.line for one in sorted(fresh, key=lambda one: (one.change != "began", one.table, one.code))]
    shown, size = 0, 0
    for line in lines[:_SHOWN]:
        size += len(line) + 1
        if size > _LONGEST:
            break
        shown += 1
    more = [f"and {len(lines) - shown} more"] if len(lines) > shown else []
    return "\n".join([*lines[:shown], *more])
