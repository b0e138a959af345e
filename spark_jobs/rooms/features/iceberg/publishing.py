"""Iceberg snapshots of a Delta table's files, by pyiceberg, from the Delta log alone."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_gddl.contract.codes import ICEBERG_CONTENDED
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.features.iceberg import V2, V3
from airflow_gddl.stores import Storage
from spark_jobs.rooms.features.iceberg.evolution import Evolution, partition_of
from spark_jobs.rooms.features.iceberg.manifests import DATA, DELETES, stored_entries
from spark_jobs.rooms.features.iceberg.readable import ActiveFile, active_files
from spark_jobs.rooms.features.iceberg.version_3 import NextVersion
from spark_jobs.tables.iceberg_metadata import (
    DELTA_TABLE,
    DELTA_VERSION,
    MetadataVersions,
    StoreIO,
    VersionedCatalog,
    parsed,
)
from spark_jobs.tables.replayed_log import ReplayedLog, replayed

_ATTEMPTS = 3


@dataclass(frozen=True)
class IcebergPublisher:
    """Attributes:
    source: path of the Delta table.
    versions: of the Iceberg table.
    format_version: of the metadata to write, 2 or 3.
    """

    storage: Storage
    source: str
    versions: MetadataVersions
    format_version: int = V2

    def publish(self) -> bool:
        """Update the metadata to the Delta table's newest version; False: it is current.

        The metadata is read before the Delta table, so that of two writers the later version wins.

        Raises:
            FatalError: `ICEBERG_REFUSED`: Iceberg can't represent the Delta table.
            RetriableError: `ICEBERG_CONTENDED`.
        """
        for _ in range(_ATTEMPTS):
            base = self.versions.newest()
            held = json.loads(self.versions.read(base)) if base else {}
            log = replayed(self.storage, self.source)
            if log is None:
                raise FileNotFoundError(self.source)
            if self._is_current(held, log):
                self.versions.point(base)
                return False
            if self._has_written(base, held, log):
                return True
        raise RetriableError(
            ICEBERG_CONTENDED, "others kept changing its metadata", where=self.versions.folder, remedy="run again"
        )

    def needed(self, before: datetime) -> list[str]:
        """Paths of what the newest version and the one current then need of the metadata's folder: manifests, lists of
        them, and files of deletion vectors."""
        paths, io = [], StoreIO(self.storage)
        for version in {self.versions.newest(), self.versions.current_at(before)} - {0}:
            snapshot = parsed(self.versions.read(version)).current_snapshot()
            if snapshot is not None:
                manifests = snapshot.manifests(io)
                paths += [snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)]
                paths += [entry.data_file.file_path for entry in stored_entries(snapshot, io, DELETES)]
        return paths

    def _is_current(self, held: Mapping[str, Any], log: ReplayedLog) -> bool:
        """Whether metadata is of this version of the Delta table."""
        known, wanted = held.get("properties", {}), (self.format_version, str(log.version), log.metadata["id"])
        return (held.get("format-version"), known.get(DELTA_VERSION), known.get(DELTA_TABLE)) == wanted

    def _has_written(self, base: int, held: Mapping[str, Any], log: ReplayedLog) -> bool:
        """Write the next version; false: another writer made it first."""
        evolution = Evolution(self.storage, self.source, self.versions)
        if self.format_version == V3:
            return self.versions.create(base + 1, NextVersion(evolution, log, held).written())
        files = {file.path: file for file in active_files(self.storage, self.source, log)}
        catalog = VersionedCatalog(self.versions, base)
        # One of version 3 is written afresh.
        is_v2 = held.get("format-version") == V2
        metadata = parsed(json.dumps(held).encode()) if is_v2 else evolution.empty()
        _commit(evolution.evolved(metadata, catalog, log), files, StoreIO(self.storage))
        return not catalog.lost


def _commit(transaction: Any, files: Mapping[str, ActiveFile], io: StoreIO) -> None:
    """Commit a version that has these files, by path."""
    newest = transaction.table_metadata.current_snapshot()
    entries = () if newest is None else stored_entries(newest, io, DATA)
    stored = {entry.data_file.file_path: entry.data_file for entry in entries}
    removed = [file for path, file in stored.items() if path not in files]
    new = [file for path, file in files.items() if path not in stored]
    if removed or new or newest is None:
        with transaction.update_snapshot().overwrite() as snapshot:
            for file in removed:
                snapshot.delete_data_file(file)
            for file in new:
                snapshot.append_data_file(_data_file(file, transaction.table_metadata))
    transaction.commit_transaction()


def _data_file(file: ActiveFile, metadata: Any) -> Any:
    """Without column bounds, so that the metadata contains no values but those of partitions."""
    manifest = importlib.import_module("pyiceberg.manifest")
    spec = metadata.spec()
    made = manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=file.path,
        file_format=manifest.FileFormat.PARQUET,
        partition=partition_of(file.partition, spec, metadata.schema()),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        equality_ids=None,
    )
    made.spec_id = spec.spec_id
    return made
