"""All tables of a JobSpec; a table that fails never stops another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from airflow_gddl.contract.actions import CompareCatalogs
from airflow_gddl.contract.codes import SETUP
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import LandingFolder, places_of
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.s3 import CODES, is_s3
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime
from spark_jobs.batch.totals import Declined, TableOutcome
from spark_jobs.job.run_results import RegistrationQueue, registrar_of
from spark_jobs.job.table_job import not_started, on_spark, run_guarded
from spark_jobs.rooms.catalogs.registrar import Registrar

_AT_ONCE = 4


def compare_all(job: JobSpec, runtime: Runtime, show: Callable[[JobResult], None]) -> list[TableOutcome]:
    """An outcome for each table of the job, `skipped` without a catalog; several tables run at once."""
    registrar = registrar_of(runtime, job.roots.lake)
    outcomes = []
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="catalog") as pool:
        for outcome in pool.map(lambda spec: _one(job, spec, registrar, runtime.clock()), job.tables):
            show(outcome.result)
            outcomes.append(outcome)
    return outcomes


def _one(job: JobSpec, spec: TableSpec, registrar: Registrar, started: datetime) -> TableOutcome:
    action = job.options.action
    at = started.isoformat(timespec="microseconds")
    result = JobResult(table=spec.table, status="skipped", action=action.does, run_id=job.run_id, started_at=at)
    if spec.catalog is None:
        return TableOutcome(replace(result, details={"catalog": None, "tables": []}))
    try:
        checks, problem = registrar.compare(job, spec, act=action.does == "catalog_sync")
    except GddlError as error:
        return TableOutcome.of_failed(result, error)
    shown = [{"kind": check.kind, "name": check.name, **asdict(check.change)} for check in checks]
    warnings = () if problem is None else (RunWarning(code=problem.code, message=problem.message),)
    details = {"catalog": spec.catalog, "tables": shown}
    return TableOutcome(replace(result, status="succeeded", details=details, warnings=warnings))


Show = Callable[[JobResult], None]


def run_job(job: JobSpec, runtime: Runtime, show: Show) -> list[TableOutcome]:
    """Run every table of the job; `show` gets each result once it is durable.

    Tables in one task each are spread where the runtime has a spread; the others, and those that are declined, share a
    Spark, as many at once as the job has cores.

    The outcomes are in the order of the job's tables.
    """
    done = _Outcomes(show, job, RegistrationQueue(runtime, job.roots.lake))
    runtime, reached = replace(runtime, follow=done.follow), list[TableSpec]()
    faults = unreachable(job, runtime.storage)
    for spec in job.tables:
        if (fault := faults.get(spec.table)) is None:
            reached.append(spec)
        else:
            done.add(not_started(job, spec, fault))
    if isinstance(job.options.action, CompareCatalogs):
        compared = compare_all(replace(job, tables=tuple(reached)), runtime, show)
        done.by_table |= {outcome.table: outcome for outcome in compared}
        return done.all()
    in_tasks, others = ([], reached) if runtime.spread is None else by_tasks(job, reached)
    remaining: list[TableSpec | Declined] = [*others]
    for answer in () if runtime.spread is None else runtime.spread.run(job, in_tasks):
        if isinstance(answer, Declined):
            remaining.append(answer)
        else:
            done.add(answer)

    def one(item: TableSpec | Declined) -> None:
        done.add(on_spark(job, item, runtime) if isinstance(item, Declined) else run_guarded(job, item, runtime))

    if remaining:
        at_work = [item.spec if isinstance(item, Declined) else item for item in remaining]
        with ThreadPoolExecutor(threads_of(job, at_work), thread_name_prefix="table") as pool:
            list(pool.map(one, remaining))
    return done.all()


@dataclass
class _Outcomes:
    """Outcomes so far; each is shown once its table is registered."""

    show: Show
    job: JobSpec
    registrations: RegistrationQueue
    by_table: dict[str, TableOutcome] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._specs = {spec.table: spec for spec in self.job.tables}

    def add(self, outcome: TableOutcome) -> None:
        self.registrations.submit(self.job, self._specs[outcome.table], outcome, self._show)

    def follow(self, table: str) -> None:
        """Point to what a batch of the table has written; other batches follow."""
        self.registrations.follow(self.job, self._specs[table])

    def all(self) -> list[TableOutcome]:
        """In the order of the job's tables, once the last one is registered."""
        self.registrations.close()
        return [self.by_table[name] for name in self._specs]

    def _show(self, outcome: TableOutcome) -> None:
        with self._lock:
            self.by_table[outcome.table] = outcome
            self.show(outcome.result)


def unreachable(job: JobSpec, storage: Storage) -> dict[str, GddlError]:
    """Tables whose landing root or lake is unreachable, found before any write; table to error.

    A root that may not be listed as a whole is accepted: its folders may be.
    """
    if len(job.tables) == 1:
        return {}  # its run finds the same
    root_faults = {
        root: fault for root in places_of(job) if is_s3(root) and (fault := _fault(root, storage)) is not None
    }
    if not root_faults:
        return {}
    faults: dict[str, GddlError] = {}
    for spec in job.tables:
        of_sources = [root_faults.get(folder.root) for folder in LandingFolder.all_of(job.roots, spec)]
        # Where one of several sources can be reached, the run says of each other why it can't.
        fault = root_faults.get(job.roots.lake) or (None if None in of_sources else of_sources[0])
        faults |= {} if fault is None else {spec.table: fault}
    return faults


def _fault(root: str, storage: Storage) -> GddlError | None:
    try:
        storage.exists(root)
    except GddlError as error:
        if error.code in CODES:
            return error
    return None


def by_tasks(job: JobSpec, specs: Sequence[TableSpec]) -> tuple[list[TableSpec], list[TableSpec]]:
    """Tables in one task each, and the others: those over many tasks, of `commit: merge`, and of unknown tiers."""
    groups: tuple[list[TableSpec], list[TableSpec]] = ([], [])
    for spec in specs:
        groups[0 if spec.size in job.tiers and job.tier_of(spec).in_one_task else 1].append(spec)
    return groups


def threads_of(job: JobSpec, specs: Sequence[TableSpec]) -> int:
    """Number of concurrent tables: small tables share Spark, a large one uses all of it."""
    tiers = [job.tiers[spec.size] for spec in specs if spec.size in job.tiers]
    if not tiers or any(tier.tables_per_job == 1 for tier in tiers):
        return 1
    return max(1, min(len(tiers), *(tier.cores for tier in tiers)))


def exit_status(outcomes: Sequence[TableOutcome]) -> int:
    """0 all succeeded; 1 some failed; 2 only for what the installation lacks; 75 only retriable errors."""
    failed = [o for o in outcomes if o.result.status == "failed"]
    if not failed:
        return 0
    if all(o.result.error is not None and o.result.error.code in SETUP for o in failed):
        return 2
    return 75 if all(o.retriable for o in failed) else 1
