"""Generations in a full refresh: from the ledger, or from the change table where the ledger is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from airflow_gddl.contract.result import RunWarning
from spark_jobs.dialects.base import Dialect
from spark_jobs.engines.port import TableContext
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.files import FileEntry
from spark_jobs.plan.generations import Recorded, reconstruct
from spark_jobs.plan.sequence import greater
from spark_jobs.plan.snapshots import KnownSnapshots, SnapshotRun, floors_of, text_of
from spark_jobs.plan.sweeping import SweepRule, sweep_state
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.sequence_text import normal_json
from spark_jobs.table import notices
from spark_jobs.table.outcome import RunTotals
from spark_jobs.table.run import TableRun


def recorded_files(context: TableContext, state: TableState) -> Recorded | None:
    """Generations by the change table; null where the ledger has them, or there is no change table."""
    if state.batch or state.schemas or not context.engine.exists(context.layout.changes):
        return None
    return Recorded(context.engine.recorded_files(context))


def seed(state: TableState, recorded: Recorded | None, dialect: Dialect, *, archives: bool = False) -> TableState:
    """State that a shadow ledger inherits: schema ids, generations, snapshots of the source.

    Args:
        archives: the files alone are to say what there is; so they do of snapshots.
    """
    if recorded is None:
        known = None if state.snapshots is None else dialect.replaced_snapshots(state.snapshots)
        known = KnownSnapshots() if archives and dialect.log_positions else known
        return TableState(batch=1, generation=max(state.generation, 1), schemas=state.schemas, snapshots=known,
                          generation_floor=floors_of(state.generation_floor or (None,), known))  # fmt: skip
    generations = range(1, recorded.generation + 1)
    return TableState(batch=1, generation=recorded.generation,
                      snapshots=_recorded_snapshots(recorded) if dialect.log_positions else None,
                      generation_floor=tuple(recorded.highest_before(g) for g in generations))  # fmt: skip


def _recorded_snapshots(recorded: Recorded) -> KnownSnapshots | None:
    """Snapshots of the source as the change table has them: its generations begin where they do in the log.

    The newest change counts as the place of the last one, so that no other of the files opens a generation.
    """
    places = [(g, text_of(recorded.lowest_of(g))) for g in range(2, recorded.generation + 1)]
    runs = [SnapshotRun(generation=g, position=place, whole=True) for g, place in places if place is not None]
    newest = text_of(recorded.highest_before(recorded.generation + 1))
    if newest is None:
        return None
    last = SnapshotRun(generation=recorded.generation, position=newest, opens=False, whole=True)
    return KnownSnapshots(runs=(*runs, last))


def by_ledger(run: TableRun, live: Ledger, found: Discovery, totals: RunTotals, *, archives: bool = False) -> Discovery:
    """The files with the generations that the live ledger gave them, or would give them now.

    Where places in the source's log say the generations of changes, a reload gives all files the current one: their
    snapshots open later ones.

    Raises:
        FatalError: as `notices.require_known_generations`.
    """
    waiting = run.discover(live)
    notices.require_known_generations(waiting.inference, run.spec.table)
    totals.warn(notices.of_generations(waiting.inference))
    if archives and run.dialect.log_positions:
        return _with_generations(found, dict.fromkeys((f.path for f in found.waiting), max(live.state.generation, 1)))
    known = {path: entry.generation for path, entry in live.all_entries().items()}
    return _with_generations(found, {**known, **{file.path: file.generation for file in waiting.waiting}})


def by_change_table(found: Discovery, recorded: Recorded, totals: RunTotals) -> Discovery:
    """The files with generations that are inferred without a ledger, with a warning."""
    files = found.waiting
    message = (
        "the ledger was lost: which full load files belong to was taken from the change table, and of files that it "
        "does not know from their times; compare the table with its source"
    )
    paths = tuple(file.path for file in files[: notices.SAMPLE])
    totals.warn([RunWarning(code="GENERATIONS_INFERRED", message=message, count=len(files), sample=paths)])
    return _with_generations(found, reconstruct(files, recorded))


def _with_generations(found: Discovery, generations: Mapping[str, int]) -> Discovery:
    """The files with these generations, in the order of ingestion."""
    files = [replace(f, generation=generations.get(f.path, f.generation)) for f in found.waiting]
    return replace(found, waiting=tuple(sorted(files, key=lambda f: f.generation)))


def sweep_after_refresh(
    plan: BatchPlan, before: TableState, after: TableState, files: Mapping[str, FileEntry], rule: SweepRule
) -> tuple[TableState, Discovery]:
    """The state with the first generation whose rows remain in the rebuilt replica, and why older ones remain.

    Rows that the files lack are swept if the newest full load is complete: a user requested the refresh.
    """
    loads = [row for row in files.values() if row.kind == "load"]
    left = Discovery(
        older_loads=tuple(r.path for r in loads if r.state == "committed" and r.generation < after.generation),
        unreadable_loads=tuple(r.path for r in loads if r.state == "unreadable"),
    )
    is_new = before.generation < after.generation
    known = before.swept if before.batch else min((row.generation for row in loads), default=1)
    state = replace(after, swept=known, loaded_at=plan.planned_at if is_new else before.loaded_at, held=None)
    if sweep_state(state, left, rule, datetime.fromisoformat(plan.planned_at)) == "pending":
        return state, left
    return replace(state, swept=after.generation), left


def watermarks(table_schema: TableSchema, state: TableState, resequenced: bool) -> tuple[str | None, ...]:
    """Greatest sequence before each generation, in the order that the rebuilt tables have."""
    marks = state.generation_floor
    return tuple(normal_json(mark, table_schema.normal_text) for mark in marks) if resequenced else marks


def highest_sequence(before: TableState, after: TableState) -> str | None:
    """Sequences of one type only compare with each other; after a change of `sequence_by` the new ones count alone."""
    if before.sequence_type != after.sequence_type:
        return after.max_sequence
    return greater(before.max_sequence, after.max_sequence)
