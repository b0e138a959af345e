"""Updates Iceberg metadata after each commit of a table, with a warning if that fails."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.delta.commits import DeltaCommits

DELTA_VERSION = "gddl.delta-version"
"""Table property: version of the Delta table that the metadata is of."""
_VERSION = re.compile(r"v(\d+)\.metadata\.json")


@dataclass(frozen=True)
class MetadataVersions:
    """Attributes:
    table: folder of the Iceberg table.
    """

    storage: Storage
    table: str

    @property
    def folder(self) -> str:
        return join(self.table, "metadata")

    def path(self, version: int) -> str:
        return join(self.folder, f"v{version}.metadata.json")

    @property
    def _hint(self) -> str:
        return join(self.folder, "version-hint.text")

    def newest(self) -> int:
        """Number of the newest version; 0: there is none. The hint may be one behind, or lost."""
        version = self._hinted()
        if version is None:
            names = (_VERSION.fullmatch(found.name) for found in self.storage.list(self.folder))
            version = max((int(match[1]) for match in names if match), default=0)
        while self.storage.stat(self.path(version + 1)) is not None:
            version += 1
        return version

    def read(self, version: int) -> bytes:
        return self.storage.read(self.path(version))

    def delta_version(self) -> int | None:
        """Of the newest version; null: there is none."""
        newest = self.newest()
        if not newest:
            return None
        found = json.loads(self.read(newest)).get("properties", {}).get(DELTA_VERSION)
        return None if found is None else int(found)

    def create(self, version: int, metadata: bytes) -> bool:
        """False: another writer made this version."""
        made = self.storage.create_once(self.path(version), metadata)
        if made:
            self.point(version)
        return made

    def point(self, version: int) -> None:
        """Set the hint to this version."""
        if self._hinted() != version:
            self.storage.write(self._hint, str(version).encode())

    def _hinted(self) -> int | None:
        try:
            return int(self.storage.read(self._hint))
        except (FileNotFoundError, ValueError):
            return None

    def withdraw(self) -> int:
        """Remove the metadata, so that no reader opens files that will be removed; returns its number of files."""
        found = [file.path for file in self.storage.list(self.folder)]
        self.storage.delete(self._hint)
        self.storage.delete(*found)
        return len(found)

    def clean(self, now: datetime, keep: timedelta, needed: Iterable[str]) -> int:
        """Remove files that the newest version does not need, once they are old enough; returns their number.

        Args:
            needed: paths of the manifests and of the list of them.
        """
        kept = {self._hint, self.path(self.newest()), *needed}
        old = [
            found.path
            for found in self.storage.list(self.folder)
            if found.path not in kept and now - datetime.fromtimestamp(found.modified, UTC) > keep
        ]
        self.storage.delete(*old)
        return len(old)


@dataclass
class VersionedCatalog:
    """The part of pyiceberg's `Catalog` that a `Table` commits through.

    Attributes:
        base: version that the table was read from.
        lost: another writer committed first.
    """

    versions: MetadataVersions
    base: int
    lost: bool = False

    def supports_server_side_planning(self) -> bool:
        return False

    def _delete_old_metadata(self, *_: Any) -> None:
        """Called by pyiceberg after a commit; `MetadataVersions.clean` removes what is old enough."""

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:  # noqa: ARG002 - the version decides
        """Write the next version, with no snapshot but the newest one."""
        update, tables = importlib.import_module("pyiceberg.table.update"), importlib.import_module("pyiceberg.table")
        metadata = update.update_table_metadata(table.metadata, updates)
        old = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id != metadata.current_snapshot_id]
        if old:
            metadata = update.update_table_metadata(metadata, (update.RemoveSnapshotsUpdate(snapshot_ids=old),))
        self.lost = not self.versions.create(self.base + 1, metadata.model_dump_json().encode())
        location = self.versions.path(self.base + 1)
        return tables.CommitTableResponse(metadata=metadata, metadata_location=location)


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
