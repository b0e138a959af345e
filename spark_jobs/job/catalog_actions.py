"""`gddl catalog diff` and `gddl catalog sync`: compare all tables of the job with their catalogs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import datetime

from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.result import JobResult, RunWarning, error_info
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.catalogs.registrar import Registrar
from spark_jobs.job.registration import registrar_of
from spark_jobs.table.outcome import TableOutcome
from spark_jobs.table.runtime import Runtime

CATALOG_ACTIONS = ("catalog_diff", "catalog_sync")
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
    result = JobResult(table=spec.table, status="skipped", action=action, run_id=job.run_id, started_at=at)
    if spec.catalog is None:
        return TableOutcome(replace(result, details={"catalog": None, "tables": []}))
    try:
        checks, problem = registrar.compare(job, spec, act=action == "catalog_sync")
    except GddlError as error:
        failed = replace(result, status="failed", error=error_info(error))
        return TableOutcome(failed, isinstance(error, RetriableError))
    shown = [{"kind": check.kind, "name": check.name, **asdict(check.change)} for check in checks]
    warnings = () if problem is None else (RunWarning(code=problem.code, message=problem.message),)
    details = {"catalog": spec.catalog, "tables": shown}
    return TableOutcome(replace(result, status="succeeded", details=details, warnings=warnings))
