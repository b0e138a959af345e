"""Iceberg metadata of replicas and histories, for readers that don't read Delta (docs/decisions/207). Needs pyiceberg.

After each commit of a table, the newest version of its replica, and of its history, becomes an Iceberg snapshot of the
same data files; a failure is a warning. Catalogs are pointed to it with their other entries (`catalogs.registrar`).
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.extensions import ICEBERG_KINDS
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.delta.log import DeltaCommits
from spark_jobs.iceberg_metadata.publisher import IcebergPublisher
from spark_jobs.iceberg_metadata.versions import MetadataVersions

_LOG = logging.getLogger(__name__)


def publish(storage: Storage, layout: Layout, spec: TableSpec) -> tuple[RunWarning, ...]:
    """Update the metadata of a table with `iceberg: true` to the newest versions of its replica and history.

    Raises nothing: the Delta tables don't depend on it, and the next run tries again.

    Returns:
        `ICEBERG_BEHIND` where the metadata is of an older version, with the reason.
    """
    if not spec.iceberg:
        return ()
    try:
        for publisher in _publishers(storage, layout, spec):
            publisher.publish()
    except Exception as error:  # noqa: BLE001 - any error of the library; the load has succeeded
        if not isinstance(error, GddlError):
            _LOG.exception("Iceberg metadata of %s was not written", spec.table)
        return (_behind(error),)
    return ()


def is_behind(storage: Storage, layout: Layout, spec: TableSpec) -> bool:
    """Whether `publish` has something to do."""
    if not spec.iceberg:
        return False
    commits = DeltaCommits(storage)
    return any(commits.version(path) != versions.delta_version() for path, versions in _tables(storage, layout, spec))


def clean(storage: Storage, layout: Layout, spec: TableSpec, now: datetime) -> int:
    """Remove metadata files that no reader needs, or all if the row no longer enables Iceberg.

    Returns:
        The number of files removed, or to withdraw.
    """
    if not spec.iceberg:
        return withdraw(storage, layout)
    before = now - timedelta(seconds=seconds(spec.vacuum_retention))
    publishers = [publisher for publisher in _publishers(storage, layout, spec) if publisher.versions.newest()]
    removed = sum(publisher.versions.clean(before, publisher.needed(before)) for publisher in publishers)
    if not spec.history:
        removed += MetadataVersions(storage, layout.iceberg_of("history")).withdraw()
    return removed


def withdraw(storage: Storage, layout: Layout) -> int:
    """Remove all metadata of the table; returns its number of files."""
    return sum(MetadataVersions(storage, layout.iceberg_of(kind)).withdraw() for kind in ICEBERG_KINDS)


def _tables(storage: Storage, layout: Layout, spec: TableSpec) -> Iterator[tuple[str, MetadataVersions]]:
    """Paths of the row's Delta tables that have metadata, if they exist, and the metadata."""
    for kind in ICEBERG_KINDS:
        path = getattr(layout, kind)
        if (kind == "replica" or spec.history) and DeltaCommits(storage).exists(path):
            yield path, MetadataVersions(storage, layout.iceberg_of(kind))


def _publishers(storage: Storage, layout: Layout, spec: TableSpec) -> Iterator[IcebergPublisher]:
    """
    Raises:
        FatalError: `ICEBERG_MISSING`.
    """
    for path, versions in _tables(storage, layout, spec):
        if importlib.util.find_spec("pyiceberg") is None:
            what = "iceberg: true needs the package pyiceberg, which is not installed where the job runs"
            raise FatalError("ICEBERG_MISSING", what, remedy="pip install 'airflow-gddl[iceberg]'")
        yield IcebergPublisher(storage, path, versions)


def _behind(error: Exception) -> RunWarning:
    reason = str(error) if isinstance(error, GddlError) else f"{type(error).__name__}: {str(error)[:300]}"
    message = f"Iceberg readers see an older version than Delta readers: {reason}"
    return RunWarning(code="ICEBERG_BEHIND", message=message, count=1)
