"""Tells people of tables through Airflow's notifiers, any provider's, after each load."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.notifications.webhook import GddlNotifier
from airflow_gddl.operators.reporting import Logger
from airflow_gddl.snapshot import PipelineDocument
from airflow_gddl.state.alerts import Alert, alerts
from airflow_gddl.state.board import standings
from airflow_gddl.state.documents import BY_HAND, RunsDocument, place, update_runs
from airflow_gddl.state.reading import read_pipeline
from airflow_gddl.stores import open_store
from airflow_gddl.topology.rows import row_of

_SHOWN = 50


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
    fresh, after = alerts(found, known.told, configuration.number("alert_quarantine_rate"))
    if not fresh:
        return []
    given = {**context, "gddl_alerts": fresh, "gddl_text": text_of(fresh)}
    for notifier in wanted:
        notifier(given)
    store = open_store(lake, environ)
    update_runs(store, place(lake, dag_id, "runs"), lambda one: replace(one, told={**one.told, **after}), RunsDocument)
    return fresh


def text_of(fresh: Sequence[Alert]) -> str:
    """A line an alert, what began first; many are cut."""
    lines = [one.line for one in sorted(fresh, key=lambda one: (one.change != "began", one.table, one.code))]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([*lines[:_SHOWN], *more])
