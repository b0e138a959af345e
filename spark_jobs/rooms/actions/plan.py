"""The batches that a run would make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_gddl.contract.actions import Plan
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.sources import reads_of
from spark_jobs.batch import notices
from spark_jobs.batch.own_tables import require_no_other_table
from spark_jobs.batch.pending import batches_ahead, looked, wants_source_load
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.pipeline import require_sound_tables
from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.plan.waiting_files import Discovery, LandingRange
from spark_jobs.rooms.actions.rebuild_run import reads_changes, require_possible
from spark_jobs.rooms.actions.reload_run import rebuild_batches, reload_batches, with_files_of
from spark_jobs.rooms.features import features_of
from spark_jobs.tables.places import DeclinedError


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """The batches that a run, or a repair, would make, without making them, or why it would be refused.

    Of a run it starts Spark only for tables that nothing else can read; of a rebuild of a table over many tasks always.
    No claim is taken, so that another run is no reason to refuse.

    Raises:
        GddlError: what the run would raise before its first write, as far as that is known without reading files.
    """
    features_of(run)
    runs = run.shard_runs() or (run,)
    pending = [one.ledger().plan() for one in (run, *runs)]  # which refuses a table that was loaded otherwise
    is_refresh = run.job.options.repairs or any(plan is not None and plan.mode == "refresh" for plan in pending)
    planned = [_refresh(one, totals) if is_refresh else _planned(one, totals) for one in runs]
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
    if not run.spec.shards and wants_source_load(run.asking(run.job.options.asked(Plan).of), run.ledger()):
        return "source"
    return reads_of(run.spec) or None


def _refresh(run: TableRun, totals: RunTotals) -> tuple[list[dict[str, Any]], Discovery]:
    """The same of a repair; a source of a table that has no batch yet is loaded by it."""
    ledger, options = run.ledger(), run.job.options
    if run.shard and ledger.state.batch == 0:
        return _planned(run, totals)
    if options.reloads or not (run.shard or reads_changes(run, ledger)):
        context = run.context_here()
        require_no_other_table(context, ledger)
        context.erasures.keys()
        if (landed := LandingRange.of(options)) is not None:
            discovery = with_files_of(run, ledger, landed)
            return _described(run, batches_ahead(run, ledger.plan(), ledger.state, discovery)), discovery
        batches, discovery = reload_batches(run, totals)
    else:
        require_possible(run, ledger)
        batches, discovery = rebuild_batches(run)
    return _described(run, batches), discovery


def _planned(run: TableRun, totals: RunTotals) -> tuple[list[dict[str, Any]], Discovery]:
    """The batches of a table, or of one of its sources, and what was found besides."""
    ledger = run.ledger()
    seen, has_work = looked(run.asking(run.job.options.asked(Plan).of), totals)
    if has_work:
        _require_loadable(run, ledger, seen.discovery)
    totals.warn(notices.of_tried_loads(ledger))
    return _described(run, batches_ahead(run, ledger.plan(), ledger.state, seen.discovery)), seen.discovery


def _require_loadable(run: TableRun, ledger: Ledger, discovery: Discovery) -> None:
    context = run.context_here()
    context.erasures.keys()
    try:
        require_sound_tables(run, context, ledger)
    except DeclinedError:
        if run.in_one_task:
            raise
        require_sound_tables(run, run.context(), ledger)
    if ledger.plan() is None:
        notices.require_generations(discovery, run.spec.table)


def _described(run: TableRun, batches: Iterable[tuple[BatchPlan, bool]]) -> list[dict[str, Any]]:
    """Each batch, of which it is said whether it is resumed."""
    return [
        {
            "batch": plan.number,
            "mode": plan.mode,
            "generation": plan.generation,
            "files": [f.path for f in plan.files],
            "bytes": plan.size,
            "sweep": plan.sweep,
            "resumed": resumed,
        }
        | ({"shard": run.shard} if run.shard else {})
        for plan, resumed in batches
    ]
