"""The batches that a run would make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_gddl.contract.capture import capture_of
from airflow_gddl.contract.kafka import topic_of
from airflow_gddl.contract.result import JobResult
from spark_jobs.actions.reload import rebuild_batches, reload_batches
from spark_jobs.batch.pending import batches_ahead, wants_source_load
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.plan.waiting_files import Discovery


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """The batches that a run, or a repair, would make, without making them; never starts Spark."""
    pending = run.ledger().plan()  # which refuses a table that was loaded otherwise
    is_refresh = run.job.options.repairs or (pending is not None and pending.mode == "refresh")
    planned = [_refresh(run, totals)] if is_refresh else [_planned(one) for one in run.shard_runs() or (run,)]
    batches = [batch for one, _ in planned for batch in one]
    details = {
        "batches": batches,
        "missing": [path for _, discovery in planned for path in discovery.missing],
        "folder_missing": any(discovery.folder_missing for _, discovery in planned),
        "reads_first": _read_first(run),
    }
    return run.result(totals, status="succeeded" if batches else "skipped", details=details)


def _read_first(run: TableRun) -> str | None:
    """Where a run gets files from before it loads them, which no plan can foresee: `source`, `log` or `topic`."""
    as_run = replace(run, job=replace(run.job, options=replace(run.job.options, action="run")))
    if not run.spec.shards and wants_source_load(as_run, run.ledger()):
        return "source"
    if topic_of(run.spec):
        return "topic"
    return "log" if capture_of(run.spec) else None


def _refresh(run: TableRun, totals: RunTotals) -> tuple[list[dict[str, Any]], Discovery]:
    ledger, options = run.ledger(), run.job.options
    pending, known = ledger.plan(), ledger.state.keys is not None
    from_files = options.reload or options.resync or not known
    begun_from_files = pending is not None and pending.mode == "refresh" and pending.source == "files"
    reads_files = from_files or begun_from_files
    batches, discovery = reload_batches(run, totals) if reads_files else rebuild_batches(run)
    return [_described(plan, resumed=resumed) for plan, resumed in batches], discovery


def _planned(run: TableRun) -> tuple[list[dict[str, Any]], Discovery]:
    """The batches of a table, or of one of its sources, and what was found besides."""
    ledger = run.ledger()
    discovery = run.discover(ledger)
    require_same_identity(run.spec, ledger.state)
    ahead = batches_ahead(run, ledger.plan(), ledger.state, discovery)
    return [_described(replace(plan, shard=run.shard), resumed=resumed) for plan, resumed in ahead], discovery


def _described(plan: BatchPlan, *, resumed: bool) -> dict[str, Any]:
    return {
        "batch": plan.number,
        "mode": plan.mode,
        "generation": plan.generation,
        "files": [f.path for f in plan.files],
        "bytes": sum(f.size for f in plan.files),
        "sweep": plan.sweep,
        "resumed": resumed,
    } | ({"shard": plan.shard} if plan.shard else {})
