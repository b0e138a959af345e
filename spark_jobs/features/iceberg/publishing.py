"""Iceberg snapshots of a Delta table's files, by pyiceberg, from the Delta log alone."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.features.iceberg import REFUSED_CODE
from airflow_gddl.contract.layout import join, table_url
from airflow_gddl.stores import Storage
from spark_jobs.tables.iceberg_metadata import DELTA_VERSION, MetadataVersions, StoreIO, VersionedCatalog, parsed

if TYPE_CHECKING:
    from deltalake import DeltaTable


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
        paths = []
        for version in {self.versions.newest(), self.versions.current_at(before)} - {0}:
            snapshot = self._table(version)[0].metadata.current_snapshot()
            if snapshot is not None:
                manifests = snapshot.manifests(StoreIO(self.storage))
                paths += [snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)]
        return paths

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
        removed = [file for path, file in stored.items() if path not in files]
        new = [file for path, file in files.items() if path not in stored]
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({_MAPPING: mapping, DELTA_VERSION: str(delta.version())})
        if removed or new or transaction.table_metadata.current_snapshot() is None:
            with transaction.update_snapshot().overwrite() as snapshot:
                for file in removed:
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
                raise FatalError(REFUSED_CODE, what, where=self.source, remedy=remedy) from error
        _partition(transaction, by)
        return transaction

    def _without_files(self, table: Any) -> Any:
        none: dict[str, Any] = {"snapshots": [], "refs": {}, "current_snapshot_id": None, "snapshot_log": []}
        return self._opened(table.metadata.model_copy(update=none), table.catalog)


def _with_columns(transaction: Any, dropped: Sequence[str], columns: pa.Schema) -> Any:
    if dropped:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in dropped:
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
        raise FatalError(REFUSED_CODE, what, where=path, remedy=remedy)


def columns_of(delta: DeltaTable) -> pa.Schema:
    """Columns as Arrow types, all of them optional."""
    return pa.schema([field.with_nullable(True) for field in pa.schema(delta.schema().to_arrow())])


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
        raise FatalError(REFUSED_CODE, what, where=source, remedy="gddl maintain, or a rebuild")
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
