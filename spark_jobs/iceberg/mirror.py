"""The newest version of a replica as an Iceberg snapshot of the same data files."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.iceberg.publish import DELTA_VERSION, MetadataVersions, VersionedCatalog


@dataclass(frozen=True)
class StoreIO:
    """pyiceberg's `FileIO` over a `Storage`."""

    storage: Storage
    properties: Mapping[str, str] = field(default_factory=dict)

    def new_input(self, location: str) -> StoreFile:
        return StoreFile(self.storage, location)

    def new_output(self, location: str) -> StoreFile:
        return StoreFile(self.storage, location)

    def delete(self, location: Any) -> None:
        self.storage.delete(location if isinstance(location, str) else location.location)


@dataclass(frozen=True)
class StoreFile:
    """pyiceberg's `InputFile` and `OutputFile`."""

    storage: Storage
    location: str

    def __len__(self) -> int:
        found = self.storage.stat(self.location)
        if found is None:
            raise FileNotFoundError(self.location)
        return found.size

    def exists(self) -> bool:
        return self.storage.stat(self.location) is not None

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - every stream here is seekable
        return io.BytesIO(self.storage.read(self.location))

    def to_input_file(self) -> StoreFile:
        return self

    def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002 - names of manifests are unique
        return _Written(self)


class _Written(io.BytesIO):
    """Bytes that are written to the store when closed."""

    def __init__(self, file: StoreFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.storage.write(self._file.location, self.getvalue())
        super().close()


_READABLE = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Delta features that need nothing beyond the data files."""
_ATTEMPTS = 3
_MAPPING = "schema.name-mapping.default"


@dataclass(frozen=True)
class ActiveFile:
    """A data file of the replica's version; `path` is absolute."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class Mirror:
    """Attributes:
    replica: path of the Delta table.
    versions: of the Iceberg table.
    """

    storage: Storage
    replica: str
    versions: MetadataVersions

    def publish(self) -> bool:
        """Update the metadata to the replica's newest version; False: it is current.

        The metadata is read before the replica, so that of two writers the later version wins.

        Raises:
            FatalError: `ICEBERG_REFUSED`: Iceberg can't represent the Delta table.
            RetriableError: `ICEBERG_CONTENDED`.
        """
        for _ in range(_ATTEMPTS):
            base = self.versions.newest()
            table, catalog = self._table(base)
            delta = DeltaTable(self.replica, storage_options=self.storage.options_of(self.replica))
            if base and table.metadata.properties.get(DELTA_VERSION) == str(delta.version()):
                self.versions.point(base)
                return False
            require_plain(delta, self.replica)
            self._commit(table, delta)
            if not catalog.lost:
                return True
        raise RetriableError(
            "ICEBERG_CONTENDED", "others kept changing its metadata", where=self.versions.folder, remedy="run again"
        )

    def needed(self) -> list[str]:
        """Paths of the manifests of the newest version, and of the list of them."""
        base = self.versions.newest()
        snapshot = self._table(base)[0].metadata.current_snapshot() if base else None
        if snapshot is None:
            return []
        manifests = snapshot.manifests(StoreIO(self.storage))
        return [snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)]

    def _table(self, base: int) -> tuple[Any, VersionedCatalog]:
        metadata_of = importlib.import_module("pyiceberg.table.metadata").TableMetadataUtil
        metadata = metadata_of.parse_raw(self.versions.read(base).decode()) if base else self._empty()
        catalog = VersionedCatalog(self.versions, base)
        return self._opened(metadata, catalog), catalog

    def _opened(self, metadata: Any, catalog: VersionedCatalog) -> Any:
        table = importlib.import_module("pyiceberg.table").Table
        name = ("gddl", self.replica)
        return table(name, metadata, self.versions.path(catalog.base), StoreIO(self.storage), catalog)

    def _empty(self) -> Any:
        of, partitioning, sorting, schema = (
            importlib.import_module(f"pyiceberg.{name}")
            for name in ("table.metadata", "partitioning", "table.sorting", "schema")
        )
        return of.new_table_metadata(
            schema=schema.Schema(),
            partition_spec=partitioning.UNPARTITIONED_PARTITION_SPEC,
            sort_order=sorting.UNSORTED_SORT_ORDER,
            location=self.versions.table,
            properties={"format-version": "2"},
        )

    def _commit(self, table: Any, delta: DeltaTable) -> None:
        columns = columns_of(delta)
        transaction = self._evolved(table, columns)
        files = active_files(delta, self.replica)
        stored = _files_of(transaction, table.io)
        gone = [file for path, file in stored.items() if path not in files]
        new = [file for path, file in files.items() if path not in stored]
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({_MAPPING: mapping, DELTA_VERSION: str(delta.version())})
        if gone or new or transaction.table_metadata.current_snapshot() is None:
            with transaction.update_snapshot().overwrite() as snapshot:
                for file in gone:
                    snapshot.delete_data_file(file)
                for file in new:
                    snapshot.append_data_file(_data_file(file))
        transaction.commit_transaction()

    def _evolved(self, table: Any, columns: pa.Schema) -> Any:
        """A transaction whose schema has these columns.

        If Iceberg can't evolve the schema, start with a new table: a full refresh has rewritten all files.

        Raises:
            FatalError: `ICEBERG_REFUSED`: a column has a type that Iceberg lacks.
        """
        wanted, errors = {field.name for field in columns}, importlib.import_module("pyiceberg.exceptions")
        if wanted.issuperset(field.name for field in table.metadata.schema().fields):
            transaction = table.transaction()
            try:
                with transaction.update_schema(allow_incompatible_changes=True) as update:
                    update.union_by_name(columns)
            except (errors.ValidationError, errors.ResolveError, ValueError, TypeError) as error:
                if not table.metadata.schema().fields:
                    what = f"a column is of a type that Iceberg lacks: {error}"
                    remedy = "exclude the column, or set iceberg: false"
                    raise FatalError("ICEBERG_REFUSED", what, where=self.replica, remedy=remedy) from error
            else:
                return transaction
        return self._evolved(self._opened(self._empty(), table.catalog), columns)


def require_plain(delta: DeltaTable, path: str) -> None:
    """
    Raises:
        FatalError: `ICEBERG_REFUSED`: the data files alone don't represent the table.
    """
    features = set(delta.protocol().reader_features or ()) - _READABLE
    metadata = delta.metadata()
    if (metadata.configuration or {}).get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if metadata.partition_columns:
        features.add("partition columns, which data files lack")
    if features:
        what = f"the Delta table has {', '.join(sorted(features))}"
        remedy = "drop the feature (ALTER TABLE ... DROP FEATURE), or set iceberg: false"
        raise FatalError("ICEBERG_REFUSED", what, where=path, remedy=remedy)


def columns_of(delta: DeltaTable) -> pa.Schema:
    """Columns as Arrow types, all of them optional."""
    return pa.schema([field.with_nullable(True) for field in pa.schema(delta.schema().to_arrow())])


def active_files(delta: DeltaTable, replica: str) -> dict[str, ActiveFile]:
    """Data files of the version, by path.

    Raises:
        FatalError: `ICEBERG_REFUSED`: the log lacks the row count of a file.
    """
    rows = pa.table(delta.get_add_actions(flatten=True)).select(["path", "size_bytes", "num_records"]).to_pylist()
    unknown = [row["path"] for row in rows if row["num_records"] is None]
    if unknown:
        what = f"the Delta log has no row count for {len(unknown)} files, e.g. {unknown[0]}"
        raise FatalError("ICEBERG_REFUSED", what, where=replica, remedy="gddl maintain, or a full refresh")
    found = [ActiveFile(_absolute(replica, r["path"]), r["size_bytes"], r["num_records"]) for r in rows]
    return {file.path: file for file in found}


def _absolute(replica: str, path: str) -> str:
    path = unquote(path)
    return path if "://" in path or path.startswith("/") else join(replica, path)


def _files_of(transaction: Any, io: StoreIO) -> Mapping[str, Any]:
    """Data files of the metadata's newest snapshot, by path."""
    snapshot = transaction.table_metadata.current_snapshot()
    if snapshot is None:
        return {}
    entries = (entry for manifest in snapshot.manifests(io) for entry in manifest.fetch_manifest_entry(io))
    return {entry.data_file.file_path: entry.data_file for entry in entries}


def _data_file(file: ActiveFile) -> Any:
    """Without column bounds, so that the metadata contains no values."""
    manifest, typedef = importlib.import_module("pyiceberg.manifest"), importlib.import_module("pyiceberg.typedef")
    made = manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=file.path,
        file_format=manifest.FileFormat.PARQUET,
        partition=typedef.Record(),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        equality_ids=None,
    )
    made.spec_id = 0
    return made
