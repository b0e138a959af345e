"""A metadata row's tables against their entries in its catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from airflow_gddl.contract import codec
from airflow_gddl.contract.catalogs import CatalogSpec, EntryName, TableKind, entry_name, name_fault
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.registration import CatalogProblem, RegisteredTable, RegistrationState
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.catalogs.base import CatalogError, CatalogPort, DeltaTableInfo, Entry, Registration
from spark_jobs.catalogs.delta_info import read_info
from spark_jobs.catalogs.opening import CatalogAccess
from spark_jobs.catalogs.plan import CatalogChange, plan

KindInfo = tuple[TableKind, DeltaTableInfo]
LEFT = "the table is no longer registered by this name; drop the entry there"


@dataclass(frozen=True, kw_only=True)
class TableCheck:
    """One Delta table against its entry.

    Attributes:
        registered: state to store; null: it is not registered.
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
        self, found: Iterable[KindInfo], *, restore: bool = False, act: bool = True
    ) -> tuple[list[TableCheck], CatalogProblem | None]:
        """Correct the entries of these tables; also returns the first problem."""
        checks: list[TableCheck] = []
        try:
            for kind, info in found:
                checks.append(self.check(kind, info, restore=restore, act=act))
        except CatalogError as error:
            return checks, CatalogProblem(code=error.code, message=error.message)
        reported = next((check for check in checks if check.change.code), None)
        if reported is None:
            return checks, None
        message = f"{reported.name}: {reported.change.message}"
        return checks, CatalogProblem(code=reported.change.code, message=message)

    def check(self, kind: TableKind, info: DeltaTableInfo, *, restore: bool = False, act: bool = True) -> TableCheck:
        """Compare a table with its entry, and with `act` correct the entry.

        The catalog is not called where the stored state matches, except with `restore` or without `act`.

        Raises:
            CatalogError: as `CatalogAccess.call`.
        """
        name = entry_name(self.catalog, self.spec, kind)
        if fault := name_fault(self.catalog.kind, name):
            code = "CATALOG_NAME_INVALID"
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
        found = digest(codec.to_json(wanted.entry))
        done = RegisteredTable(location=wanted.entry.location, digest=found, name=str(wanted.name))
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
        """Entries of former names that are still there and still point to where the table was.

        Raises:
            CatalogError: as `CatalogAccess.call`.
        """
        found = []
        for name, location in self.before.former.items():
            there = self._registered(EntryName(*name.split(".", 1)))
            if there is not None and there.location == location:
                change = CatalogChange(action="report", code="CATALOG_ENTRY_LEFT", message=LEFT)
                found.append(TableCheck(kind="former", name=name, change=change))
        return found

    def _registered(self, name: EntryName) -> Entry | None:
        return self.access.call(lambda port: port.read(name))


def tables_of(storage: Storage, job: JobSpec, spec: TableSpec) -> list[KindInfo]:
    """The existing Delta tables among those to register."""
    layout, catalog = Layout.of(job.roots, spec), job.catalogs[spec.catalog or ""]
    kinds = [kind for kind in catalog.tables if kind != "history" or spec.history]
    found = ((kind, read_info(storage, getattr(layout, kind))) for kind in kinds)
    return [(kind, info) for kind, info in found if info is not None]


def signature_of(spec: TableSpec, catalog: CatalogSpec) -> str:
    """Digest of all settings of a table's registration; the part before `-` identifies the catalog."""
    place = [catalog.kind, catalog.endpoint, catalog.region, catalog.catalog_id]
    place += [catalog.url, catalog.catalog_name, catalog.uri]
    settings = [catalog, spec.catalog, spec.history, properties_of(spec, "replica")]
    return f"{digest(codec.to_json(place))}-{digest(codec.to_document(settings))}"


def in_same_catalog(before: RegistrationState, signature: str) -> RegistrationState:
    """The stored state, without entries of another catalog."""
    is_same = before.signature.partition("-")[0] == signature.partition("-")[0]
    return before if is_same else replace(before, tables={}, former={})


def properties_of(spec: TableSpec, kind: TableKind) -> Mapping[str, str]:
    """Properties of the entry that identify the row."""
    own = {"gddl.table": spec.table, "gddl.kind": kind}
    own |= {"gddl.keys": ",".join(spec.keys)} if spec.keys else {}
    own |= {"gddl.owner": spec.owner} if spec.owner else {}
    return own | {f"gddl.tag.{name}": value for name, value in sorted(spec.tags.items())}


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
