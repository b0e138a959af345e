"""Creates the pools that the metadata names, so that a dropped-in folder and a tier that is added later just run.

When one of Airflow's processes starts, and then beside the triggerer: nothing of ours runs without one, it has a
database, and it does not fork while it works. Pools that exist are left as they are: whoever tuned one in the UI keeps
it.
"""

from __future__ import annotations

import logging
import threading
import time

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from airflow_gddl.plugins import page
from airflow_gddl.plugins.timetables import GddlCronTimetable

_LOG = logging.getLogger(__name__)
EVERY_SECONDS = 60.0


class PoolListener:
    """Airflow calls it when one of its processes starts."""

    @hookimpl
    def on_starting(self, component: object) -> None:
        # Tasks call it too, but have no database; scheduler, triggerer and DAG processor are jobs.
        if type(component).__name__ != "Job":
            return
        _try()
        threading.Thread(target=keep_creating, args=(component,), daemon=True, name="gddl-pools").start()


def keep_creating(job: object) -> None:
    """Ends at once in a process that is no triggerer; which one it is, Airflow tells its job after it has started."""
    while True:
        time.sleep(EVERY_SECONDS)
        if vars(job).get("job_type") != "TriggererJob":
            return
        _try()


def _try() -> None:
    try:
        create_missing_pools()
    except Exception:  # noqa: BLE001 - Airflow's process must go on whatever is wrong with our metadata
        _LOG.exception("pools can't be created; `gddl pools` prints them for `airflow pools import`")


class GddlPlugin(AirflowPlugin):
    """The `airflow.plugins` entry point."""

    name = "gddl"
    listeners = [PoolListener()]  # noqa: RUF012 - as Airflow declares it
    fastapi_apps = page.FASTAPI_APPS
    external_views = page.external_views()
    timetables = [GddlCronTimetable]  # noqa: RUF012 - as above


def create_missing_pools() -> list[str]:
    """The pools that were created, sorted. Needs Airflow's database."""
    # Every task loads this plugin; only Airflow's own processes need the rest.
    from airflow.models.pool import Pool  # noqa: PLC0415 - as said above
    from airflow.utils.session import create_session  # noqa: PLC0415 - as said above

    from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
    from airflow_gddl.metadata.topology import pools  # noqa: PLC0415 - imported when needed

    place = configuration.metadata_place(beside=f"{configuration.dags_folder()}/gddl.py")
    folders = (place, *configuration.other_places(place))
    wanted = pools(pipeline for folder in folders for pipeline in configuration.snapshot(folder).pipelines())
    with create_session() as session:
        existing = {pool.pool for pool in Pool.get_pools(session=session)}
        missing = sorted(wanted.keys() - existing - {Pool.DEFAULT_POOL_NAME})
        for name in missing:
            Pool.create_or_update_pool(name=name, session=session, **wanted[name])
    if missing:
        _LOG.info("created pools: %s", ", ".join(missing))
    return missing
