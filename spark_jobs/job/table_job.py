"""Runs one table of a job: its action, its tasks, and the record of its run.

A stream may report the files of a run instead of a listing; batch code and ledger are the same. The ledger recognizes a
file that is notified twice, and files that a stream missed are found by the periodic full listing
(`file_names.FULL_LISTING_EVERY`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from airflow_gddl.contract.actions import REWRITES, Erase, Run
from airflow_gddl.contract.basics import CLEARING, LOADS
from airflow_gddl.contract.codes import (
    DELTA_MISSING,
    FILE_STREAM_FAILED,
    JAVA_MISSING,
    NEEDS_MANY_TASKS,
    NEEDS_SPARK,
    PACKAGE_MISSING,
    SPARK_GONE,
    UNEXPECTED,
    WORKER_DIED,
)
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.file_names import is_listing_due
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.source_access import of_tables
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.batch import notices
from spark_jobs.batch.damaged_tables import explained
from spark_jobs.batch.pending import replays_first_load, wants_source_load
from spark_jobs.batch.runtime import Runtime, cancelled, iso, spark_gone
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import Declined, RunTotals, TableOutcome, TaskOutcome, is_busy
from spark_jobs.batch.turns import require_supported
from spark_jobs.discovery import FileStreamSource, NotifiedFile, drain
from spark_jobs.job.job_faults import translated
from spark_jobs.job.run_results import in_order, is_recorded, write_record
from spark_jobs.job.stop import NEEDS_MEMORY
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.ledger.targets import TargetRecords
from spark_jobs.pipeline import bring_up_to_date, finished, idle_result, run_table
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.waiting_files import LandingRange
from spark_jobs.rooms.actions import action
from spark_jobs.rooms.features import features_of, installed_features
from spark_jobs.rooms.sources import reader_of
from spark_jobs.tables.places import DeclinedError, UnreadableLogError


def takes_stream(run: TableRun, state: TableState) -> bool:
    """Whether a stream may provide the files of this run; a run that needs the whole folder lists it."""
    options = run.job.options
    needs_listing = (
        of_tables(run.job.access, [run.spec])  # Spark's clients have the credentials of the job alone
        or not isinstance(options.action, Run)
        or options.full_listing
        or options.max_batches is not None
        or options.continuous is not None  # a continuous job has its own file discovery
        or run.spec.shards  # each source has a folder of its own
    )
    return (
        not run.in_one_task
        and not needs_listing
        and state.batch > 0
        and not is_listing_due(state.listed_in_full_at, run.runtime.clock())
    )


def run_streamed(run: TableRun, source: FileStreamSource, outcome: RunTotals) -> JobResult:
    """Bring one table up to date with what the stream reports; where the stream fails, with what a listing finds.

    Raises:
        GddlError: as `run_table`. The files of the failed group are notified again next time.
    """
    outcome.max_commit_ts = run.ledger().state.max_commit_ts
    spec, session = run.spec, run.runtime.spark.for_table()
    checkpoint = join(run.job.roots.lake, STATE, "streams", spec.schema_name, spec.name, source.name)

    def take(files: Sequence[NotifiedFile]) -> None:
        bring_up_to_date(replace(run, notified=tuple(files)), outcome)

    try:
        drain(source, session, run.layout.landing, checkpoint, take)
    except GddlError as error:
        if error.code != FILE_STREAM_FAILED:
            raise
        outcome.warn([RunWarning(code=FILE_STREAM_FAILED, message=str(error))])
        bring_up_to_date(run, outcome)
    return finished(run, outcome)


_LOG = logging.getLogger(__name__)
_OF_LOST_PROCESSES = (SPARK_GONE, WORKER_DIED)
_PLAIN = ("run", "handle_errors", "release")
"""Loads that take what has landed."""
_NO_SPARK = (NEEDS_SPARK, JAVA_MISSING, DELTA_MISSING, PACKAGE_MISSING)


def run_guarded(job: JobSpec, spec: TableSpec, runtime: Runtime) -> TableOutcome:
    """The table's outcome; nothing is raised."""
    done = attempt(TableRun(job=job, spec=spec, runtime=runtime), totals_of(job))
    return on_spark(job, done, runtime) if isinstance(done, Declined) else done


def not_started(job: JobSpec, spec: TableSpec, fault: GddlError) -> TableOutcome:
    """The failure of a table that the job could not poll."""
    return TableOutcome.of_failed(JobResult(table=spec.table, status="failed", run_id=job.run_id), fault)


def not_begun(run: TableRun, fault: GddlError) -> TableOutcome:
    """The failure of a table that was polled, and whose work could not begin."""
    totals = totals_of(run.job)
    totals.started_at, totals.tasks, totals.commit = iso(run.runtime.clock()), run.tasks, run.tier.commit
    if not run.spec.shards and not run.job.options.repairs:
        with suppress(GddlError):  # the fault is told all the same
            totals.mode = run.ledger().state.next_mode
    return TableOutcome.of_failed(run.result(totals), fault)


def totals_of(job: JobSpec) -> RunTotals:
    return RunTotals(mode="refresh" if job.options.repairs else "incremental")


def on_spark(job: JobSpec, declined: Declined, runtime: Runtime) -> TableOutcome:
    """Run the table over many tasks; it resumes a started batch."""
    run = TableRun(job=job, spec=declined.spec, runtime=runtime, declined=declined.reason)
    message = f"many tasks process it, because one task can't: {declined.reason}"
    declined.totals.warn([RunWarning(code=NEEDS_MANY_TASKS, message=message)])
    return cast("TableOutcome", attempt(run, declined.totals))  # Spark declines nothing


def attempt(run: TableRun, totals: RunTotals) -> TaskOutcome:
    """Run the action; nothing is raised."""
    totals.started_at, lost = iso(run.runtime.clock()), run.runtime.spark.losses()
    try:
        run.go_on()
        outcome = _with_features(run, TableOutcome(_counted(run, act(run, totals))))
    except DeclinedError as declined:
        damage = explained(run) if isinstance(declined, UnreadableLogError) else None
        if damage is None:
            return Declined(run.spec, declined.reason, totals)
        outcome = _failed(run, totals, damage)
    except Exception as error:  # noqa: BLE001 - one table's error must not stop the next table
        lacks_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException"
        if lacks_memory and run.in_one_task:
            return Declined(run.spec, NEEDS_MEMORY, totals)
        outcome = _failed(run, totals, _cause(error, run, lost))
    options = run.job.options
    result = replace(outcome.result, action=options.action.does, origin=options.origin)
    is_held = is_busy(result) and options.continuous is not None  # by another run, which is normal in a continuous job
    if is_recorded(result, dry_run=options.dry_run) and not is_held:
        result = _recorded(run, result)
    return replace(outcome, result=result)


def _counted(run: TableRun, result: JobResult) -> JobResult:
    """Add what is left in quarantine after an action that may have changed it, as one that failed after a batch has."""
    options = run.job.options
    if options.action.does not in (*LOADS, *CLEARING) or options.dry_run or result.status == "skipped":
        return result
    context = run.context()
    rows, files = context.quarantine.counts()
    return replace(result, in_quarantine=rows, files_in_quarantine=files)


def _with_features(run: TableRun, outcome: TableOutcome) -> TableOutcome:
    """Let features follow the tables; adds their warnings."""
    options = run.job.options
    if options.action.does not in (*LOADS, *REWRITES) or options.dry_run:
        return outcome
    if isinstance(options.action, Erase):
        for feature in installed_features():
            feature.forget_rows(run)
    if not run.spec.features:
        return outcome
    return outcome.with_warnings(warning for feature in features_of(run) for warning in feature.update(run))


def poll_table(run: TableRun) -> TableOutcome | int:
    """The outcome of an idle table, or of one that can't be polled; else what it has to do (`PendingWork.cost`).

    Zero: that could not be found out.
    """
    totals = totals_of(run.job)
    totals.started_at, totals.tasks = iso(run.runtime.clock()), run.tasks
    try:
        if run.spec.may_read_source and reader_of(run.spec).has_work(run, totals):
            return 0
        result = idle_result(run, totals)
        behind = bool(run.spec.features) and any(feature.has_work(run) for feature in features_of(run))
    except Exception:  # noqa: BLE001 - the next run raises it again, and reports it
        return 0
    if isinstance(result, int):
        return result
    return 0 if behind else TableOutcome(result)


def _failed(run: TableRun, totals: RunTotals, error: Exception) -> TableOutcome:
    fault = _needing_spark(run, translated(error))
    if fault.code == UNEXPECTED:
        with suppress(Exception):  # the failure is told all the same
            fault = explained(run) or fault
    # A `GddlError` is complete; for other errors the log has the traceback.
    _LOG.error("%s failed: %s", run.spec.table, fault, exc_info=None if fault is error else error)
    result = run.result(totals)
    if totals.batches:
        with suppress(Exception):  # the failure is told all the same
            result = _counted(run, result)
    return TableOutcome.of_failed(result, fault)


def _needing_spark(run: TableRun, fault: GddlError) -> GddlError:
    """A declined table that needs Spark, where Spark can't start: the message states that first, then the cause."""
    if not run.declined or fault.code not in _NO_SPARK:
        return fault
    what = f"{run.spec.table} needs Spark, since one task can't take it ({run.declined}), but {fault.what}"
    return type(fault)(fault.code, what, where=fault.where, remedy=fault.remedy)


def _cause(error: Exception, run: TableRun, lost: int) -> Exception:
    """The error; `JOB_CANCELLED` or `SPARK_GONE` if the job's end or the loss of Spark can be what made a call fail."""
    if (signal := run.runtime.stopped_by()) and (not isinstance(error, GddlError) or error.code in _OF_LOST_PROCESSES):
        stopped = cancelled(signal)
        stopped.__cause__ = error
        return stopped
    if isinstance(error, GddlError) or run.runtime.spark.losses() == lost:
        return error
    loss = spark_gone()
    loss.__cause__ = error
    return loss


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Run the job's action; those that load bring what is new in the source into files first."""
    totals.tasks = run.tasks
    asked = run.job.options.action
    name, loads = asked.name, asked.does in LOADS
    require_supported(run)
    if loads or name == "plan":
        before = TargetRecords(run.runtime.storage, run.job.roots, run.spec).former_target(keep=loads)
        totals.warn(notices.of_former_target(before, run.spec.table))
    if not loads:
        return action(name)(run, totals)
    if not run.spec.may_read_source:
        return _loaded(run, totals)
    return reader_of(run.spec).load(run, totals, _loaded)


def _loaded(run: TableRun, totals: RunTotals) -> JobResult:
    """What is asked for, after an unfinished rebuild or reload of an earlier run: only these go on with it."""
    options, ledger = run.job.options, run.ledger()
    ledgers = run.ledgers() if run.spec.shards else (ledger,)
    plans = [plan for one in ledgers if (plan := one.plan()) is not None]
    name, repaired = options.action.name, None
    if any(plan.mode == "refresh" for plan in plans) and not (options.repairs and LandingRange.of(options) is None):
        repaired = action("rebuild")(run.asking(Run()), totals)
        ledger, plans = run.ledger(), []
    done = _taken(run, totals, ledger, plans) if name in _PLAIN else action(name)(run, totals)
    return done if repaired is None else replace(done, mode="refresh", details=done.details or repaired.details)


def _taken(run: TableRun, totals: RunTotals, ledger: Ledger, plans: Sequence[BatchPlan]) -> JobResult:
    """What has landed, or what else of it is asked for."""
    if not run.spec.shards and replays_first_load(run, ledger):
        run = run.asking(Run())
        ledger = run.ledger()
    if wants_source_load(run, ledger):
        action("initial_load")(run, totals)
    source = run.runtime.files
    if source is not None and not plans and takes_stream(run, ledger.state):
        return run_streamed(run, source, totals)
    if not run.spec.shards:
        run.reuse_listing(ledger.listing)
    return run_table(run, totals)


def _recorded(run: TableRun, result: JobResult) -> JobResult:
    """Store the result as the table's newest run. Tables don't depend on it, so a failure is only logged."""
    try:
        result = in_order(run.runtime.storage, run.layout, result, run.runtime.clock())
        write_record(run.runtime.storage, run.layout, result)
    except (GddlError, ValueError) as error:
        _LOG.warning("the run of %s could not be recorded: %s", run.spec.table, error)
    return result
