"""What a job does besides running: plan, verify, list and replay the quarantine."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import ErrorInfo, JobResult
from spark_jobs.batch_schema import plan_batch
from spark_jobs.cut_mark import CutMark
from spark_jobs.desk import Desk
from spark_jobs.engines.figures import BUCKETS
from spark_jobs.engines.shape import Shape
from spark_jobs.outcome import Outcome
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.batching import next_batch
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.table_run import TableRun


def show_plan(run: TableRun, totals: Outcome) -> JobResult:
    """The batches that a run would make, without making them; never starts Spark."""
    started = run.runtime.clock()
    ledger = run.ledger()
    found = run.discover(ledger)
    state, batches = ledger.state, []
    require_same_identity(run.spec, state)
    begun = ledger.plan()
    while True:
        plan = begun or next_batch(found.waiting, limits=run.limits, state=state, now=run.runtime.clock())
        if plan is None:
            break
        batches.append(_described(plan, resumed=begun is not None))
        begun, found = None, found.without(plan)
        state = replace(state, batch=plan.number, generation=plan.generation)
    result = totals.result(run.spec.table, run.job.run_id, started, run.runtime.clock())
    details = {"batches": batches, "missing": list(found.missing), "folder_missing": found.folder_missing}
    return replace(result, status="succeeded" if batches else "skipped", details=details)


def _described(plan: BatchPlan, *, resumed: bool) -> dict[str, Any]:
    return {
        "batch": plan.number,
        "mode": plan.mode,
        "generation": plan.generation,
        "files": [f.path for f in plan.files],
        "bytes": sum(f.size for f in plan.files),
        "sweep": plan.sweep,
        "resumed": resumed,
    }


def verify(run: TableRun, totals: Outcome) -> JobResult:
    """Compare the replica with the fold of its change table; `VERIFY_DIFFERENT` when they differ."""
    started = run.runtime.clock()
    ledger = run.ledger()
    if ledger.state.keys is None:
        return totals.result(run.spec.table, run.job.run_id, started, run.runtime.clock())
    if ledger.plan() is not None:
        raise FatalError(
            "BATCH_UNFINISHED",
            f"{run.spec.table} has a batch that is not finished",
            where=run.layout.state,
            remedy="run the table first, then verify",
        )
    require_same_identity(run.spec, ledger.state)
    desk = run.desk()
    shape = shape_of(desk, ledger.state)
    verdict = desk.engine.verify(desk, shape, ledger.state.swept, run.job.options.limit)
    result = totals.result(run.spec.table, run.job.run_id, started, run.runtime.clock())
    cut = CutMark(run.runtime.storage, run.layout.state).read()
    details = {"verdict": "equal" if verdict.equal else "different", **asdict(verdict)}
    details["changes_cut_before"] = None if cut is None else cut.before
    result = replace(result, status="succeeded", details=details)
    if verdict.equal:
        return result
    message = (
        f"{verdict.buckets_different} of {BUCKETS} buckets differ: "
        f"{verdict.rows} rows, {verdict.expected_rows} expected"
    )
    remedy = f"Remedy: look at details.keys; `gddl run --table {run.spec.table} --full-refresh` rebuilds the replica."
    error = ErrorInfo(code="VERIFY_DIFFERENT", message=f"[VERIFY_DIFFERENT] {message}. {remedy}")
    return replace(result, status="failed", error=error)


def shape_of(desk: Desk, state: TableState) -> Shape:
    """The shape of a table as it stands."""
    return plan_batch(desk.spec, desk.options, (), desk.stored_columns(), state).shape


def list_errors(run: TableRun, totals: Outcome) -> JobResult:
    """Unresolved rows of the quarantine, oldest first."""
    started = run.runtime.clock()
    desk = run.desk()
    details: dict[str, Any] = {"unresolved": 0, "rows": []}
    if desk.engine.exists(desk.layout.errors):
        count, rows = desk.engine.unresolved(desk.layout.errors, run.job.options.limit)
        details = {"unresolved": count, "rows": rows}
    result = totals.result(run.spec.table, run.job.run_id, started, run.runtime.clock())
    return replace(result, status="succeeded", quarantined=details["unresolved"], details=details)
