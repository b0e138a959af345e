"""Iceberg catalogs, REST and Glue, through pyiceberg: entries that point to the newest metadata of our tables.

The first registration names the metadata file. From then on the catalog writes the table's metadata itself, in the
table's folder: each commit names our snapshot, on the condition that the entry is as it was read, and swaps the pointer
(docs/decisions/delta-and-ledger.md).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from airflow_gddl.contract.codes import CATALOG_REFUSED
from airflow_gddl.contract.extensions import CatalogSpec, EntryName
from airflow_gddl.contract.iceberg_rest import code_of_rest, open_rest
from airflow_gddl.contract.layout import same_place
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.stores import Storage
from spark_jobs.rooms.catalogs.catalog_port import (
    CatalogContext,
    CatalogError,
    CatalogPort,
    DeltaTableInfo,
    Entry,
    Registration,
    refused,
)
from spark_jobs.rooms.catalogs.glue_catalog import client_of, translated
from spark_jobs.tables.iceberg_metadata import SNAPSHOT, MetadataVersions, StoreIO, parsed

_MAIN = "main"
_WITHOUT_ROW_IDS = 2
"""Format version."""
_DANGLING = Entry(location="", columns={}, problem="its metadata is gone", is_dangling=True)
"""REST catalogs answer for such an entry that there is none, and list it."""
Guard = Callable[[], AbstractContextManager[None]]


class IcebergCatalog:
    """See `CatalogPort`. An entry shows no columns of its own: they are those of the metadata that it points to.

    Args:
        catalog: pyiceberg's.
        guard: context of each request, which translates errors of the catalog's client.
    """

    alters = frozenset({"location", "properties"})

    def __init__(self, catalog: Any, storage: Storage, guard: Guard = nullcontext) -> None:
        self._catalog, self._storage, self._guard = catalog, storage, guard
        self._databases: set[str] = set()

    def entry_of(self, info: DeltaTableInfo, properties: Mapping[str, str]) -> Entry:
        return Entry(location=same_place(info.location), columns={}, properties={**properties, **info.properties})

    def read(self, name: EntryName) -> Entry | None:
        errors = importlib.import_module("pyiceberg.exceptions")
        with _translated(), self._guard():
            try:
                held = self._catalog.load_table((name.database, name.table)).metadata
            except (errors.NoSuchIcebergTableError, errors.NoSuchPropertyException) as error:
                return Entry(location="", columns={}, problem=f"it is no Iceberg table ({error})"[:300])
            except FileNotFoundError:
                return _DANGLING
            except (errors.NoSuchTableError, errors.NoSuchNamespaceError):
                return _DANGLING if self._is_listed(name) else None
        now = {SNAPSHOT: str(held.current_snapshot_id)}
        return Entry(location=same_place(held.location), columns={}, properties={**held.properties, **now})

    def create(self, registration: Registration) -> None:
        name, location = registration.name, registration.info.location
        errors = importlib.import_module("pyiceberg.exceptions")
        versions = MetadataVersions(self._storage, location)
        with _translated(), self._guard():
            self._require_database(name.database)
            try:
                self._catalog.register_table((name.database, name.table), versions.path(versions.newest()))
            except errors.TableAlreadyExistsError:
                return  # another job was first; the next run compares
        self.alter(registration)

    def alter(self, registration: Registration) -> None:
        """The entry is read before our metadata: of two writers, the one with the older metadata fails or writes
        the newer."""
        name, versions = registration.name, MetadataVersions(self._storage, registration.info.location)
        with _translated(), self._guard():
            held = self._catalog.load_table((name.database, name.table))
            wanted = parsed(versions.read(versions.newest()))
            properties = {
                k: v for k, v in registration.entry.properties.items() if k not in registration.info.properties
            }
            requirements, updates = changes(held.metadata, wanted, properties)
            if updates:
                self._catalog.commit_table(held, requirements, updates)

    def _is_listed(self, name: EntryName) -> bool:
        errors = importlib.import_module("pyiceberg.exceptions")
        try:
            return any(listed[-1] == name.table for listed in self._catalog.list_tables((name.database,)))
        except errors.NoSuchNamespaceError:
            return False

    def _require_database(self, name: str) -> None:
        if name not in self._databases:
            self._catalog.create_namespace_if_not_exists((name,))
            self._databases.add(name)


def changes(held: Any, wanted: Any, properties: Mapping[str, str]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Requirements and updates of a commit after which a table reads like `wanted`.

    Another writer's commits do not hinder it: what is there already is named by its number, the rest is added.

    Args:
        held, wanted: pyiceberg's `TableMetadata`.
        properties: of the entry, besides those of the metadata.

    Raises:
        CatalogError: `CATALOG_REFUSED`: another writer partitioned the table, or the entry has a later format version.
    """
    update = importlib.import_module("pyiceberg.table.update")
    requirements = (
        update.AssertTableUUID(uuid=held.table_uuid),
        update.AssertRefSnapshotId(ref=_MAIN, snapshot_id=held.current_snapshot_id),
    )
    updates: list[Any] = []
    if held.format_version > wanted.format_version:
        message = f"the entry has format version {held.format_version}; drop it, then `gddl catalog sync`"
        raise CatalogError(CATALOG_REFUSED, message)
    if held.format_version < wanted.format_version:
        updates.append(update.UpgradeFormatVersionUpdate(format_version=wanted.format_version))
    if held.location != wanted.location:
        updates.append(update.SetLocationUpdate(location=wanted.location))
    schema_id = _set_schema(held, wanted, update, updates)
    _set_spec(held, wanted, update, updates)
    known = {k: v for k, v in {**wanted.properties, **properties}.items() if held.properties.get(k) != v}
    if known:
        updates.append(update.SetPropertiesUpdate(updates=known))
    _set_snapshot(held, wanted, schema_id, update, updates)
    return requirements, tuple(updates)


def _set_schema(held: Any, wanted: Any, update: Any, updates: list[Any]) -> int:
    """Also returns the number of the schema in the catalog."""
    schema = wanted.schema()
    known = next((one.schema_id for one in held.schemas if one == schema), None)
    number = max(one.schema_id for one in held.schemas) + 1 if known is None else known
    if known is None:
        updates.append(update.AddSchemaUpdate(schema_=schema.model_copy(update={"schema_id": number})))
    if number != held.current_schema_id:
        updates.append(update.SetCurrentSchemaUpdate(schema_id=-1 if known is None else number))
    return int(number)


def _set_spec(held: Any, wanted: Any, update: Any, updates: list[Any]) -> None:
    """Manifests name specs by our numbers."""
    numbers = {spec.spec_id: spec for spec in held.partition_specs}
    for spec in wanted.partition_specs:
        if spec.spec_id not in numbers:
            updates.append(update.AddPartitionSpecUpdate(spec=spec))
        elif spec.spec_id == wanted.default_spec_id and numbers[spec.spec_id] != spec:
            message = "another writer partitioned the table; drop the entry there, then `gddl catalog sync`"
            raise CatalogError(CATALOG_REFUSED, message)
    if held.default_spec_id != wanted.default_spec_id:
        updates.append(update.SetDefaultSpecUpdate(spec_id=wanted.default_spec_id))


def _set_snapshot(held: Any, wanted: Any, schema_id: int, update: Any, updates: list[Any]) -> None:
    """Set the branch `main` to our snapshot; it alone remains, since older ones name files that a vacuum removes."""
    snapshot = wanted.current_snapshot()
    if snapshot.snapshot_id == held.current_snapshot_id:
        return
    if held.snapshot_by_id(snapshot.snapshot_id) is None:
        number = max(snapshot.sequence_number, held.last_sequence_number + 1)
        changed = {
            "sequence_number": number, "schema_id": schema_id, "parent_snapshot_id": held.current_snapshot_id,
            **_row_ids(held, wanted),
        }  # fmt: skip
        updates.append(update.AddSnapshotUpdate(snapshot=snapshot.model_copy(update=changed)))
    updates.append(update.SetSnapshotRefUpdate(ref_name=_MAIN, type="branch", snapshot_id=snapshot.snapshot_id))
    if old := [one.snapshot_id for one in held.snapshots if one.snapshot_id != snapshot.snapshot_id]:
        updates.append(update.RemoveSnapshotsUpdate(snapshot_ids=old))


def _row_ids(held: Any, wanted: Any) -> dict[str, int]:
    """Those that a snapshot takes, after which the entry's next one is ours, whichever versions it has missed."""
    if wanted.format_version == _WITHOUT_ROW_IDS:
        return {}
    first = getattr(held, "next_row_id", None) or 0
    return {"first_row_id": first, "added_rows": max(0, wanted.next_row_id - first)}


def iceberg_rest_catalog(spec: CatalogSpec, around: CatalogContext) -> CatalogPort:
    with _translated():
        return IcebergCatalog(open_rest(spec, around.environ, lambda: StoreIO(around.storage)), around.storage)


def iceberg_glue_catalog(spec: CatalogSpec, around: CatalogContext) -> CatalogPort:
    with _translated():
        client, glue = client_of(spec), importlib.import_module("pyiceberg.catalog.glue").GlueCatalog
        if spec.catalog_id is not None:
            client.meta.events.register("provide-client-params.glue", _of_account(spec.catalog_id))

        class Opened(glue):  # type: ignore[misc,valid-type]  # imported by name
            def _load_file_io(self, *_: Any, **__: Any) -> Any:
                return StoreIO(around.storage)

        return IcebergCatalog(Opened("gddl", client=client), around.storage, translated)


def _of_account(catalog_id: str) -> Callable[..., None]:
    def add(params: dict[str, Any], **_: Any) -> None:
        params.setdefault("CatalogId", catalog_id)

    return add


@contextmanager
def _translated() -> Iterator[None]:
    """
    Raises:
        CatalogError: a request failed, or what it needs is missing.
    """
    try:
        with refused(), needed_by("a job that registers Iceberg tables", install="airflow-gddl[iceberg]"):
            yield
    except (CatalogError, ImportError):  # that of a module of this project is a defect
        raise
    except Exception as error:
        message = f"the Iceberg catalog: {type(error).__name__}: {error}"[:400]
        raise CatalogError(code_of_rest(error), message) from error
