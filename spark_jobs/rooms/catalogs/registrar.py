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
from airflow_gddl.contract.result import RunWarning, Warnings
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
    Registration,
    TableColumn,
    plan,
    reported,
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
    columns = tuple(
        TableColumn(
            name=field["name"], type=field["type"], nullable=field.get("nullable", True),
            comment=(field.get("metadata") or {}).get("comment") or "",
        )
        for field in json.loads(table.schema().to_json())["fields"]
    )  # fmt: skip
    return DeltaTableInfo(location=path, columns=columns, comment=table.metadata().description or "")


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
    act: correct the entries, not only compare them.
    restore: register tables again that were dropped in the catalog.
    """

    spec: TableSpec
    access: CatalogAccess
    before: RegistrationState
    act: bool = True
    restore: bool = False

    def check_all(self, tables: Iterable[KindInfo]) -> tuple[list[TableCheck], RunWarning | None]:
        """Correct the entries of these tables; also returns the first problem."""
        checks: list[TableCheck] = []
        try:
            for kind, info in tables:
                checks.append(self._check(kind, info))
        except CatalogError as error:
            return checks, RunWarning(code=error.code, message=error.message)
        return checks, _first_problem(checks)

    def _check(self, kind: TableKind, info: DeltaTableInfo) -> TableCheck:
        """Compare a table with its entry, and with `act` correct the entry.

        Raises:
            CatalogError: as `CatalogAccess.call`.
        """
        catalog = self.access.spec
        name = entry_name(catalog, self.spec, kind)
        if fault := name_fault(CATALOGS[catalog.kind], name):
            change, known = reported(CATALOG_NAME_INVALID, fault), self.before.tables.get(kind)
            return TableCheck(kind=kind, name=str(name), change=change, registered=known)
        return self.access.call(lambda port: self._compared(port, kind, name, info))

    def _compared(self, port: CatalogPort, kind: TableKind, name: EntryName, info: DeltaTableInfo) -> TableCheck:
        """The catalog is not called where the stored state matches, except with `restore` or without `act`."""
        entry, known = port.entry_of(info, properties_of(self.spec, kind)), self.before.tables.get(kind)
        known = known if known is not None and known.name == str(name) else None
        done = RegisteredTable(location=entry.location, digest=digest(codec.to_json(entry)), name=str(name))
        if known == done and self.act and not self.restore and self.before.problem is None:
            return TableCheck(kind=kind, name=str(name), change=CatalogChange(), registered=done)
        known_at = None if known is None else known.location
        change = plan(entry, port.read(name), known_at=known_at, alters=port.alters, restore=self.restore)
        wanted = Registration(name=name, info=info, entry=entry)
        if self.act and change.action == "create":
            port.create(wanted)
        elif self.act and change.action == "alter":
            port.alter(wanted)
        kept = known if change.code or not self.act else done
        return TableCheck(kind=kind, name=str(name), change=change, registered=kept)

    def check_former(self, former: Mapping[str, str]) -> list[TableCheck]:
        """Entries of former names that are still there, and point to where the table was or to nothing.

        Raises:
            CatalogError: as `CatalogAccess.call`.
        """
        if not former:
            return []
        there = self.access.call(lambda port: {name: port.read(EntryName(*name.split(".", 1))) for name in former})
        return [
            TableCheck(kind="former", name=name, change=reported(CATALOG_ENTRY_LEFT, LEFT))
            for name, entry in there.items()
            if entry is not None and (entry.is_dangling or entry.location == former[name])
        ]


def _first_problem(checks: Iterable[TableCheck]) -> RunWarning | None:
    """That of the first table whose entry differs and is not altered."""
    for check in checks:
        if check.change.code:
            return RunWarning(code=check.change.code, message=f"{check.name}: {check.change.message}")
    return None


def tables_of(storage: Storage, job: JobSpec, spec: TableSpec) -> list[KindInfo]:
    """The existing tables among those to register: Delta tables, or in an Iceberg catalog their Iceberg metadata."""
    layout, catalog = Layout.of(job.roots, spec), job.catalogs[spec.catalog or ""]
    kinds = [kind for kind in catalog.tables if kind != "history" or spec.history]
    if is_iceberg(catalog):
        made = [(kind, folder) for kind in kinds for folder in folders(job.roots.lake, spec, kind).values()]
        infos = [(kind, _iceberg_info(storage, folder)) for kind, folder in made]
    else:
        infos = [(kind, read_info(storage, getattr(layout, kind))) for kind in kinds]
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
    return not state.tables or (state.version == version and not _may_pass(state))


def signature_of(spec: TableSpec, catalog: CatalogSpec) -> str:
    """Digest of all settings of a table's registration; the part before `-` identifies the catalog."""
    place: list[Any] = [catalog.kind, catalog.endpoint, catalog.region, catalog.catalog_id]
    place += [catalog.url, catalog.catalog_name, catalog.uri, catalog.warehouse]
    settings = [catalog, spec.catalog, spec.history, properties_of(spec, "replica")]
    return f"{digest(codec.to_json(place))}-{digest(codec.to_document(settings))}"


def properties_of(spec: TableSpec, kind: TableKind) -> Mapping[str, str]:
    """Properties of the entry that identify the row."""
    properties = {"gddl.table": spec.table, "gddl.kind": kind}
    properties |= {"gddl.keys": ",".join(spec.keys)} if spec.keys else {}
    properties |= {"gddl.owner": spec.owner} if spec.owner else {}
    return properties | {f"gddl.tag.{name}": value for name, value in sorted(spec.tags.items())}


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


_LOG = logging.getLogger(__name__)


def _warnings(
    before: RegistrationState, state: RegistrationState, checks: Iterable[TableCheck], *, idle: bool
) -> Warnings:
    """What a run says of a registration; an idle run repeats nothing of its last record."""
    problem, is_news = state.problem, state.problem != before.problem
    if problem is not None and (is_news or not idle):
        return (problem,)
    if problem is None and idle and is_news:
        return (RunWarning(code=CATALOG_REGISTERED, message="the catalog has the table's current state"),)
    if former := sorted(set(state.former) - set(before.former)):
        return (RunWarning(code=CATALOG_ENTRY_LEFT, message=LEFT, count=len(former), sample=tuple(former)),)
    names = tuple(dict.fromkeys(f"{one.aspect} {one.name}".strip() for each in checks for one in each.change.unaltered))
    if names:
        message = "the catalog can't alter this of an entry; readers take it from the Delta log"
        return (RunWarning(code=CATALOG_CHANGE_UNSUPPORTED, message=message, count=len(names), sample=names[:5]),)
    return ()


@dataclass
class Registrar:
    """Registers tables of one job; safe to be called from several threads, for different tables.

    Attributes:
        clock: the present, with its zone.
    """

    storage: Storage
    around: CatalogContext
    clock: Callable[[], datetime]
    _accesses: dict[str, CatalogAccess] = field(default_factory=dict)
    _known: dict[str, RegistrationState] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_settled(self, job: JobSpec, spec: TableSpec, version: int | None) -> bool:
        """Whether this process knows, without any request, that nothing is to be done."""
        known, catalog = self._known.get(spec.table), job.catalogs.get(spec.catalog or "")
        return known is not None and catalog is not None and _holds(known, signature_of(spec, catalog), version)

    def settle(self, job: JobSpec, spec: TableSpec, version: int | None, *, idle: bool) -> Warnings:
        """Update the catalog's entries from the table; returns warnings, also of failures of the catalog.

        Args:
            version: of the replica.
            idle: nothing was written since the last run, so the stored state of this version is valid.

        Raises:
            GddlError: the lake can't be read or written.
        """
        catalog, before = job.catalogs.get(spec.catalog or ""), self._before(job, spec)
        if catalog is None:
            message = f"the job does not know the catalog {spec.catalog!r}"
            unknown = RunWarning(code=CATALOG_UNKNOWN, message=message)
            return _warnings(before, replace(before, problem=unknown), (), idle=idle)
        # Metadata may have been written since, of a history, or after a failure.
        if idle and not is_iceberg(catalog) and _holds(before, signature_of(spec, catalog), version):
            self._known[spec.table] = before
            return ()
        checks, state = self._checked(job, self._row(job, spec, before), version)
        if state != before:
            state = self._dated(state)
            RegistrationStore(self.storage, job.roots.lake).put(spec, state)
        self._known[spec.table] = state
        if (problem := state.problem) is not None:
            _LOG.warning("%s could not be registered: %s %s", spec.table, problem.code, problem.message)
        return _warnings(before, state, checks, idle=idle)

    def follow(self, job: JobSpec, spec: TableSpec) -> None:
        """Update the entries within a run; `settle` at its end stores and reports what it finds.

        Raises:
            GddlError: the lake can't be read.
        """
        self._row(job, spec, self._before(job, spec)).check_all(tables_of(self.storage, job, spec))

    def compare(self, job: JobSpec, spec: TableSpec, *, act: bool) -> tuple[list[TableCheck], RunWarning | None]:
        """Compare every table of the row with its current entry.

        Args:
            act: correct the entries, also dropped ones, and store the state.

        Raises:
            GddlError: the lake can't be read or written.
        """
        store = RegistrationStore(self.storage, job.roots.lake)
        row = replace(self._row(job, spec, store.get(spec)), act=act, restore=act)
        checks, state = self._checked(job, row, row.before.version)
        if (problem := state.problem) is None:
            former = row.check_former(state.former if act else row.before.former)
            state = replace(state, former={check.name: state.former[check.name] for check in former})
            checks, problem = checks + former, _first_problem(former)
        if act:
            store.put(spec, self._dated(state))
        return checks, problem

    def _checked(
        self, job: JobSpec, row: RowCatalog, version: int | None
    ) -> tuple[list[TableCheck], RegistrationState]:
        """Check the tables of a row; also returns the state after that."""
        tables, before, catalog = tables_of(self.storage, job, row.spec), row.before, row.access.spec
        checks, problem = row.check_all(tables)
        done = dict(before.tables)
        done |= {check.kind: check.registered for check in checks if check.registered is not None}
        names = {one.name for one in done.values()}
        former = {**before.former, **{old.name: old.location for old in before.tables.values()}}
        state = replace(
            before, signature=signature_of(row.spec, catalog), tables=done, problem=problem,
            version=version_of(tables) if is_iceberg(catalog) else version,
            former={name: location for name, location in former.items() if name not in names},
        )  # fmt: skip
        return checks, state

    def _before(self, job: JobSpec, spec: TableSpec) -> RegistrationState:
        return self._known.get(spec.table) or RegistrationStore(self.storage, job.roots.lake).get(spec)

    def _row(self, job: JobSpec, spec: TableSpec, before: RegistrationState) -> RowCatalog:
        """The row in its catalog, with what is stored of it, but for entries of another catalog."""
        name = spec.catalog or ""
        catalog = job.catalogs[name]
        with self._lock:
            access = self._accesses.get(name)
            if access is None or access.spec != catalog:
                access = self._accesses[name] = CatalogAccess(spec=catalog, around=self.around)
        if before.signature.partition("-")[0] != signature_of(spec, catalog).partition("-")[0]:
            before = replace(before, tables={}, former={})
        return RowCatalog(spec, access, before)

    def _dated(self, state: RegistrationState) -> RegistrationState:
        if state.problem is not None:
            return state
        return replace(state, synced_at=self.clock().isoformat(timespec="seconds"))


def _holds(known: RegistrationState, signature: str, version: int | None) -> bool:
    """Whether the stored state matches the table; failures that may pass are retried."""
    return known.signature == signature and known.version == version and not _may_pass(known)


def _may_pass(state: RegistrationState) -> bool:
    return state.problem is not None and state.problem.code in _PASSING


_PASSING = (
    CATALOG_CONNECTION_MISSING, CATALOG_UNREACHABLE, CATALOG_DENIED, CATALOG_REFUSED,
)  # fmt: skip
