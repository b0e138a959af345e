"""Schema and partitions of an Iceberg table, which follow those of a Delta table, by pyiceberg's model of version 2."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.codes import ICEBERG_REFUSED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.stores import Storage
from spark_jobs.rules.arrays import schema_of
from spark_jobs.tables.iceberg_metadata import DELTA_TABLE, DELTA_VERSION, MetadataVersions, StoreIO, VersionedCatalog
from spark_jobs.tables.replayed_log import ReplayedLog
from spark_jobs.tables.row_ids import ID_COLUMN, VERSION_COLUMN

_NAME_MAPPING = "schema.name-mapping.default"
_MATERIALIZED = {
    ID_COLUMN: 2_147_483_540,
    VERSION_COLUMN: 2_147_483_539,
}
"""Properties of a Delta table that name columns of its data files, which its schema lacks, and Iceberg's numbers of
them: `_row_id` and `_last_updated_sequence_number`."""


@dataclass(frozen=True)
class Evolution:
    """Attributes:
    source: path of the Delta table.
    versions: of the Iceberg table.
    """

    storage: Storage
    source: str
    versions: MetadataVersions

    def _opened(self, metadata: Any, catalog: VersionedCatalog) -> Any:
        """pyiceberg's `Table`."""
        table = importlib.import_module("pyiceberg.table").Table
        name = ("gddl", self.source)
        return table(name, metadata, self.versions.path(catalog.base), StoreIO(self.storage), catalog)

    def empty(self) -> Any:
        """pyiceberg's `TableMetadata` of a new table."""
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

    def evolved(self, metadata: Any, catalog: VersionedCatalog, log: ReplayedLog) -> Any:
        """A transaction whose schema, partitions and properties are those of this version of the Delta table.

        Where Iceberg can't evolve the schema, all columns get new ids. Then, and with other partitions, it begins
        without files: a rebuild has rewritten them, and those that stayed are named again.

        Args:
            metadata: pyiceberg's `TableMetadata`.

        Raises:
            FatalError: `ICEBERG_REFUSED`: a column has a type that Iceberg lacks.
        """
        table, columns, by = self._opened(metadata, catalog), schema_of(log.schema).arrow, log.partition_by
        errors, schema = importlib.import_module("pyiceberg.exceptions"), metadata.schema()
        misfits = (errors.ValidationError, errors.ResolveError, ValueError, TypeError)
        held, wanted = [field.name for field in schema.fields], set(columns.names)
        kept = [schema.find_column_name(field.source_id) for field in metadata.spec().fields] == list(by)
        try:
            begun = table.transaction() if kept else self._without_files(table).transaction()
            transaction = _with_columns(begun, [name for name in held if name not in wanted], columns)
        except misfits:
            try:
                transaction = _with_columns(self._without_files(table).transaction(), held, columns)
            except misfits as error:
                what = f"a column is of a type that Iceberg lacks: {error}"
                remedy = "exclude the column, or set iceberg: false"
                raise FatalError(ICEBERG_REFUSED, what, where=self.source, remedy=remedy) from error
        _partition(transaction, by)
        mapping = _name_mapping(transaction, log.properties)
        described = {DELTA_VERSION: str(log.version), DELTA_TABLE: log.metadata["id"]}
        transaction.set_properties({_NAME_MAPPING: mapping, **described})
        return transaction

    def _without_files(self, table: Any) -> Any:
        none: dict[str, Any] = {"snapshots": [], "refs": {}, "current_snapshot_id": None, "snapshot_log": []}
        return self._opened(table.metadata.model_copy(update=none), table.catalog)


def _name_mapping(transaction: Any, properties: Mapping[str, str | None]) -> str:
    """Iceberg's numbers of the columns of data files, which have none, by name, as JSON.

    Args:
        properties: of the Delta table; the columns of its row tracking are named, too, since pyiceberg reads no file
            with a column that isn't.
    """
    mapping = json.loads(transaction.table_metadata.schema().name_mapping.model_dump_json())
    mapping += [
        {"field-id": n, "names": [properties[name]]} for name, n in _MATERIALIZED.items() if properties.get(name)
    ]
    return json.dumps(mapping)


def partition_of(values: Sequence[Any], spec: Any, schema: Any) -> Any:
    """pyiceberg's record of the values of the partition columns."""
    typedef, partitioning = (importlib.import_module(f"pyiceberg.{name}") for name in ("typedef", "partitioning"))
    record = [
        None if value is None else partitioning.partition_record_value(field, value, schema)
        for field, value in zip(spec.fields, values, strict=True)
    ]
    return typedef.Record(*record)


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
