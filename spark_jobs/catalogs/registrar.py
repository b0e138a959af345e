"""Registers one table: compares the stored state, the Delta log and the catalog's entries."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from airflow_gddl.contract.catalogs import CatalogSpec
from airflow_gddl.contract.registration import CatalogProblem, RegistrationState
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores.registrations import RegistrationStore
from spark_jobs.catalogs.opening import CatalogAccess, CatalogContext, OpenCatalog, open_catalog
from spark_jobs.catalogs.row import LEFT, RowCatalog, TableCheck, in_same_catalog, signature_of, tables_of

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
            return (RunWarning(code=problem.code, message=problem.message),)
        if problem is None and idle and self.is_news:
            return (RunWarning(code="CATALOG_REGISTERED", message="the catalog has the table's current state"),)
        if former := sorted(set(self.state.former) - set(self.before.former)):
            return (RunWarning(code="CATALOG_ENTRY_LEFT", message=LEFT, count=len(former), sample=tuple(former)),)
        left = [one for check in self.checks for one in check.change.left]
        if left:
            names = tuple(dict.fromkeys(f"{one.aspect} {one.name}".strip() for one in left))
            message = "the catalog can't alter this of an entry; readers take it from the Delta log"
            return (RunWarning(code="CATALOG_CHANGE_UNSUPPORTED", message=message, count=len(names), sample=names[:5]),)
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
                state=replace(before, problem=CatalogProblem(code="CATALOG_UNKNOWN", message=message)), before=before
            )
        signature = signature_of(spec, catalog)
        if idle and _holds(before, signature, version):
            self._known[spec.table] = before
            return Settled(state=before, before=before)
        row = self.row(job, spec, in_same_catalog(before, signature))
        checks, found = row.check_all(tables_of(self.storage, job, spec))
        state = _state_after(row.before, checks, found, signature, version)
        if state != before:
            state = self._dated(state)
            store.put(spec, state)
        self._known[spec.table] = state
        if found is not None:
            _LOG.warning("%s could not be registered: %s %s", spec.table, found.code, found.message)
        return Settled(state=state, before=before, checks=tuple(checks))

    def compare(self, job: JobSpec, spec: TableSpec, *, act: bool) -> tuple[list[TableCheck], CatalogProblem | None]:
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
        checks, problem = row.check_all(tables_of(self.storage, job, spec), restore=act, act=act)
        state = self._dated(_state_after(row.before, checks, problem, signature, before.version))
        if problem is None:
            left = replace(row, before=state if act else row.before).check_former()
            state = replace(state, former={check.name: state.former[check.name] for check in left})
            checks += left
            problem = CatalogProblem(code="CATALOG_ENTRY_LEFT", message=f"{left[0].name}: {LEFT}") if left else None
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


_PASSING = ("CATALOG_UNREACHABLE", "CATALOG_DENIED", "CATALOG_REFUSED")


def _state_after(
    before: RegistrationState, checks: list[TableCheck], problem: CatalogProblem | None, signature: str,
    version: int | None,
) -> RegistrationState:  # fmt: skip
    tables = dict(before.tables)
    tables |= {check.kind: check.registered for check in checks if check.registered is not None}
    former = {**before.former, **{old.name: old.location for old in before.tables.values()}}
    names = {one.name for one in tables.values()}
    former = {name: location for name, location in former.items() if name not in names}
    return replace(before, signature=signature, version=version, tables=tables, problem=problem, former=former)
