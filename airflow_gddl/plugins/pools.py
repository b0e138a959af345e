"""Creates the pools that the metadata names when Airflow's scheduler starts, so that a dropped-in folder just runs.

Pools that exist are left as they are: whoever tuned one in the UI keeps it. A tier added later needs a restart of the
scheduler, or `gddl pools`.
"""

from __future__ import annotations

import logging

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from airflow_gddl.plugins import page

_LOG = logging.getLogger(__name__)


class PoolListener:
    """Airflow calls it when one of its processes starts."""

    @hookimpl
    def on_starting(self, component: object) -> None:
        # Tasks call it too, but have no database; scheduler, triggerer and DAG processor are jobs.
        if type(component).__name__ != "Job":
            return
        try:
            create_missing_pools()
        except Exception:  # noqa: BLE001 - the scheduler must start whatever is wrong with our metadata
            _LOG.exception("pools can't be created; `gddl pools` prints them for `airflow pools import`")


class GddlPlugin(AirflowPlugin):
    """The `airflow.plugins` entry point."""

    name = "gddl"
    listeners = [PoolListener()]  # noqa: RUF012 - as Airflow declares it
    fastapi_apps = page.FASTAPI_APPS
    external_views = page.external_views()


def create_missing_pools() -> list[str]:
    """The pools that were created, sorted. Needs Airflow's database."""
    # Every task loads this plugin; only Airflow's own processes need the rest.
    from airflow.models.pool import Pool  # noqa: PLC0415 - as said above
    from airflow.utils.session import create_session  # noqa: PLC0415 - as said above

    from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
    from airflow_gddl.metadata.topology import pools  # noqa: PLC0415 - imported when needed

    place = configuration.metadata_place(beside=f"{configuration.dags_folder()}/gddl.py")
    wanted = pools(configuration.snapshot(place).pipelines())
    with create_session() as session:
        existing = {pool.pool for pool in Pool.get_pools(session=session)}
        missing = sorted(wanted.keys() - existing - {Pool.DEFAULT_POOL_NAME})
        for name in missing:
            Pool.create_or_update_pool(name=name, session=session, **wanted[name])
    if missing:
        _LOG.info("created pools: %s", ", ".join(missing))
    return missing
