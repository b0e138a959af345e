"""Merge: the replica and its history get the net change of each key, after truncates and before a sweep.

truncate ─► decide ─► tombstones ─► replica ─► sweep ─► history
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.result import MainCounts
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch import notices
from spark_jobs.batch.pending import replays
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.session import Batch, Swept, TableSession
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.applied_settings import history_begins, is_changed
from spark_jobs.plan.batching import generation_floors_of
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.sequence import is_after
from spark_jobs.plan.sweeps import SweepRule, held_sweep
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.figures import Figures

if TYPE_CHECKING:
    from spark_jobs.tables.engine import BatchWork, Engine
    from spark_jobs.tables.whole_tables import TableWriter


def merge(table: TableSession, batch: Batch) -> Batch:
    """Apply a batch's changes to replica and history; a batch without rows sweeps, or reconciles the tables."""
    work, plan, state = batch.work, batch.plan, table.state
    sweeps = plan.sweep and load_is_whole(plan, batch.bad_files, table.ledger)
    if work is None:
        swept = sweep_alone(table.context, plan, state, sweeps=sweeps)
        return replace(batch, main=swept.counts, swept=swept)
    cut = _truncate(table, work, plan) if plan.truncates is not None else MainCounts()
    work.decide()
    has_keys = bool(work.decoded_batch.schema.table_schema.keys)
    table.run.report("decide", plan.number)
    if has_keys:
        work.tombstones()
        table.run.report("tombstones", plan.number)
    main = _put_replica(table, plan, work)
    swept = sweep(table.context, work.tables, plan) if sweeps else Swept()
    table.run.report("replica", plan.number, main.inserted + main.updated + main.deleted)
    if has_keys and table.spec.history:
        _update_history(table, work, plan, swept)
    main = replace(main, updated=main.updated + cut.updated, deleted=main.deleted + swept.counts.deleted + cut.deleted)
    table.totals.commit = work.tables.commit_method
    purged_at = _purge_tombstones(table)
    if plan.source == "quarantine":
        work.resolve_rows()
    return replace(batch, main=main, swept=swept, purged_at=purged_at)


def _truncate(table: TableSession, work: BatchWork, plan: BatchPlan) -> MainCounts:
    """Delete rows before the truncates of a batch, before its other changes are applied."""
    done = work.tables.truncate()
    table.run.report("truncate", plan.number, done.deleted)
    updated = work.tables.fold_again()
    table.run.report("fold_again", plan.number, updated)
    return replace(done, updated=updated)


def _put_replica(table: TableSession, plan: BatchPlan, work: BatchWork) -> MainCounts:
    """Commit the replica; note what was late or is stale."""
    figures, applied = work.decoded_batch.figures, work.replica()
    table.note(applied.warnings)
    table.totals.late_ignored += applied.late
    if figures.quarantined:
        table.note(work.stale_rows())
    # A late snapshot is as a whole between two others, and what waited in quarantine was overtaken there.
    waited = plan.source == "quarantine" or replays(table.run)
    may_restart = table.spec.mode == "changes" and not waited
    if may_restart and is_late_as_a_whole(figures, table.state):
        table.note(notices.of_late_batch(applied.late))
    return applied.main


def _update_history(table: TableSession, work: BatchWork, plan: BatchPlan, swept: Swept) -> None:
    state = table.state
    of_all_keys = swept.done or plan.truncates is not None or history_begins(table.spec, state.applied)
    versions = work.tables if of_all_keys else work
    vanished = plan.generation if swept.done else state.swept
    versions.history(generation_floors_of(plan, state), swept=vanished)
    table.run.report("history", plan.number)


def _purge_tombstones(table: TableSession) -> str | None:
    """Once a day remove tombstones older than their retention; returns the time, or None."""
    now, path, last = table.run.runtime.clock(), table.layout.tombstones, table.state.tombstones_purged_at
    if last is not None and now - datetime.fromisoformat(last) < timedelta(days=1):
        return None
    if last is not None and table.spec.keys and table.context.tables.exists(path):
        since = tombstones_since(table.spec, now)
        table.context.maintenance.forget_tombstones(path, since, dry_run=False)
    return iso(now)


def load_is_whole(plan: BatchPlan, bad_files: Sequence[Unreadable], ledger: Ledger) -> bool:
    """Whether every file of the full load is readable: rows of unreadable files must not be swept."""
    if any(u.file.kind == "load" for u in bad_files):
        return False
    planned = {f.path for f in plan.files}
    others = (e for path, e in ledger.entries().items() if path not in planned)
    return not any(e.kind == "load" and e.state == "unreadable" and e.generation == plan.generation for e in others)


def is_late_as_a_whole(figures: Figures, state: TableState) -> bool:
    """Whether a batch has changes, and each precedes one of an earlier batch."""
    highs = [f.max_sequence for f in figures.files.values() if f.max_sequence is not None]
    known = state.max_sequence
    return known is not None and bool(highs) and all(is_after(known, high) for high in highs)


def sweep(context: Engine, work: TableWriter, plan: BatchPlan) -> Swept:
    """Sweep, unless it would remove a larger share of the replica than the row allows without a release."""
    rows, live = work.sweepable()
    held = held_sweep(plan, rows, live, SweepRule.of(context.spec))
    return Swept(held=held) if held is not None else Swept(done=True, counts=work.sweep())


def sweep_alone(context: Engine, plan: BatchPlan, state: TableState, *, sweeps: bool) -> Swept:
    """Run a batch without rows: for a missing folder, or a settled reload.

    Args:
        sweeps: remove rows of older generations; else tables are only reconciled with the row.
    """
    changed = is_changed(context.spec, state.applied)
    if not context.tables.exists(context.layout.replica) or not (sweeps or changed):
        return Swept(done=sweeps)
    work = context.table_work(plan, context.stored_schema(state))
    if changed:
        work.ensure_tables()
    swept = sweep(context, work, plan) if sweeps else Swept()
    derived = swept.done or history_begins(context.spec, state.applied)
    if derived and context.spec.history and context.spec.keys:
        vanished = plan.generation if swept.done else state.swept
        work.history(generation_floors_of(plan, state), swept=vanished)
    return swept


def tombstones_since(spec: TableSpec, now: datetime) -> datetime:
    """Tombstones of deletes that were applied before this time are removed, by a batch once a day or maintenance."""
    return now - timedelta(seconds=seconds(spec.tombstone_retention))
