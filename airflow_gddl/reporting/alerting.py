"""Tells people of tables through Airflow's notifiers, any provider's: after each load, and of lateness without one."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.errors import MetadataError, RetriableError
from airflow_gddl.contract.spec import Roots
from airflow_gddl.metadata.topology.rows import TableRow, row_of
from airflow_gddl.notifications.webhook import GddlNotifier
from airflow_gddl.reporting.results import Logger
from airflow_gddl.runtime.snapshot import Directory, PipelineDocument
from airflow_gddl.runtime.state.alerts import Alert, Moves, Told, after_telling, alerts, lateness, moves
from airflow_gddl.runtime.state.board import standings
from airflow_gddl.runtime.state.documents import BY_HAND, RunsDocument, place, update_runs
from airflow_gddl.runtime.state.reading import LakeState, StateReader, read_pipeline
from airflow_gddl.runtime.state.records import records_of
from airflow_gddl.stores import open_store
from airflow_gddl.version_compat import gauge

_SHOWN = 50
_GAUGED = 500
"""Tables whose figures are sent at most."""


def tell(
    context: Context, document: PipelineDocument, log: Logger, environ: Mapping[str, str] = os.environ
) -> list[Alert]:
    """Tell of what began or is over among the pipeline's tables; what was told.

    Where nobody could be told (no notifier is configured, or one fails) nothing counts as told, and the next load tries
    again. Nothing here may fail a load: errors are logged.
    """
    try:
        wanted = notifiers()
        return _tell(context, document, wanted, environ) if wanted else []
    except Exception as error:  # noqa: BLE001 - whatever a notifier raises, the tables are loaded
        log.warning("alerts could not be sent: %s", error)
        return []


def notifiers() -> list[Any]:
    """As `[gddl] alert_notifiers` says; else a webhook where `notify_connection` names one.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    written = configuration.text("alert_notifiers")
    if not written:
        connection = configuration.text("notify_connection")
        return [GddlNotifier(connection=connection)] if connection else []
    try:
        return [_made(given) for given in json.loads(written)]
    except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        what = f"not a list of notifiers: {error}"
        remedy = 'write e.g. [{"notifier": "airflow_gddl.notifications.webhook.GddlNotifier", "arguments": {}}]'
        raise MetadataError("OPTION_INVALID", what, where="[gddl] alert_notifiers", remedy=remedy) from error


def _made(given: Mapping[str, Any]) -> Any:
    module, _, name = given["notifier"].rpartition(".")
    return getattr(importlib.import_module(module), name)(**given.get("arguments", {}))


def _tell(
    context: Context, document: PipelineDocument, wanted: Sequence[Any], environ: Mapping[str, str]
) -> list[Alert]:
    lake, dag_id = document.roots.lake, document.pipeline.dag_id
    known = read_pipeline(lake, (dag_id, BY_HAND), environ)
    found = standings([row_of(spec, dag_id) for spec in document.specs], known, time.time())
    fresh = alerts(found, known.told_by.get(dag_id, {}), configuration.number("alert_quarantine_rate"))
    if fresh:
        _notify(context, wanted, fresh)
        _remember(document.roots, dag_id, fresh, environ)
    return fresh


def watch(context: Context, directory: Directory, log: Logger, environ: Mapping[str, str]) -> list[Alert]:
    """Tell of tables that are late or are so no more, though no load says so; what was told.

    Raises:
        RetriableError: the lake can't be read; whatever a notifier raises. Nothing counts as told then.
        MetadataError: `OPTION_INVALID`.
    """
    known = StateReader(directory.roots.lake, time.time, environ=environ).read()
    for trouble in known.troubles:
        log.warning("%s", trouble.what)
    if known.troubles and not known.read:
        raise RetriableError("LAKE_UNREADABLE", known.troubles[0].what, remedy="check `lake` and its credentials")
    homes = {row.table: row.dag_id for row in directory.rows if row.dag_id is not None}
    moved = moves(known.told_by, homes)
    _follow(directory.roots, moved, environ)
    rows = [row for row in directory.rows if row.dag_id is not None and row.freshness is not None]
    known = _with_lost(directory.roots, rows, known, moved.told, environ)
    fresh = lateness(standings(rows, known, time.time()), moved.told)
    for alert in fresh[:_GAUGED]:
        gauge("gddl.late", int(alert.change == "began"), {"table": alert.table})
    if fresh:
        _notify(context, notifiers(), fresh)
        for dag_id in sorted({homes[alert.table] for alert in fresh}):
            own = [alert for alert in fresh if homes[alert.table] == dag_id]
            _remember(directory.roots, dag_id, own, environ)
    return fresh


def _follow(roots: Roots, moved: Moves, environ: Mapping[str, str]) -> None:
    """Bring what was told of a table to the pipeline that it has now, before the one that it had forgets it."""
    for dag_id, taken in sorted(moved.taken.items()):
        _change_told(roots, dag_id, tuple(taken), partial(_with, taken), environ)
    for dag_id, gone in sorted(moved.left.items()):
        _change_told(roots, dag_id, (), partial(_without, gone), environ)


def _with(taken: Told, told: Told) -> Told:
    return {**taken, **told}


def _without(gone: Collection[str], told: Told) -> Told:
    return {table: codes for table, codes in told.items() if table not in gone}


def _with_lost(
    roots: Roots, rows: Sequence[TableRow], known: LakeState, told: Told, environ: Mapping[str, str]
) -> LakeState:
    """With what the records of runs say of tables whose state was lost: these are not to be taken for never loaded.

    Those that somebody was told of already are not looked up again and again.
    """
    unknown = [row.table for row in rows if row.table not in known.records and not told.get(row.table)]
    return replace(known, records={**known.records, **records_of(roots, unknown, time.time(), environ)})


def _notify(context: Context, wanted: Sequence[Any], fresh: Sequence[Alert]) -> None:
    given = {**context, "gddl_alerts": fresh, "gddl_text": text_of(fresh)}
    for notifier in wanted:
        notifier(given)


def _remember(roots: Roots, dag_id: str, fresh: Sequence[Alert], environ: Mapping[str, str]) -> None:
    """Keep what was told beside the state of the pipeline's runs; where that was lost, beside what its records say."""
    tables = tuple(dict.fromkeys(alert.table for alert in fresh))
    _change_told(roots, dag_id, tables, lambda told: after_telling(told, fresh), environ)


def _change_told(
    roots: Roots, dag_id: str, tables: tuple[str, ...], change: Callable[[Told], Told],
    environ: Mapping[str, str],
) -> None:  # fmt: skip
    """
    Args:
        tables: of which the records are read where the pipeline's state was lost.
    """

    def lost() -> RunsDocument:
        return RunsDocument(tables=records_of(roots, tables, time.time(), environ))

    path = place(roots.lake, dag_id, "runs")
    update_runs(open_store(environ), path, lambda one: replace(one, told=change(one.told)), lost)


def text_of(fresh: Sequence[Alert]) -> str:
    """A line an alert, what began first; many are cut."""
    lines = [one.line for one in sorted(fresh, key=lambda one: (one.change != "began", one.table, one.code))]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([*lines[:_SHOWN], *more])
