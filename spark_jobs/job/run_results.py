"""Results of a job in the lake: for submitters, the records of runs, and registration in catalogs in the background."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import REWRITES
from airflow_gddl.contract.basics import LOADS, UPKEEP
from airflow_gddl.contract.codes import CATALOG_REFUSED
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import RECORD_TIME, Layout, join, record_name, result_name, results_folder
from airflow_gddl.contract.result import JobResult, RunWarning, is_idle
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.rooms.catalogs.catalog_port import CatalogContext
from spark_jobs.rooms.catalogs.registrar import Registrar, is_iceberg

_READ_WITHIN = 90.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResultStore:
    """The results of one job. The reader submits a table again if its result could not be written."""

    storage: Storage
    folder: str
    is_continuous: bool = False
    clock: Callable[[], float] = time.monotonic
    _done: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, job: JobSpec, storage: Storage) -> ResultStore:
        return cls(storage, results_folder(job.roots.lake, job.run_id), job.options.continuous is not None)

    def put(self, result: JobResult) -> None:
        """If a platform starts the same job twice, an idle result does not replace that of a load."""
        path = join(self.folder, result_name(result.table))
        data = codec.to_json(result).encode()
        if self.is_continuous and self._is_too_soon(result):
            return
        try:
            keeps = result.status == "skipped" and not self.is_continuous
            if keeps and (self.storage.create(path, data) or not self._is_failed(path)):
                return
            self.storage.write(path, data)
        except GddlError as error:
            _LOG.warning("the result of %s could not be written: %s", result.table, error)

    def _is_too_soon(self, result: JobResult) -> bool:
        """Whether an idle result of a continuous job would replace a result that may not have been read."""
        if result.status != "skipped":
            self._done[result.table] = self.clock()
        return result.status == "skipped" and self.clock() - self._done.get(result.table, float("-inf")) < _READ_WITHIN

    def _is_failed(self, path: str) -> bool:
        try:
            return bool(json.loads(self.storage.read(path)).get("status") == "failed")
        except (FileNotFoundError, ValueError):
            return True


def is_recorded(result: JobResult, *, dry_run: bool = False) -> bool:
    """Whether a run leaves a record: it did something, failed, or found a foreign commit.

    Read-only actions leave none.

    Maintenance without work leaves none, like idle loads (docs/decisions/delta-and-ledger.md).
    """
    if result.action in LOADS:
        return not is_idle(result)
    if result.action not in UPKEEP or dry_run or result.status == "skipped":
        return False
    return result.action != "maintain" or result.status == "failed" or any((result.details or {}).values())


def for_record(result: JobResult) -> JobResult:
    """The result without columns and keys of rows: these are for the caller only."""
    result = replace(result, columns=(), columns_left_out=0)
    details = result.details
    if result.action != "verify" or not isinstance(details, Mapping):
        return result
    source = details.get("source")
    shown = {name: value for name, value in details.items() if name != "keys"}
    if isinstance(source, Mapping):
        shown["source"] = {name: value for name, value in source.items() if name != "keys"}
    return replace(result, details=shown)


def in_order(storage: Storage, layout: Layout, result: JobResult, now: datetime) -> JobResult:
    """The result, begun after every run on record: of those that begin in the future a clock was set back since."""
    later = [record.name for record in storage.list(layout.runs, f"{now:{RECORD_TIME}}")]
    times = [name.partition("-")[0] for name in later if "/" not in name and name.endswith(".json")]
    if not times:
        return result
    newest = datetime.strptime(max(times), RECORD_TIME).replace(tzinfo=UTC)
    begun = (newest + timedelta(microseconds=1)).isoformat(timespec="microseconds")
    return replace(result, started_at=max(begun, result.started_at))


def write_record(storage: Storage, layout: Layout, result: JobResult) -> None:
    """Store what is kept of the result as the record of its run."""
    record = for_record(result)
    name = record_name(datetime.fromisoformat(record.started_at), record.run_id, record.action)
    storage.write(join(layout.runs, name), codec.to_json(record).encode())


_AT_ONCE = 4
Deliver = Callable[[TableOutcome], None]


def registrar_of(runtime: Runtime, lake: str) -> Registrar:
    around = CatalogContext(spark=runtime.spark.for_table, environ=runtime.environ, storage=runtime.storage, lake=lake)
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

    def follow(self, job: JobSpec, spec: TableSpec) -> None:
        """Point an Iceberg catalog to what is there between two batches, in the thread of the table."""
        if not is_iceberg(job.catalogs.get(spec.catalog or "")):
            return
        try:
            self._registrar.follow(job, spec)
        except Exception:  # noqa: BLE001 - the end of the run registers the table, and reports what is wrong
            _LOG.exception("%s could not be registered between batches", spec.table)

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
        if spec.catalog is None or result.status == "failed":
            return False
        if result.action in REWRITES and is_iceberg(job.catalogs.get(spec.catalog)):
            return result.status != "skipped" and not job.options.dry_run
        if result.action not in LOADS or result.version is None:
            return False
        return result.status != "skipped" or not self._registrar.is_settled(job, spec, result.version)

    def _one(self, job: JobSpec, spec: TableSpec, outcome: TableOutcome, deliver: Deliver) -> None:
        try:
            outcome = self._registered(job, spec, outcome)
        except Exception as error:  # noqa: BLE001 - the data is loaded, and its result must be reported
            _LOG.exception("%s could not be registered", spec.table)
            warning = RunWarning(code=CATALOG_REFUSED, message=f"{type(error).__name__}: {error}"[:400])
            outcome = outcome.with_warnings((warning,))
        deliver(outcome)

    def _registered(self, job: JobSpec, spec: TableSpec, outcome: TableOutcome) -> TableOutcome:
        result = outcome.result
        warnings = self._registrar.settle(job, spec, result.version, idle=result.status == "skipped")
        if not warnings:
            return outcome
        warned = outcome.with_warnings(warnings)
        if is_recorded(warned.result):
            write_record(self._storage, Layout.of(job.roots, spec), warned.result)
        return warned
