"""Iceberg metadata of replicas and histories, for readers that don't read Delta. Needs pyiceberg.

Why so: docs/decisions/delta-files-and-commits.md.

After each commit of a table, the newest version of its replica, and of its history, becomes an Iceberg snapshot of the
same data files; a failure is a warning. Catalogs are pointed to it with their other entries (`catalogs.registrar`).
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.extensions import ICEBERG_KINDS
from airflow_gddl.contract.layout import Layout, join, table_url
from airflow_gddl.contract.packages import package_missing
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.tables.delta_log import DeltaCommits

if TYPE_CHECKING:
    from deltalake import DeltaTable

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
        FatalError: `PACKAGE_MISSING`.
    """
    for path, versions in _tables(storage, layout, spec):
        if importlib.util.find_spec("pyiceberg") is None:  # not imported: that takes a second
            raise package_missing("a job with `iceberg: true`", "pyiceberg")
        yield IcebergPublisher(storage, path, versions)


def _behind(error: Exception) -> RunWarning:
    reason = str(error) if isinstance(error, GddlError) else f"{type(error).__name__}: {str(error)[:300]}"
    message = f"Iceberg readers see an older version than Delta readers: {reason}"
    return RunWarning(code="ICEBERG_BEHIND", message=message, count=1)


_READABLE = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Delta features that need nothing beyond the data files."""
_ATTEMPTS = 3
_MAPPING = "schema.name-mapping.default"


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
    """

    storage: Storage
    source: str
    versions: MetadataVersions

    def publish(self) -> bool:
        """Update the metadata to the Delta table's newest version; False: it is current.

        The metadata is read before the Delta table, so that of two writers the later version wins.

        Raises:
            FatalError: `ICEBERG_REFUSED`: Iceberg can't represent the Delta table.
            RetriableError: `ICEBERG_CONTENDED`.
        """
        import deltalake  # noqa: PLC0415 - most runs on Spark don't need it

        for _ in range(_ATTEMPTS):
            base = self.versions.newest()
            table, catalog = self._table(base)
            delta = deltalake.DeltaTable(table_url(self.source), storage_options=self.storage.options_of(self.source))
            if base and table.metadata.properties.get(DELTA_VERSION) == str(delta.version()):
                self.versions.point(base)
                return False
            require_plain(delta, self.source)
            self._commit(table, delta)
            if not catalog.lost:
                return True
        raise RetriableError(
            "ICEBERG_CONTENDED", "others kept changing its metadata", where=self.versions.folder, remedy="run again"
        )

    def needed(self, before: datetime) -> list[str]:
        """Paths of the manifests, and of the lists of them, of the newest version and of the one current then."""
        found = []
        for version in {self.versions.newest(), self.versions.current_at(before)} - {0}:
            snapshot = self._table(version)[0].metadata.current_snapshot()
            if snapshot is not None:
                manifests = snapshot.manifests(StoreIO(self.storage))
                found += [snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)]
        return found

    def _table(self, base: int) -> tuple[Any, VersionedCatalog]:
        metadata = parsed(self.versions.read(base)) if base else self._empty()
        catalog = VersionedCatalog(self.versions, base)
        return self._opened(metadata, catalog), catalog

    def _opened(self, metadata: Any, catalog: VersionedCatalog) -> Any:
        table = importlib.import_module("pyiceberg.table").Table
        name = ("gddl", self.source)
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
        columns, by = columns_of(delta), delta.metadata().partition_columns
        transaction = self._evolved(table, columns, by)
        files = active_files(delta, self.source)
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
                    snapshot.append_data_file(_data_file(file, transaction.table_metadata))
        transaction.commit_transaction()

    def _evolved(self, table: Any, columns: pa.Schema, by: Sequence[str]) -> Any:
        """A transaction whose schema has these columns, and whose new files are partitioned by some of them.

        Where Iceberg can't evolve the schema, all columns get new ids. Then, and with other partitions, it begins
        without files: a rebuild has rewritten them, and those that stayed are named again.

        Raises:
            FatalError: `ICEBERG_REFUSED`: a column has a type that Iceberg lacks.
        """
        errors, schema = importlib.import_module("pyiceberg.exceptions"), table.metadata.schema()
        misfits = (errors.ValidationError, errors.ResolveError, ValueError, TypeError)
        held, wanted = [field.name for field in schema.fields], set(columns.names)
        kept = [schema.find_column_name(field.source_id) for field in table.metadata.spec().fields] == list(by)
        try:
            begun = table.transaction() if kept else self._without_files(table).transaction()
            transaction = _with_columns(begun, [name for name in held if name not in wanted], columns)
        except misfits:
            try:
                transaction = _with_columns(self._without_files(table).transaction(), held, columns)
            except misfits as error:
                what = f"a column is of a type that Iceberg lacks: {error}"
                remedy = "exclude the column, or set iceberg: false"
                raise FatalError("ICEBERG_REFUSED", what, where=self.source, remedy=remedy) from error
        _partition(transaction, by)
        return transaction

    def _without_files(self, table: Any) -> Any:
        none: dict[str, Any] = {"snapshots": [], "refs": {}, "current_snapshot_id": None, "snapshot_log": []}
        return self._opened(table.metadata.model_copy(update=none), table.catalog)


def _with_columns(transaction: Any, gone: Sequence[str], columns: pa.Schema) -> Any:
    if gone:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in gone:
                update.delete_column((name,))
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        update.union_by_name(columns)
    return transaction


def _partition(transaction: Any, by: Sequence[str]) -> None:
    """Partition new files by the values of these columns."""
    identity = importlib.import_module("pyiceberg.transforms").IdentityTransform()
    metadata = transaction.table_metadata
    ids = [metadata.schema().find_field(name).field_id for name in by]
    held = metadata.spec().fields
    if [field.source_id for field in held] == ids:
        return
    with transaction.update_spec() as update:
        for field in held:
            update.remove_field(field.name)
    with transaction.update_spec() as update:
        for name in by:
            update.add_field(name, identity, name)


def require_plain(delta: DeltaTable, path: str) -> None:
    """
    Raises:
        FatalError: `ICEBERG_REFUSED`: the data files alone don't represent the table.
    """
    features = set(delta.protocol().reader_features or ()) - _READABLE
    metadata = delta.metadata()
    if (metadata.configuration or {}).get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    kinds = {field.name: str(field.type.type) for field in delta.schema().fields if hasattr(field.type, "type")}
    if any(kinds.get(name) == "binary" for name in metadata.partition_columns):
        features.add("a binary partition column")
    if features:
        what = f"the Delta table has {', '.join(sorted(features))}"
        remedy = "drop the feature (ALTER TABLE ... DROP FEATURE), or set iceberg: false"
        raise FatalError("ICEBERG_REFUSED", what, where=path, remedy=remedy)


def columns_of(delta: DeltaTable) -> pa.Schema:
    """Columns as Arrow types, all of them optional."""
    return pa.schema([field.with_nullable(True) for field in pa.schema(delta.schema().to_arrow())])


def active_files(delta: DeltaTable, source: str) -> dict[str, ActiveFile]:
    """Data files of the version, by path.

    Raises:
        FatalError: `ICEBERG_REFUSED`: the log lacks the row count of a file.
    """
    by = [f"partition.{name}" for name in delta.metadata().partition_columns]
    found = pa.table(delta.get_add_actions(flatten=True))
    rows = found.select(["path", "size_bytes", "num_records", *by]).to_pylist()
    unknown = [row["path"] for row in rows if row["num_records"] is None]
    if unknown:
        what = f"the Delta log has no row count for {len(unknown)} files, e.g. {unknown[0]}"
        raise FatalError("ICEBERG_REFUSED", what, where=source, remedy="gddl maintain, or a rebuild")
    files = (
        ActiveFile(_absolute(source, r["path"]), r["size_bytes"], r["num_records"], tuple(r[name] for name in by))
        for r in rows
    )
    return {file.path: file for file in files}


def _absolute(source: str, path: str) -> str:
    path = unquote(path)
    return path if "://" in path or path.startswith("/") else join(source, path)


def _files_of(transaction: Any, io: StoreIO) -> Mapping[str, Any]:
    """Data files of the metadata's newest snapshot, by path."""
    snapshot = transaction.table_metadata.current_snapshot()
    if snapshot is None:
        return {}
    entries = (entry for manifest in snapshot.manifests(io) for entry in manifest.fetch_manifest_entry(io))
    return {entry.data_file.file_path: entry.data_file for entry in entries}


def _data_file(file: ActiveFile, metadata: Any) -> Any:
    """Without column bounds, so that the metadata contains no values but those of partitions."""
    manifest, typedef, partitioning = (
        importlib.import_module(f"pyiceberg.{name}") for name in ("manifest", "typedef", "partitioning")
    )
    spec, schema = metadata.spec(), metadata.schema()
    values = [
        None if value is None else partitioning.partition_record_value(field, value, schema)
        for field, value in zip(spec.fields, file.partition, strict=True)
    ]
    made = manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=file.path,
        file_format=manifest.FileFormat.PARQUET,
        partition=typedef.Record(*values),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        equality_ids=None,
    )
    made.spec_id = spec.spec_id
    return made


DELTA_VERSION = "gddl.delta-version"
"""Table property: version of the Delta table that the metadata is of."""
SNAPSHOT = "current-snapshot-id"
"""Name under which entries of catalogs show the snapshot."""
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
        found = self.identity().get(DELTA_VERSION)
        return int(found) if found else None

    def identity(self) -> Mapping[str, str]:
        """What tells the newest version from others; empty: there is none."""
        newest = self.newest()
        if not newest:
            return {}
        found = json.loads(self.read(newest))
        version = found.get("properties", {}).get(DELTA_VERSION, "")
        return {DELTA_VERSION: version, SNAPSHOT: str(found.get("current-snapshot-id"))}

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
        if found:
            self.storage.delete(self._hint)
            self.storage.delete(*found)
        return len(found)

    def current_at(self, before: datetime) -> int:
        """Number of the version that was the newest one then, or of the oldest one that is left."""
        written = {int(m[1]): f.modified for f in self.storage.list(self.folder) if (m := _VERSION.fullmatch(f.name))}
        old = [version for version, modified in written.items() if modified < before.timestamp()]
        return max(old) if old else min(written, default=0)

    def clean(self, before: datetime, needed: Iterable[str]) -> int:
        """Remove files that no reader who began after `before` needs; returns their number.

        Metadata that a catalog wrote here is kept like our own: what was the newest then, and all since.

        Args:
            needed: paths of the manifests, and of the lists of them, of the newest version and of the one current then.
        """
        kept = {self._hint, self.path(self.newest()), self.path(self.current_at(before)), *needed}
        old = [found for found in self.storage.list(self.folder) if found.modified < before.timestamp()]
        of_catalogs = [f for f in old if f.name.endswith(".metadata.json") and not _VERSION.fullmatch(f.name)]
        kept |= {found.path for found in sorted(of_catalogs, key=lambda one: one.modified)[-1:]}
        gone = [found.path for found in old if found.path not in kept]
        self.storage.delete(*gone)
        return len(gone)


def parsed(metadata: bytes) -> Any:
    """pyiceberg's `TableMetadata`."""
    return importlib.import_module("pyiceberg.table.metadata").TableMetadataUtil.parse_raw(metadata.decode())


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
