"""Registers one table: compares the stored state, the Delta log and the catalog's entries."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import (
    CATALOG_CHANGE_UNSUPPORTED,
    CATALOG_CONNECTION_MISSING,
    CATALOG_DENIED,
    CATALOG_ENTRY_LEFT,
    CATALOG_NAME_INVALID,
    CATALOG_REFUSED,
    CATALOG_REGISTERED,
    CATALOG_UNKNOWN,
    CATALOG_UNREACHABLE,
)
from airflow_gddl.contract.extensions import CATALOGS, CatalogSpec, EntryName, TableKind, entry_name, name_fault
from airflow_gddl.contract.features import folders
from airflow_gddl.contract.layout import Layout, table_url
from airflow_gddl.contract.registrations import RegisteredTable, RegistrationState
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.contract.sql_types import SQL_NAMES, type_text
from airflow_gddl.stores import Storage
from airflow_gddl.stores.lake_files import RegistrationStore
from spark_jobs.rooms.catalogs.catalog_port import (
    CatalogAccess,
    CatalogChange,
    CatalogContext,
    CatalogError,
    CatalogPort,
    DeltaTableInfo,
    Entry,
    OpenCatalog,
    Registration,
    TableColumn,
    open_catalog,
    plan,
)
from spark_jobs.tables.iceberg_metadata import DELTA_VERSION, MetadataVersions


def read_info(storage: Storage, path: str) -> DeltaTableInfo | None:
    """The newest version's; None where there is no table."""
    if "://" not in path and not Path(path, "_delta_log").is_dir():
        return None
    try:
        table = DeltaTable(table_url(path), storage_options=storage.options_of(path))
    except TableNotFoundError:
        return None
    fields = json.loads(table.schema().to_json())["fields"]
    comment = table.metadata().description or ""
    return DeltaTableInfo(location=path, columns=tuple(_column(field) for field in fields), comment=comment)


def _column(field: dict[str, Any]) -> TableColumn:
    comment = (field.get("metadata") or {}).get("comment") or ""
    return TableColumn(name=field["name"], type=field["type"], comment=comment, nullable=field.get("nullable", True))


def hive_type(kind: Any) -> str:
    """`type_text` as Hive, Glue and Athena write it."""
    return type_text(kind, _HIVE)


_HIVE = {**SQL_NAMES, "timestamp_ntz": "timestamp"}


KindInfo = tuple[TableKind, DeltaTableInfo]
LEFT = "the table is no longer registered by this name; drop the entry there"


@dataclass(frozen=True, kw_only=True)
class TableCheck:
    """One Delta table against its entry.

    Attributes:
        registered: state to store; None: it is not registered.
    """

    kind: TableKind | Literal["former"]
    name: str
    change: CatalogChange
    registered: RegisteredTable | None = None


@dataclass(frozen=True)
class RowCatalog:
    """Attributes:
    before: stored state of the row's tables.
    """

    catalog: CatalogSpec
    spec: TableSpec
    access: CatalogAccess
    before: RegistrationState

    def check_all(
        self, tables: Iterable[KindInfo], *, restore: bool = False, act: bool = True
    ) -> tuple[list[TableCheck], RunWarning | None]:
        """Correct the entries of these tables; also returns the first problem."""
        checks: list[TableCheck] = []
        try:
            for kind, info in tables:
                checks.append(self.check(kind, info, restore=restore, act=act))
        except CatalogError as error:
            return checks, RunWarning(code=error.code, message=error.message)
        reported = next((check for check in checks if check.change.code), None)
        if reported is None:
            return checks, None
        message = f"{reported.name}: {reported.change.message}"
        return checks, RunWarning(code=reported.change.code, message=message)

    def check(self, kind: TableKind, info: DeltaTableInfo, *, restore: bool = False, act: bool = True) -> TableCheck:
        """Compare a table with its entry, and with `act` correct the entry.

        The catalog is not called where the stored state matches, except with `restore` or without `act`.

        Raises:
            CatalogError: as `CatalogAccess.call`.
        """
        name = entry_name(self.catalog, self.spec, kind)
        if fault := name_fault(CATALOGS[self.catalog.kind], name):
            code = CATALOG_NAME_INVALID
            change = CatalogChange(action="report", code=code, message=fault)
            return TableCheck(kind=kind, name=str(name), change=change, registered=self.before.tables.get(kind))
        is_trusted = act and not restore and self.before.problem is None

        def work(port: CatalogPort) -> TableCheck:
            wanted = port.entry_of(info, properties_of(self.spec, kind))
            registration = Registration(name=name, info=info, entry=wanted)
            return self._done(port, kind, registration, is_trusted=is_trusted, restore=restore, act=act)

        return self.access.call(work)

    def _done(
        self, port: CatalogPort, kind: TableKind, wanted: Registration, *, is_trusted: bool, restore: bool, act: bool
    ) -> TableCheck:
        known = self.before.tables.get(kind)
        known = known if known is not None and known.name == str(wanted.name) else None
        entry_digest = digest(codec.to_json(wanted.entry))
        done = RegisteredTable(location=wanted.entry.location, digest=entry_digest, name=str(wanted.name))
        if is_trusted and known == done:
            return TableCheck(kind=kind, name=str(wanted.name), change=CatalogChange(), registered=done)
        there = port.read(wanted.name)
        known_at = None if known is None else known.location
        change = plan(wanted.entry, there, known_at=known_at, alters=port.alters, restore=restore)
        if act and change.action == "create":
            port.create(wanted)
        elif act and change.action == "alter":
            port.alter(wanted)
        kept = known if change.code or not act else done
        return TableCheck(kind=kind, name=str(wanted.name), change=change, registered=kept)

    def check_former(self) -> list[TableCheck]:
        """Entries of former names that are still there, and point to where the table was or to nothing.

        Raises:
            CatalogError: as `CatalogAccess.call`.
        """
        checks = []
        for name, location in self.before.former.items():
            there = self._registered(EntryName(*name.split(".", 1)))
            if there is not None and (there.is_dangling or there.location == location):
                change = CatalogChange(action="report", code=CATALOG_ENTRY_LEFT, message=LEFT)
                checks.append(TableCheck(kind="former", name=name, change=change))
        return checks

    def _registered(self, name: EntryName) -> Entry | None:
        return self.access.call(lambda port: port.read(name))


def tables_of(storage: Storage, job: JobSpec, spec: TableSpec) -> list[KindInfo]:
    """The existing tables among those to register: Delta tables, or in an Iceberg catalog their Iceberg metadata."""
    layout, catalog = Layout.of(job.roots, spec), job.catalogs[spec.catalog or ""]
    kinds = [kind for kind in catalog.tables if kind != "history" or spec.history]
    if is_iceberg(catalog):
        made = [(kind, folder) for kind in kinds for folder in folders(job.roots.lake, spec, kind).values()]
        of_iceberg = ((kind, _iceberg_info(storage, folder)) for kind, folder in made)
        return [(kind, info) for kind, info in of_iceberg if info is not None]
    infos = ((kind, read_info(storage, getattr(layout, kind))) for kind in kinds)
    return [(kind, info) for kind, info in infos if info is not None]


def _iceberg_info(storage: Storage, folder: str) -> DeltaTableInfo | None:
    identity = MetadataVersions(storage, folder).identity()
    return DeltaTableInfo(location=folder, columns=(), properties=identity) if identity else None


def version_of(tables: Iterable[KindInfo]) -> int | None:
    """Version of the replica that its Iceberg metadata is of."""
    version = next((info.properties.get(DELTA_VERSION) for kind, info in tables if kind == "replica"), None)
    return int(version) if version else None


def is_iceberg(catalog: CatalogSpec | None) -> bool:
    """Whether entries are to point to each new version of a table's metadata."""
    return catalog is not None and CATALOGS[catalog.kind].is_iceberg


def is_pointed_to(storage: Storage, lake: str, spec: TableSpec, version: int | None) -> bool:
    """Whether readers of an Iceberg catalog, if the row is registered in one, read this version of the replica."""
    state = RegistrationStore(storage, lake).get(spec)
    passing = state.problem is not None and state.problem.code in _PASSING
    return not state.tables or not (passing or state.version != version)


def signature_of(spec: TableSpec, catalog: CatalogSpec) -> str:
    """Digest of all settings of a table's registration; the part before `-` identifies the catalog."""
    place: list[Any] = [catalog.kind, catalog.endpoint, catalog.region, catalog.catalog_id]
    place += [catalog.url, catalog.catalog_name, catalog.uri, catalog.warehouse]
    settings = [catalog, spec.catalog, spec.history, properties_of(spec, "replica")]
    return f"{digest(codec.to_json(place))}-{digest(codec.to_document(settings))}"


def in_same_catalog(before: RegistrationState, signature: str) -> RegistrationState:
    """The stored state, without entries of another catalog."""
    is_same = before.signature.partition("-")[0] == signature.partition("-")[0]
    return before if is_same else replace(before, tables={}, former={})


def properties_of(spec: TableSpec, kind: TableKind) -> Mapping[str, str]:
    """Properties of the entry that identify the row."""
    properties = {"gddl.table": spec.table, "gddl.kind": kind}
    properties |= {"gddl.keys": ",".join(spec.keys)} if spec.keys else {}
    properties |= {"gddl.owner": spec.owner} if spec.owner else {}
    return properties | {f"gddl.tag.{name}": value for name, value in sorted(spec.tags.items())}


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Attributes:
    state: of the table's registration now.
    before: the stored state.
    checks: of the compared tables; empty: the stored state is still valid.
    """

    state: RegistrationState
    before: RegistrationState
    checks: tuple[TableCheck, ...] = ()

    @property
    def is_news(self) -> bool:
        """Whether a problem appeared or was resolved."""
        return self.state.problem != self.before.problem

    def warnings(self, *, idle: bool) -> tuple[RunWarning, ...]:
        """Warnings for the run's result; an idle run repeats none of its last record."""
        problem = self.state.problem
        if problem is not None and (self.is_news or not idle):
            return (problem,)
        if problem is None and idle and self.is_news:
            return (RunWarning(code=CATALOG_REGISTERED, message="the catalog has the table's current state"),)
        if former := sorted(set(self.state.former) - set(self.before.former)):
            return (RunWarning(code=CATALOG_ENTRY_LEFT, message=LEFT, count=len(former), sample=tuple(former)),)
        unaltered = [one for check in self.checks for one in check.change.unaltered]
        if unaltered:
            names = tuple(dict.fromkeys(f"{one.aspect} {one.name}".strip() for one in unaltered))
            message = "the catalog can't alter this of an entry; readers take it from the Delta log"
            return (RunWarning(code=CATALOG_CHANGE_UNSUPPORTED, message=message, count=len(names), sample=names[:5]),)
        return ()


@dataclass
class Registrar:
    """Registers tables of one job; safe to be called from several threads, for different tables.

    Attributes:
        clock: the present, with its zone.
        opened: opens a catalog.
    """

    storage: Storage
    around: CatalogContext
    clock: Callable[[], datetime]
    opened: OpenCatalog = open_catalog
    _accesses: dict[str, CatalogAccess] = field(default_factory=dict)
    _known: dict[str, RegistrationState] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_settled(self, job: JobSpec, spec: TableSpec, version: int | None) -> bool:
        """Whether this process knows, without any request, that nothing is to be done."""
        known, catalog = self._known.get(spec.table), job.catalogs.get(spec.catalog or "")
        return known is not None and catalog is not None and _holds(known, signature_of(spec, catalog), version)

    def settle(self, job: JobSpec, spec: TableSpec, version: int | None, *, idle: bool) -> Settled:
        """Update the catalog's entries from the table. Failures of the catalog are part of the result.

        Args:
            version: of the replica.
            idle: nothing was written since the last run, so the stored state of this version is valid.

        Raises:
            GddlError: the lake can't be read or written.
        """
        catalog = job.catalogs.get(spec.catalog or "")
        store = RegistrationStore(self.storage, job.roots.lake)
        before = self._known.get(spec.table) or store.get(spec)
        if catalog is None:
            message = f"the job does not know the catalog {spec.catalog!r}"
            return Settled(
                state=replace(before, problem=RunWarning(code=CATALOG_UNKNOWN, message=message)), before=before
            )
        signature = signature_of(spec, catalog)
        # Metadata may have been written since, of a history, or after a failure.
        if idle and not is_iceberg(catalog) and _holds(before, signature, version):
            self._known[spec.table] = before
            return Settled(state=before, before=before)
        row, tables = self.row(job, spec, in_same_catalog(before, signature)), tables_of(self.storage, job, spec)
        if is_iceberg(catalog):
            version = version_of(tables)
        checks, problem = row.check_all(tables)
        state = _state_after(row.before, checks, problem, signature, version)
        if state != before:
            state = self._dated(state)
            store.put(spec, state)
        self._known[spec.table] = state
        if problem is not None:
            _LOG.warning("%s could not be registered: %s %s", spec.table, problem.code, problem.message)
        return Settled(state=state, before=before, checks=tuple(checks))

    def follow(self, job: JobSpec, spec: TableSpec) -> None:
        """Update the entries within a run; `settle` at its end stores and reports what it finds.

        Raises:
            GddlError: the lake can't be read.
        """
        before = self._known.get(spec.table) or RegistrationStore(self.storage, job.roots.lake).get(spec)
        signature = signature_of(spec, job.catalogs[spec.catalog or ""])
        self.row(job, spec, in_same_catalog(before, signature)).check_all(tables_of(self.storage, job, spec))

    def compare(self, job: JobSpec, spec: TableSpec, *, act: bool) -> tuple[list[TableCheck], RunWarning | None]:
        """Compare every table of the row with its current entry.

        Args:
            act: correct the entries, also dropped ones, and store the state.

        Raises:
            GddlError: the lake can't be read or written.
        """
        store = RegistrationStore(self.storage, job.roots.lake)
        before, catalog = store.get(spec), job.catalogs[spec.catalog or ""]
        signature = signature_of(spec, catalog)
        row = self.row(job, spec, in_same_catalog(before, signature))
        tables = tables_of(self.storage, job, spec)
        checks, problem = row.check_all(tables, restore=act, act=act)
        version = version_of(tables) if is_iceberg(catalog) else before.version
        state = self._dated(_state_after(row.before, checks, problem, signature, version))
        if problem is None:
            former_checks = replace(row, before=state if act else row.before).check_former()
            state = replace(state, former={check.name: state.former[check.name] for check in former_checks})
            checks += former_checks
            problem = (
                RunWarning(code=CATALOG_ENTRY_LEFT, message=f"{former_checks[0].name}: {LEFT}")
                if former_checks
                else None
            )
        if act:
            store.put(spec, state)
        return checks, problem

    def row(self, job: JobSpec, spec: TableSpec, before: RegistrationState) -> RowCatalog:
        """
        Args:
            job: a job with the row's catalog.
        """
        name = spec.catalog or ""
        return RowCatalog(job.catalogs[name], spec, self._access(name, job.catalogs[name]), before)

    def _dated(self, state: RegistrationState) -> RegistrationState:
        if state.problem is not None:
            return state
        return replace(state, synced_at=self.clock().isoformat(timespec="seconds"))

    def _access(self, name: str, catalog: CatalogSpec) -> CatalogAccess:
        with self._lock:
            known = self._accesses.get(name)
            if known is None or known.spec != catalog:
                known = self._accesses[name] = CatalogAccess(spec=catalog, around=self.around, opened=self.opened)
            return known


def _holds(known: RegistrationState, signature: str, version: int | None) -> bool:
    """Whether the stored state matches the table; failures that may pass are retried."""
    passing = known.problem is not None and known.problem.code in _PASSING
    return known.signature == signature and known.version == version and not passing


_PASSING = (
    CATALOG_CONNECTION_MISSING, CATALOG_UNREACHABLE, CATALOG_DENIED, CATALOG_REFUSED,
)  # fmt: skip


def _state_after(
    before: RegistrationState, checks: list[TableCheck], problem: RunWarning | None, signature: str,
    version: int | None,
) -> RegistrationState:  # fmt: skip
    tables = dict(before.tables)
    tables |= {check.kind: check.registered for check in checks if check.registered is not None}
    former = {**before.former, **{old.name: old.location for old in before.tables.values()}}
    names = {one.name for one in tables.values()}
    former = {name: location for name, location in former.items() if name not in names}
    return replace(before, signature=signature, version=version, tables=tables, problem=problem, former=former)
