"""Updates Iceberg metadata after each commit of a table, with a warning if that fails."""

from __future__ import annotations

import importlib.util
import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.delta.commits import DeltaCommits
from spark_jobs.iceberg.versions import MetadataVersions

if TYPE_CHECKING:
    from spark_jobs.iceberg.mirror import Mirror

_LOG = logging.getLogger(__name__)


def publish(storage: Storage, layout: Layout, spec: TableSpec) -> tuple[RunWarning, ...]:
    """Update the metadata of a table with `iceberg: true` to its replica's newest version.

    Raises nothing: the Delta tables don't depend on it, and the next run tries again.

    Returns:
        `ICEBERG_BEHIND` where the metadata is of an older version, with the reason.
    """
    if not spec.iceberg:
        return ()
    try:
        if not DeltaCommits(storage).exists(layout.replica):
            return ()
        _mirror(storage, layout).publish()
    except Exception as error:  # noqa: BLE001 - any error of the library; the load has succeeded
        if not isinstance(error, GddlError):
            _LOG.exception("Iceberg metadata of %s was not written", spec.table)
        return (_behind(error),)
    return ()


def is_behind(storage: Storage, layout: Layout, spec: TableSpec) -> bool:
    """Whether `publish` has something to do."""
    if not spec.iceberg:
        return False
    return DeltaCommits(storage).version(layout.replica) != MetadataVersions(storage, layout.iceberg).delta_version()


def clean(storage: Storage, layout: Layout, spec: TableSpec, now: datetime) -> int:
    """Remove metadata files that no reader needs, or all if the row no longer enables Iceberg.

    Returns:
        The number of files removed, or to withdraw.
    """
    versions, keep = MetadataVersions(storage, layout.iceberg), timedelta(seconds=seconds(spec.vacuum_retention))
    if not versions.newest():
        return 0
    if not spec.iceberg:
        return versions.withdraw()
    return versions.clean(now, keep, _mirror(storage, layout).needed())


def _mirror(storage: Storage, layout: Layout) -> Mirror:
    """
    Raises:
        FatalError: `ICEBERG_MISSING`.
    """
    if importlib.util.find_spec("pyiceberg") is None:
        what = "iceberg: true needs the package pyiceberg, which is not installed where the job runs"
        raise FatalError("ICEBERG_MISSING", what, remedy="pip install 'airflow-gddl[iceberg]'")
    from spark_jobs.iceberg.mirror import Mirror  # noqa: PLC0415 - imports deltalake, which most runs on Spark don't need

    return Mirror(storage, layout.replica, MetadataVersions(storage, layout.iceberg))


def _behind(error: Exception) -> RunWarning:
    reason = str(error) if isinstance(error, GddlError) else f"{type(error).__name__}: {str(error)[:300]}"
    message = f"Iceberg readers see an older version than Delta readers: {reason}"
    return RunWarning(code="ICEBERG_BEHIND", message=message, count=1)
