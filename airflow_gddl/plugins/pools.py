"""Creates the pools that the metadata names, so that new folders and tiers need no setup, and stores the placement of
tables in the lake.

Runs when one of Airflow's processes starts, and then periodically in the triggerer, which this package needs anyway,
which has a database and does not fork. Existing pools are not changed, so that tuned ones keep their slots.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.links import PREFIX
from airflow_gddl.plugins.timetables import GddlCronTimetable
from airflow_gddl.version_compat import conf

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PageApp:
    """An ASGI application that builds the FastAPI application on the first request, since every task loads the
    plugin."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._built(scope, receive, send)

    @staticmethod
    def _quarantine_rate() -> float:
        """The default where the setting is no number, which the sensors report."""
        from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
        from airflow_gddl.runtime.state.table_status import MOST_QUARANTINED  # noqa: PLC0415 - see the class

        try:
            return configuration.number("alert_quarantine_rate")
        except MetadataError:
            return MOST_QUARANTINED

    @cached_property
    def _built(self) -> Any:
        from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed

        app, responses = (importlib.import_module(f"{PAGE}.{name}") for name in ("app", "responses"))
        place = configuration.own_metadata_place()
        return app.build_app(
            responses.PageSource(
                lambda: configuration.compiled_metadata(place), configuration.environ_of, self._quarantine_rate
            )
        )


PAGE = "airflow_gddl.tools.page"
"""The room of the page; without it Airflow has no such page, and all else is as before."""
FASTAPI_APPS: list[dict[str, Any]] = (
    [{"app": PageApp(), "url_prefix": PREFIX, "name": "GDDL tables"}] if find_spec(PAGE) else []
)


def href() -> str:
    """The page's URL path below Airflow's base URL."""
    path = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
    return f"{path}{PREFIX}/"


def external_views() -> list[dict[str, Any]]:
    """The entry of Airflow's menu. Airflow 3.0 ignores it; its alternative needs the FAB provider."""
    if not FASTAPI_APPS:
        return []
    return [{"name": "Tables", "href": href(), "destination": "nav", "url_route": "gddl-tables"}]


_LOG = logging.getLogger(__name__)
EVERY_SECONDS = 60.0


class PoolListener:
    """Airflow calls it when one of its processes starts."""

    @hookimpl
    def on_starting(self, component: object) -> None:
        # Tasks call it too, but have no database; scheduler, triggerer and DAG processor are jobs.
        if type(component).__name__ != "Job":
            return
        _import_for_forks()
        _try()
        threading.Thread(target=keep_creating, args=(component,), daemon=True, name="gddl-pools").start()


def keep_creating(job: object) -> None:
    """Returns in a process that is not a triggerer; Airflow sets the kind of process after its start."""
    while True:
        time.sleep(EVERY_SECONDS)
        if vars(job).get("job_type") != "TriggererJob":
            return
        _try()


def _import_for_forks() -> None:
    """Import what each parse and each task of LocalExecutor would import: they are forks of Airflow's own processes."""
    try:
        importlib.import_module("airflow_gddl.dags.factory")
    except Exception:  # noqa: BLE001 - the DAG file reports it
        _LOG.exception("the DAG factory can't be imported")


def _try() -> None:
    tasks: dict[Callable[[], object], str] = {
        create_missing_pools: "pools can't be created",
        keep_placements: "the placement of tables in DAGs can't be written to the lake; this is retried",
    }
    for task, failed in tasks.items():
        try:
            task()
        except Exception:  # noqa: BLE001 - metadata errors must not stop Airflow's process
            _LOG.exception("%s", failed)


class GddlPlugin(AirflowPlugin):
    """The `airflow.plugins` entry point."""

    name = "gddl"
    listeners = [PoolListener()]  # noqa: RUF012 - as Airflow declares it
    fastapi_apps = FASTAPI_APPS
    external_views = external_views()
    timetables = [GddlCronTimetable]  # noqa: RUF012 - as above


def create_missing_pools() -> list[str]:
    """The pools that were created, sorted. Needs Airflow's database."""
    # Every task loads this plugin; only Airflow's own processes need the rest.
    from airflow.models.pool import Pool  # noqa: PLC0415 - as said above
    from airflow.utils.session import create_session  # noqa: PLC0415 - as said above
    from sqlalchemy.exc import IntegrityError  # noqa: PLC0415 - as above

    from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
    from airflow_gddl.topology.pipelines import pools  # noqa: PLC0415 - imported when needed

    wanted = pools(
        pipeline for folder in _folders() for pipeline in configuration.compiled_metadata(folder).pipelines()
    )
    with create_session() as session:
        existing = {pool.pool for pool in Pool.get_pools(session=session)}
    created = []
    for name in sorted(wanted.keys() - existing - {Pool.DEFAULT_POOL_NAME}):
        # Another of Airflow's processes, which start together, may have created it meanwhile.
        with suppress(IntegrityError):
            with create_session() as session:
                Pool.create_or_update_pool(name=name, session=session, **wanted[name])
            created.append(name)
    if created:
        _LOG.info("created pools: %s", ", ".join(created))
    return created


def keep_placements() -> None:
    """Write the placement of each metadata folder to the lake, where it is not stored yet.

    Raises:
        GddlError: a lake does not answer; see `Storage`.
    """
    from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed

    for folder in _folders():
        configuration.compiled_metadata(folder).keep_placement()


def _folders() -> tuple[str, ...]:
    from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed

    place = configuration.own_metadata_place()
    return (place, *configuration.other_places(place))
