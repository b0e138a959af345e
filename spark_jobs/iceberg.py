"""Iceberg metadata of replicas, for readers that don't read Delta (docs/decisions/207). Needs pyiceberg.

After each commit of a table, the newest version of its replica becomes an Iceberg snapshot of the same data files; a
failure is a warning.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.delta.log import DeltaCommits

if TYPE_CHECKING:
    from deltalake import DeltaTable

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
    return Mirror(storage, layout.replica, MetadataVersions(storage, layout.iceberg))


def _behind(error: Exception) -> RunWarning:
    reason = str(error) if isinstance(error, GddlError) else f"{type(error).__name__}: {str(error)[:300]}"
    message = f"Iceberg readers see an older version than Delta readers: {reason}"
    return RunWarning(code="ICEBERG_BEHIND", message=message, count=1)


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
        import deltalake  # noqa: PLC0415 - most runs on Spark don't need it

        for _ in range(_ATTEMPTS):
            base = self.versions.newest()
            table, catalog = self._table(base)
            delta = deltalake.DeltaTable(self.replica, storage_options=self.storage.options_of(self.replica))
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
