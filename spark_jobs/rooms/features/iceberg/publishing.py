"""Iceberg snapshots of a Delta table's files, by pyiceberg, from the Delta log alone."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_gddl.contract.codes import ICEBERG_CONTENDED, ICEBERG_REFUSED
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.features.iceberg import V2, V3
from airflow_gddl.contract.layout import table_url
from airflow_gddl.stores import Storage
from spark_jobs.rooms.features.iceberg.evolution import NAME_MAPPING, Evolution, name_mapping, partition_of
from spark_jobs.rooms.features.iceberg.readable import ROWS_REMEDY, absolute, arrow_columns, require_plain
from spark_jobs.rooms.features.iceberg.version_3 import NextVersion, is_current, stored_vectors
from spark_jobs.tables.iceberg_metadata import DELTA_VERSION, MetadataVersions, StoreIO, VersionedCatalog, parsed
from spark_jobs.tables.replayed_log import replayed

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ATTEMPTS = 3


@dataclass(frozen=True)
class ActiveFile:
    """A data file of the table's version.

    Attributes:
        path: absolute.
        partition: values of the partition columns in their order, which the file lacks.
    """

    path: str
    size: int
    rows: int
    partition: tuple[Any, ...] = ()


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
            done = self._as_v3(base) if self.format_version == V3 else self._as_v2(base)
            if done is not None:
                return done
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
                paths += stored_vectors(snapshot, io)
        return paths

    @property
    def _evolution(self) -> Evolution:
        return Evolution(self.storage, self.source, self.versions)

    def _as_v3(self, base: int) -> bool | None:
        """None: another writer made the next version first."""
        held = json.loads(self.versions.read(base)) if base else {}
        log = replayed(self.storage, self.source)
        if log is None:
            raise FileNotFoundError(self.source)
        if is_current(held, log):
            self.versions.point(base)
            return False
        metadata = NextVersion(self._evolution, log, held).written()
        return True if self.versions.create(base + 1, metadata) else None

    def _as_v2(self, base: int) -> bool | None:
        """None: another writer made the next version first."""
        import deltalake  # noqa: PLC0415 - most runs on Spark don't need it

        table, catalog = self._table(base)
        delta = deltalake.DeltaTable(table_url(self.source), storage_options=self.storage.options_of(self.source))
        if base and table.metadata.properties.get(DELTA_VERSION) == str(delta.version()):
            self.versions.point(base)
            return False
        features, metadata = delta.protocol().reader_features or (), delta.metadata()
        require_plain(delta.schema(), features, metadata.configuration or {}, metadata.partition_columns, self.source)
        self._commit(table, delta)
        return None if catalog.lost else True

    def _table(self, base: int) -> tuple[Any, VersionedCatalog]:
        """A table of version 2; one of version 3 is written afresh."""
        evolution, catalog = self._evolution, VersionedCatalog(self.versions, base)
        held = parsed(self.versions.read(base)) if base else None
        metadata = held if held is not None and held.format_version == V2 else evolution.empty()
        return evolution.opened(metadata, catalog), catalog

    def _commit(self, table: Any, delta: DeltaTable) -> None:
        columns, by = arrow_columns(delta.schema()), delta.metadata().partition_columns
        transaction = self._evolution.evolved(table, columns, by)
        files = active_files(delta, self.source)
        stored = _files_of(transaction, table.io)
        removed = [file for path, file in stored.items() if path not in files]
        new = [file for path, file in files.items() if path not in stored]
        mapping = name_mapping(transaction, delta.metadata().configuration or {})
        transaction.set_properties({NAME_MAPPING: mapping, DELTA_VERSION: str(delta.version())})
        if removed or new or transaction.table_metadata.current_snapshot() is None:
            with transaction.update_snapshot().overwrite() as snapshot:
                for file in removed:
                    snapshot.delete_data_file(file)
                for file in new:
                    snapshot.append_data_file(_data_file(file, transaction.table_metadata))
        transaction.commit_transaction()


def active_files(delta: DeltaTable, source: str) -> dict[str, ActiveFile]:
    """Data files of the version, by path.

    Raises:
        FatalError: `ICEBERG_REFUSED`: the log lacks the row count of a file.
    """
    by = [f"partition.{name}" for name in delta.metadata().partition_columns]
    actions = pa.table(delta.get_add_actions(flatten=True))
    rows = actions.select(["path", "size_bytes", "num_records", *by]).to_pylist()
    unknown = [row["path"] for row in rows if row["num_records"] is None]
    if unknown:
        what = f"the Delta log has no row count for {len(unknown)} files, e.g. {unknown[0]}"
        raise FatalError(ICEBERG_REFUSED, what, where=source, remedy=ROWS_REMEDY)
    files = (
        ActiveFile(absolute(source, r["path"]), r["size_bytes"], r["num_records"], tuple(r[name] for name in by))
        for r in rows
    )
    return {file.path: file for file in files}


def _files_of(transaction: Any, io: StoreIO) -> Mapping[str, Any]:
    """Data files of the metadata's newest snapshot, by path."""
    snapshot = transaction.table_metadata.current_snapshot()
    if snapshot is None:
        return {}
    entries = (entry for manifest in snapshot.manifests(io) for entry in manifest.fetch_manifest_entry(io))
    return {entry.data_file.file_path: entry.data_file for entry in entries}


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
