"""Registration in the background: results wait for it, tables don't."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from airflow_gddl.contract.layout import LOADS
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.catalogs.catalog_port import CatalogContext
from spark_jobs.catalogs.registrar import Registrar
from spark_jobs.job.run_results import is_recorded, write_record
from spark_jobs.table.runtime import Runtime, TableOutcome

_LOG = logging.getLogger(__name__)
_AT_ONCE = 4
Deliver = Callable[[TableOutcome], None]


def registrar_of(runtime: Runtime, lake: str) -> Registrar:
    around = CatalogContext(spark=runtime.spark.for_table, environ=runtime.environ, lake=lake)
    return Registrar(runtime.storage, around, runtime.clock)


class RegistrationQueue:
    """Takes outcomes of tables, registers the tables in separate threads, and passes the outcomes on."""

    def __init__(self, runtime: Runtime, lake: str) -> None:
        self._storage, self._registrar = runtime.storage, registrar_of(runtime, lake)
        self._pool: ThreadPoolExecutor | None = None
        self._open: list[Future[None]] = []

    def submit(self, job: JobSpec, spec: TableSpec, outcome: TableOutcome, deliver: Deliver) -> None:
        """`deliver` gets the outcome: at once without registration, else in another thread."""
        if not self._concerns(job, spec, outcome.result):
            deliver(outcome)
            return
        self._pool = self._pool or ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="catalog")
        self._raise_faults()
        self._open.append(self._pool.submit(self._one, job, spec, outcome, deliver))

    def close(self) -> None:
        """Wait for submitted outcomes; raises errors of `deliver`."""
        if self._pool is not None:
            self._pool.shutdown()
        self._raise_faults()

    def _raise_faults(self) -> None:
        done = [future for future in self._open if future.done()]
        self._open = [future for future in self._open if not future.done()]
        for future in done:
            future.result()

    def _concerns(self, job: JobSpec, spec: TableSpec, result: JobResult) -> bool:
        if spec.catalog is None or result.action not in LOADS or result.status == "failed" or result.version is None:
            return False
        return result.status != "skipped" or not self._registrar.is_settled(job, spec, result.version)

    def _one(self, job: JobSpec, spec: TableSpec, outcome: TableOutcome, deliver: Deliver) -> None:
        try:
            outcome = self._registered(job, spec, outcome)
        except Exception as error:  # noqa: BLE001 - the data is loaded, and its result must be reported
            _LOG.exception("%s could not be registered", spec.table)
            warning = RunWarning(code="CATALOG_REFUSED", message=f"{type(error).__name__}: {error}"[:400])
            outcome = _with(outcome, (warning,))
        deliver(outcome)

    def _registered(self, job: JobSpec, spec: TableSpec, outcome: TableOutcome) -> TableOutcome:
        result = outcome.result
        idle = result.status == "skipped"
        warnings = self._registrar.settle(job, spec, result.version, idle=idle).warnings(idle=idle)
        if not warnings:
            return outcome
        warned = _with(outcome, warnings)
        if is_recorded(warned.result):
            write_record(self._storage, job.roots, spec, warned.result)
        return warned


def _with(outcome: TableOutcome, warnings: tuple[RunWarning, ...]) -> TableOutcome:
    return replace(outcome, result=replace(outcome.result, warnings=(*outcome.result.warnings, *warnings)))
