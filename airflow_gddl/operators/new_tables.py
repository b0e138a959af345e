"""Implementation of the operator of new tables; imported only when a task runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.packages import room
from airflow_gddl.hooks.aws import ConnectedEnviron, fetch_named, fetch_sources
from airflow_gddl.metadata.folder import open_folder
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.operators.backfills import skip_in_backfill
from airflow_gddl.reporting.results import airflow_errors
from airflow_gddl.runtime.landing.run_request import refuse_unknown

if TYPE_CHECKING:
    from airflow_gddl.operators.jobs import GddlNewTablesOperator

_PLACE = "airflow_gddl.tools.onboarding.new_tables"


def execute(operator: GddlNewTablesOperator, context: Context) -> dict[str, list[str]]:
    """See `GddlNewTablesOperator.execute`."""
    skip_in_backfill(context)
    with airflow_errors():
        new_tables = room(_PLACE, _PLACE, "install all of airflow-gddl, or remove new_tables")
        environ = configuration.environ_for(operator.metadata)
        request = new_tables.LookRequest(
            folder=open_folder(operator.metadata, environ),
            environ=environ,
            reaching=_reaching,
            now=time.time(),
        )
        decisions = _decisions(context["params"])
        if decisions is None:
            looked = new_tables.look(request)
        else:
            looked = new_tables.decide(request, new_tables.Decisions(**decisions))
        fresh: defaultdict[str, list[str]] = defaultdict(list)
        for table in looked.fresh:
            fresh[table.standing].append(table.name)
            operator.log.info("%s: %s", table.name, table.standing)
        for line in looked.lines:
            (operator.log.warning if looked.unwritten else operator.log.info)("%s", line)
        for fault in looked.faults:
            operator.log.error("%s", fault)
        if looked.faults:
            raise looked.faults[0]
    return dict(fresh)


def _decisions(params: Mapping[str, Any]) -> dict[str, tuple[str, ...]] | None:
    """What the run's form decides; None: nothing.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    names = ("accept", "ignore", "keys")
    refuse_unknown(params, names)
    decisions = {name: tuple(map(str, params.get(name) or ())) for name in names}
    return decisions if any(decisions.values()) else None


def _reaching(loaded: LoadedMetadata) -> Mapping[str, str]:
    """The environment for the roots, with credentials of sources, and connections to their databases."""
    landings = [source.landing for source in loaded.proposing.values()]
    base = configuration.environ_for(loaded.roots.lake, *landings, aws_conn_id=loaded.aws_conn_id or "")
    environ = ConnectedEnviron(lambda: fetch_sources(loaded.access), base) if loaded.access else base
    options = [source.layer.values.get("options") or {} for source in loaded.proposing.values()]
    return {**environ, **fetch_named(str(one.get("verify_connection") or "") for one in options)}
