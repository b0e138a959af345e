"""Implementation of the operator of looks; imported only when a task runs."""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.hooks.aws import ConnectedEnviron, fetch_sources
from airflow_gddl.metadata import looks
from airflow_gddl.metadata.folder import open_folder
from airflow_gddl.metadata.loading import LoadedMetadata, LookRequest
from airflow_gddl.metadata.looks import LOOKS, Decisions
from airflow_gddl.operators.backfills import skip_in_backfill
from airflow_gddl.operators.maintenance_execution import connections
from airflow_gddl.reporting.results import Logger, airflow_errors
from airflow_gddl.runtime.landing.run_request import refuse_unknown

if TYPE_CHECKING:
    from airflow_gddl.operators.jobs import GddlLookOperator


def execute(operator: GddlLookOperator, context: Context) -> dict[str, list[str]]:
    """See `GddlLookOperator.execute`."""
    skip_in_backfill(context)
    room = importlib.import_module(LOOKS[operator.look].package)
    request = _request(operator.metadata, operator.log)
    with airflow_errors():
        decisions = _decisions(context["params"])
        looked = room.look(request) if decisions is None else room.decide(request, decisions)
        fresh: defaultdict[str, list[str]] = defaultdict(list)
        for table in looked.fresh:
            fresh[table.standing].append(table.name)
            operator.log.info("%s: %s", table.name, table.standing)
        for fault in looked.faults:
            operator.log.error("%s", fault)
        if looked.faults:
            raise looked.faults[0]
    return dict(fresh)


def _decisions(params: Mapping[str, Any]) -> Decisions | None:
    """What the run's form decides; None: nothing.

    Raises:
        MetadataError: `REQUEST_INVALID`.
    """
    refuse_unknown(params, ("accept", "ignore", "keys"))
    accept, ignore, keys = (tuple(map(str, params.get(name) or ())) for name in ("accept", "ignore", "keys"))
    return Decisions(accept=accept, ignore=ignore, keys=keys) if accept or ignore or keys else None


def _request(metadata: str, log: Logger) -> LookRequest:
    environ = configuration.environ_for(metadata)
    return LookRequest(
        folder=open_folder(metadata, environ),
        environ=environ,
        lake=lambda path, connection: looks.read(path, configuration.environ_for(path, aws_conn_id=connection or "")),
        reaching=lambda loaded: _reaching(loaded, log),
        now=time.time(),
    )


def _reaching(loaded: LoadedMetadata, log: Logger) -> Mapping[str, str]:
    """The environment for the roots, with credentials of sources, and connections to their databases."""
    landings = [source.landing for source in loaded.beside.looked_at.values()]
    base = configuration.environ_for(loaded.roots.lake, *landings, aws_conn_id=loaded.aws_conn_id or "")
    environ = ConnectedEnviron(lambda: fetch_sources(loaded.access), base) if loaded.access else base
    options = [source.layer.values.get("options") or {} for source in loaded.beside.looked_at.values()]
    return {**environ, **connections([str(one.get("verify_connection") or "") for one in options], log)}
