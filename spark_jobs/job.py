"""All tables of a JobSpec; a table that fails never stops another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs import actions, notices
from spark_jobs.engines.base import DeclinedError
from spark_jobs.faults import translated
from spark_jobs.outcome import Outcome
from spark_jobs.pipeline import run_table
from spark_jobs.refresh import refresh_table
from spark_jobs.runtime import Runtime
from spark_jobs.table_run import TableRun

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableOutcome:
    """A result, and whether its failure may pass by itself."""

    result: JobResult
    passing: bool = False


def run_job(job: JobSpec, runtime: Runtime, show: Callable[[JobResult], None]) -> list[TableOutcome]:
    """Work off every table of the job, as many at once as it has cores; `show` gets each result once it is durable.

    The outcomes are in the order of the job's tables.
    """
    shown = threading.Lock()

    def one(spec: TableSpec) -> TableOutcome:
        outcome = _run_guarded(job, spec, runtime)
        with shown:
            show(outcome.result)
        return outcome

    with ThreadPoolExecutor(threads_of(job), thread_name_prefix="table") as pool:
        return list(pool.map(one, job.tables))


def threads_of(job: JobSpec) -> int:
    """Tables at once: a small table leaves most of Spark idle; a large one takes it all."""
    tiers = [job.tiers[t.size] for t in job.tables if t.size in job.tiers]
    if not tiers or any(tier.tables_per_job == 1 for tier in tiers):
        return 1
    return max(1, min(len(tiers), *(tier.cores for tier in tiers)))


def exit_status(outcomes: Sequence[TableOutcome]) -> int:
    """0 all succeeded; 1 some failed; 75 only passing faults."""
    failed = [o for o in outcomes if o.result.status == "failed"]
    if not failed:
        return 0
    return 75 if all(o.passing for o in failed) else 1


def _run_guarded(job: JobSpec, spec: TableSpec, runtime: Runtime) -> TableOutcome:
    started = runtime.clock()
    totals = Outcome(mode="refresh" if job.options.full_refresh else "incremental")
    try:
        result, passing = _on_some_engine(TableRun(job=job, spec=spec, runtime=runtime), totals), False
    except Exception as error:  # noqa: BLE001 - whatever happens to one table, the next is still run
        fault = translated(error)
        # Our own errors say all there is to say; of others the log keeps the traceback.
        _LOG.error("%s failed: %s", spec.table, fault, exc_info=None if fault is error else error)
        failed = totals.result(spec.table, job.run_id, started, runtime.clock())
        result = replace(failed, status="failed", error=ErrorInfo(code=fault.code, message=str(fault)))
        passing = isinstance(fault, RetriableError)
    if job.options.action in ("run", "errors_replay") and result.status != "skipped":
        _record(job, spec, runtime, result, started)
    return TableOutcome(result, passing)


def _on_some_engine(run: TableRun, totals: Outcome) -> JobResult:
    """On the tier's engine; on Spark where that declines. What the one has begun the other goes on with."""
    try:
        return act(run, totals)
    except DeclinedError as declined:
        totals.warn([notices.of_fallback(run.engine, declined.reason)])
        return act(replace(run, instead="spark"), totals)


def act(run: TableRun, totals: Outcome) -> JobResult:
    """The action that the job asks for."""
    totals.engine = run.engine
    match run.job.options.action:
        case "plan":
            return actions.show_plan(run, totals)
        case "verify":
            return actions.verify(run, totals)
        case "errors_list":
            return actions.list_errors(run, totals)
        case _:
            return _run(run, totals)


def _run(run: TableRun, totals: Outcome) -> JobResult:
    """The run that is asked for, or the full refresh that a run before this one began and did not finish."""
    begun = run.ledger().plan()
    if run.job.options.full_refresh or (begun is not None and begun.mode == "refresh"):
        return refresh_table(run, totals)
    return run_table(run, totals)


def _record(job: JobSpec, spec: TableSpec, runtime: Runtime, result: JobResult, started: datetime) -> None:
    """Keep the result as the table's newest run. The tables are right without it, so a failure here is only logged."""
    name = f"{started:%Y%m%dT%H%M%S%f}-{job.run_id}.json"
    try:
        runtime.storage.write(join(Layout.of(job.roots, spec).runs, name), codec.to_json(result).encode())
    except GddlError as error:
        _LOG.warning("the run of %s could not be recorded: %s", spec.table, error)
