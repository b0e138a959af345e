"""Rows with `iceberg: true` or `iceberg: 3`.

Why so: docs/decisions/delta-and-ledger.md.

After each commit of a table, the newest version of its replica, and of its history, becomes an Iceberg snapshot of the
same data files; a failure is a warning. Catalogs are pointed to it with their other entries (`catalogs.registrar`).
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from datetime import timedelta

from airflow_gddl.contract.codes import ICEBERG_BEHIND
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.extensions import ICEBERG_KINDS, TableKind
from airflow_gddl.contract.features.iceberg import format_version, iceberg_folder
from airflow_gddl.contract.packages import package_missing
from airflow_gddl.contract.result import RunWarning, Warnings
from spark_jobs.batch.feature import Feature
from spark_jobs.batch.table_run import TableRun
from spark_jobs.rooms.features.iceberg.publishing import IcebergPublisher
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.iceberg_metadata import MetadataVersions

_LOG = logging.getLogger(__name__)


class Iceberg(Feature):
    def update(self, run: TableRun) -> Warnings:
        """Update the metadata to the newest versions of replica and history.

        Raises nothing: the Delta tables don't depend on it, and the next run tries again.

        Returns:
            `ICEBERG_BEHIND` where the metadata is of an older version, with the reason.
        """
        try:
            for publisher in _publishers(run):
                publisher.publish()
        except Exception as error:  # noqa: BLE001 - any error of the library; the load has succeeded
            if not isinstance(error, GddlError):
                _LOG.exception("Iceberg metadata of %s was not written", run.spec.table)
            return (_behind(error),)
        return ()

    def has_work(self, run: TableRun) -> bool:
        commits, wanted = DeltaCommits(run.runtime.storage), format_version(run.spec)
        return any((commits.version(path), wanted) != versions.written() for path, versions in _tables(run))

    def clean(self, run: TableRun) -> int:
        """Remove metadata files that no reader needs, and all of tables that have none any more."""
        before = run.runtime.clock() - timedelta(seconds=seconds(run.spec.vacuum_retention))
        publishers = [publisher for publisher in _publishers(run) if publisher.versions.newest()]
        removed = sum(publisher.versions.clean(before, publisher.needed(before)) for publisher in publishers)
        return removed + sum(_versions(run, kind).withdraw() for kind in ICEBERG_KINDS if kind not in _kinds(run))


FEATURE = Iceberg()


def _kinds(run: TableRun) -> tuple[TableKind, ...]:
    """Tables of the row that have metadata; none of a row without `iceberg`."""
    return tuple(kind for kind in ICEBERG_KINDS if run.spec.iceberg and (kind == "replica" or run.spec.history))


def _tables(run: TableRun) -> Iterator[tuple[str, MetadataVersions]]:
    """Paths of the row's Delta tables that have metadata, if they exist, and the metadata."""
    storage = run.runtime.storage
    for kind in _kinds(run):
        if DeltaCommits(storage).exists(path := getattr(run.layout, kind)):
            yield path, _versions(run, kind)


def _versions(run: TableRun, kind: TableKind) -> MetadataVersions:
    return MetadataVersions(run.runtime.storage, iceberg_folder(run.job.roots.lake, run.spec, kind))


def _publishers(run: TableRun) -> Iterator[IcebergPublisher]:
    """
    Raises:
        FatalError: `PACKAGE_MISSING`.
    """
    for path, versions in _tables(run):
        if importlib.util.find_spec("pyiceberg") is None:  # not imported: that takes a second
            raise package_missing("a job with `iceberg`", "pyiceberg")
        yield IcebergPublisher(run.runtime.storage, path, versions, format_version(run.spec))


def _behind(error: Exception) -> RunWarning:
    reason = str(error) if isinstance(error, GddlError) else f"{type(error).__name__}: {str(error)[:300]}"
    message = f"Iceberg readers see an older version than Delta readers: {reason}"
    return RunWarning(code=ICEBERG_BEHIND, message=message, count=1)
