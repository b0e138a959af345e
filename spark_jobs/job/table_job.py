"""One table of a job, whatever happens to it: the action, the engine that takes it, the record of its run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import cast

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import Layout, join, record_name
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.actions import inspection as actions
from spark_jobs.actions.notified_run import run_streamed, takes_stream
from spark_jobs.actions.refresh import refresh_table
from spark_jobs.engines.base import DeclinedError
from spark_jobs.job.faults import translated
from spark_jobs.job.run_records import for_record, is_recorded
from spark_jobs.maintenance.maintain import maintain
from spark_jobs.pipeline import idle_result, run_table
from spark_jobs.table import notices
from spark_jobs.table.outcome import Declined, Outcome, TableOutcome, is_busy
from spark_jobs.table.run import TableRun
from spark_jobs.table.runtime import Runtime, spark_gone

_LOG = logging.getLogger(__name__)
_NO_SPARK = ("JAVA_MISSING", "DELTA_MISSING", "S3A_MISSING")


def run_guarded(job: JobSpec, spec: TableSpec, runtime: Runtime) -> TableOutcome:
    """The table's outcome; nothing is raised."""
    done = attempt(TableRun(job=job, spec=spec, runtime=runtime), totals_of(job))
    return on_spark(job, done, runtime) if isinstance(done, Declined) else done


def not_begun(job: JobSpec, spec: TableSpec, fault: GddlError) -> TableOutcome:
    """Of a table that the job could not even look at."""
    info = ErrorInfo(code=fault.code, message=str(fault))
    result = JobResult(table=spec.table, status="failed", run_id=job.run_id, error=info)
    return TableOutcome(result, isinstance(fault, RetriableError))


def totals_of(job: JobSpec) -> Outcome:
    return Outcome(mode="refresh" if job.options.full_refresh else "incremental")


def on_spark(job: JobSpec, declined: Declined, runtime: Runtime) -> TableOutcome:
    """Let Spark take the table; it goes on with whatever was begun."""
    run = TableRun(job=job, spec=declined.spec, runtime=runtime, instead="spark", declined=declined.reason)
    declined.totals.warn([notices.of_fallback("delta_rs", declined.reason)])
    return cast("TableOutcome", attempt(run, declined.totals))  # Spark declines nothing


def attempt(run: TableRun, totals: Outcome) -> TableOutcome | Declined:
    """Carry out the action; nothing is raised."""
    started, lost = run.runtime.clock(), run.runtime.spark.losses()
    try:
        result, retriable = act(run, totals), False
    except DeclinedError as declined:
        return Declined(run.spec, declined.reason, totals)
    except Exception as error:  # noqa: BLE001 - whatever happens to one table, the next is still run
        if _lacks_memory(error) and run.engine == "delta_rs":
            return Declined(run.spec, "it needs more memory than delta_rs_memory", totals)
        result, retriable = _failed(run, totals, started, _cause(error, run, lost))
    options = run.job.options
    result = replace(result, action=options.action, origin=options.origin)
    if is_recorded(result, dry_run=options.dry_run) and not _is_held(run, result):
        _record(run, for_record(result), started)
    return TableOutcome(result, retriable)


def _is_held(run: TableRun, result: JobResult) -> bool:
    """By another run: nothing is wrong with that to a continuous job."""
    return is_busy(result) and run.job.options.continuous is not None


def poll_table(run: TableRun) -> TableOutcome | int:
    """The outcome of a table that has nothing to do, or can't even be looked at; else the bytes of its work."""
    started, totals = run.runtime.clock(), totals_of(run.job)
    totals.engine = run.engine
    try:
        found = idle_result(run, totals)
    except Exception:  # noqa: BLE001 - the run that follows meets it again, and tells
        return 0
    if isinstance(found, int):
        return found
    return TableOutcome(replace(found, started_at=started.isoformat(timespec="microseconds")))


def _failed(run: TableRun, totals: Outcome, started: datetime, error: Exception) -> tuple[JobResult, bool]:
    fault = _needing_spark(run, translated(error))
    # Our own errors say all there is to say; of others the log keeps the traceback.
    _LOG.error("%s failed: %s", run.spec.table, fault, exc_info=None if fault is error else error)
    failed = totals.result(run.spec.table, run.job.run_id, started, run.runtime.clock())
    info = ErrorInfo(code=fault.code, message=str(fault))
    return replace(failed, status="failed", error=info), isinstance(fault, RetriableError)


def _needing_spark(run: TableRun, fault: GddlError) -> GddlError:
    """A table of a light engine that needs Spark, where Spark can't start: that comes first, then why it can't."""
    if not run.declined or fault.code not in _NO_SPARK:
        return fault
    what = f"{run.spec.table} needs Spark, since engine delta_rs can't take it ({run.declined}), but {fault.what}"
    return type(fault)(fault.code, what, where=fault.where, remedy=fault.remedy)


def _cause(error: Exception, run: TableRun, lost: int) -> Exception:
    """The error, or that Spark was lost meanwhile: what is called then fails in whatever way."""
    if isinstance(error, GddlError) or run.runtime.spark.losses() == lost:
        return error
    gone = spark_gone()
    gone.__cause__ = error
    return gone


def _lacks_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException"


def act(run: TableRun, totals: Outcome) -> JobResult:
    """The action that the job asks for."""
    totals.engine = run.engine
    return _ACTIONS.get(run.job.options.action, _run)(run, totals)


def _erase(run: TableRun, totals: Outcome) -> JobResult:
    from spark_jobs.maintenance.erase import erase  # noqa: PLC0415 - seldom asked for, and it reads files: others start sooner

    return erase(run, totals)


def _explain(run: TableRun, totals: Outcome) -> JobResult:
    from spark_jobs.actions.explain import explain  # noqa: PLC0415 - seldom asked for, and it imports rules: others start sooner

    return explain(run, totals)


_ACTIONS: Mapping[str, Callable[[TableRun, Outcome], JobResult]] = {
    "plan": actions.show_plan,
    "verify": actions.verify,
    "explain": _explain,
    "erase": _erase,
    "maintain": maintain,
    "errors_list": actions.list_errors,
}
"""Actions that load nothing."""


def _run(run: TableRun, totals: Outcome) -> JobResult:
    """The run that is asked for, or the full refresh that a run before this one began and did not finish."""
    ledger = run.ledger()
    begun = ledger.plan()
    if run.job.options.full_refresh or (begun is not None and begun.mode == "refresh"):
        return refresh_table(run, totals)
    source = run.runtime.files
    if source is not None and begun is None and takes_stream(run, ledger.state):
        return run_streamed(run, source, totals)
    return run_table(run, totals)


def _record(run: TableRun, result: JobResult, started: datetime) -> None:
    """Keep the result as the table's newest run. The tables are right without it, so a failure here is only logged."""
    name = record_name(started, run.job.run_id, result.action)
    path = join(Layout.of(run.job.roots, run.spec).runs, name)
    try:
        run.runtime.storage.write(path, codec.to_json(result).encode())
    except GddlError as error:
        _LOG.warning("the run of %s could not be recorded: %s", run.spec.table, error)
