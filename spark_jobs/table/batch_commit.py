"""The commit of a batch whose tables are written: its files' ledger rows, and the table's state after it."""

from __future__ import annotations

from dataclasses import asdict, replace

from spark_jobs.engines.port import TableContext
from spark_jobs.plan.batch import BatchCommit, BatchPlan, TableState
from spark_jobs.plan.batching import state_after
from spark_jobs.plan.files import FileEntry, PlannedFile
from spark_jobs.plan.sequence import greater, has_instants, has_normal_text, log_began_of
from spark_jobs.plan.settings import settings_of
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.errors_table import MISFIT_CODE
from spark_jobs.table.batch_run import Batch, Ingested
from spark_jobs.table.decisions import files_before_log_began, forms_after, log_time
from spark_jobs.table.foreign import versions_of
from spark_jobs.table.sweep import Swept

_MISPLACED = 1000
"""Most paths that the ledger keeps of files with positions of another log."""


def commit_of(context: TableContext, batch: Batch, done: Ingested, swept: Swept, grown: int) -> BatchCommit:
    """
    Args:
        grown: rows that the replica has gained.
    """
    plan, before = batch.plan, batch.ledger.state
    after = _state_of(context, batch, done, before, swept=swept.done)
    after = replace(
        after,
        rows=max(0, before.rows + grown),
        tombstones_purged_at=done.purged_at or after.tombstones_purged_at,
        delta_versions=versions_of(context.engine, context.layout),
        foreign=batch.foreign,
        held=swept.held or (None if swept.done else after.held),
        unlocked=_is_unlocked(context, plan, before),
    )
    return BatchCommit(number=plan.number, plan=plan, files=_entries_of(plan, done, before), state=after)


def has_unresolved(context: TableContext) -> bool:
    """Whether anything is in quarantine."""
    return context.engine.exists(context.layout.errors) and context.engine.in_quarantine(context)[0] > 0


def _is_unlocked(context: TableContext, plan: BatchPlan, state: TableState) -> bool:
    """`TableState.unlocked` after a batch."""
    if plan.source == "quarantine" and (not plan.codes or MISFIT_CODE in plan.codes):
        return False
    return (state.unlocked or plan.unlocks) and has_unresolved(context)


def _entries_of(plan: BatchPlan, done: Ingested, state: TableState) -> tuple[FileEntry, ...]:
    """A row for each readable or unreadable file of the plan; none for files that were removed."""
    bad = {u.file.path for u in done.bad_files}
    rows = []
    for file in plan.files:
        if file.path in bad:
            reopens = not done.opens and file.kind == "load" and file.generation > max(state.generation, 1)
            generation = max(state.generation, 1) if reopens else file.generation
            rows.append(replace(file.entry(plan.number), state="unreadable", generation=generation, reopens=reopens))
        elif done.decoded_batch is not None and file.path in done.decoded_batch.schema_of:
            rows.append(_read_entry(file, plan, done.decoded_batch))
    return tuple(rows)


def _read_entry(file: PlannedFile, plan: BatchPlan, decoded_batch: DecodedBatch) -> FileEntry:
    entry = replace(file.entry(plan.number), schema=decoded_batch.schema_of[file.path], rows=0)
    figures = decoded_batch.figures.files.get(file.path)
    return entry if figures is None else replace(entry, **asdict(figures))


def _state_of(context: TableContext, batch: Batch, done: Ingested, state: TableState, *, swept: bool) -> TableState:
    """The table's state by the batch's files.

    Args:
        swept: rows of older generations were removed.
    """
    decoded_batch, spec = done.decoded_batch, context.spec
    plan = batch.plan if done.opens else replace(batch.plan, generation=max(state.generation, 1))
    landing, times = context.layout.landing, context.dialect.times
    after = state_after(plan, state, landing=landing, left=batch.left, times=times)
    if swept:
        after = replace(after, swept=plan.generation)
    if decoded_batch is None:
        return after
    highest, newest = state.max_sequence, state.max_commit_ts
    for figures in decoded_batch.figures.files.values():
        highest = greater(highest, figures.max_sequence)
        newest = max(filter(None, (newest, figures.max_commit_ts)), default=None)
    table_schema = decoded_batch.schema.table_schema
    return replace(
        after,
        keys=spec.keys,
        sequence_by=table_schema.sequence or state.sequence_by,
        sequence_type=table_schema.sequence_type if table_schema.sequence else state.sequence_type,
        normal_text=has_normal_text(state),
        instants=has_instants(state),
        sequence_forms=forms_after(decoded_batch.figures, state, table_schema),
        log_began=log_began_of(spec),
        misplaced=tuple(dict.fromkeys((*state.misplaced, *files_before_log_began(spec, batch.ledger))))[:_MISPLACED],
        log_time=log_time(decoded_batch.figures, state) if table_schema.log_positions else None,
        schemas=decoded_batch.schema.schemas,
        max_sequence=highest,
        max_commit_ts=newest,
        applied=settings_of(spec),
    )
