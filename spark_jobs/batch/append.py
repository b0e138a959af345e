"""Append: each change goes to the change table once, and bad rows and files to the quarantine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_jobs.batch import notices
from spark_jobs.batch.pending import replays
from spark_jobs.batch.session import Batch, TableSession
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.applied_settings import is_changed
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.sequence import is_after
from spark_jobs.plan.source_snapshots import generation_after
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.figures import DecodedBatch, Figures
from spark_jobs.rules.redelivery import Overlap


def append(table: TableSession, batch: Batch) -> Batch:
    """Write a batch's changes to the change table, each once.

    Raises:
        FatalError: `BATCH_UNBALANCED`.
    """
    work, plan, state = batch.work, batch.plan, table.state
    if work is None:
        return put_aside(table, batch)
    decoded = work.decoded_batch
    decided = with_decision(plan, decoded.schema, state)
    if decided != plan:
        table.ledger.write_plan(decided)
    if batch.resumed or state.keys is None or schema_changes(decoded, state) or is_changed(table.spec, state.applied):
        work.tables.ensure_tables()
    if plan.source == "files":
        work.quarantine(batch.bad_files, _known_files(table, plan))
    table.run.report("quarantine", plan.number, decoded.figures.quarantined)
    work.append(overlap_of(decoded.figures, plan, table.ledger))
    table.run.report("append", plan.number, work.appended.written)
    shared = notices.of_shared_keys(table.spec, decoded.figures, work.appended.written)
    table.note((*decoded.schema.warnings, *work.appended.warnings, *shared))
    changes = table.totals.schema_changes
    changes += [change for change in decoded.schema.plan.changes if change not in changes]
    return replace(batch, plan=decided)


def put_aside(table: TableSession, batch: Batch) -> Batch:
    """Leave the batch to its files that could not be read; those that could wait for the whole load."""
    plan, bad_files = batch.plan, batch.bad_files
    paths = {u.file.path for u in bad_files}
    if bad_files and len(paths) < len(plan.files):
        plan = replace(plan, files=tuple(file for file in plan.files if file.path in paths), sweep=False)
        table.ledger.write_plan(plan)
        table.discovery = replace(table.discovery, listed_in_full_at=None)
    if bad_files:
        table.context.quarantine.append_files(plan, bad_files, _known_files(table, plan))
    return replace(batch, plan=plan)


def resume(table: TableSession, batch: Batch) -> Batch:
    """Resume from the change table a batch that had appended its changes before its files changed."""
    work = table.context.resume_from_changes(batch.plan, table.state)
    if is_changed(table.spec, table.state.applied):
        work.tables.ensure_tables()
    return replace(batch, work=work)


def _known_files(table: TableSession, plan: BatchPlan) -> list[str]:
    """Files of the plan that an earlier batch has read, or could not read.

    Of archived rows only those of change files that were read, for all archives are many; a replay is asked for.
    """
    entries = table.ledger.all_entries() if replays(table.run) else table.ledger.entries()
    return [file.path for file in plan.files if file.corrects or file.path in entries]


def schema_changes(decoded_batch: DecodedBatch, state: TableState) -> bool:
    """Whether the tables have to change for this batch."""
    schema = decoded_batch.schema
    planned = (*schema.plan.additions, *schema.plan.widenings, *schema.before.additions, *schema.before.widenings)
    return (
        bool(planned or schema.new_technical)
        or (schema.table_schema.rescues and not schema.table_schema.rescued)
        or (schema.table_schema.tells_events and not schema.table_schema.event_fields)
        or schema.schemas != state.schemas
        or schema.table_schema.sequence_type != state.sequence_type
    )


def with_decision(plan: BatchPlan, schema: BatchSchema, state: TableState) -> BatchPlan:
    """The plan with what the batch adds to the ledger's schemas, and changes in the order and generations of the table.

    A run that resumes the batch from the change table has no files to decide it from, and one that resumes it after the
    tables changed sees no column that becomes text.
    """
    ordered = schema.table_schema
    left = {"schemas": schema.schemas, "found": schema.found, "truncates": ordered.truncates}
    changes: dict[str, Any] = {name: value for name, value in left.items() if value != getattr(state, name)}
    if ordered.sequence and (ordered.sequence, ordered.sequence_type) != (state.sequence_by, state.sequence_type):
        changes |= {"sequence_by": ordered.sequence, "sequence_type": ordered.sequence_type}
    if schema.snapshots != state.snapshots:
        generation = generation_after(schema.snapshots, plan.generation)
        plan = replace(plan, snapshots=schema.snapshots, generation=generation)
    if any(str(widening.after) == "string" for widening in schema.plan.widenings):
        changes["unlocks"] = True
    return replace(plan, **changes) if changes else plan


def overlap_of(figures: Figures, plan: BatchPlan, ledger: Ledger) -> Overlap:
    """Overlap of the batch's changes with earlier batches, by the ledger."""
    lows = [f.min_sequence for f in figures.files.values() if f.min_sequence is not None]
    known = ledger.state.max_sequence
    loads = any(
        e.kind == "load" and e.generation == plan.generation and e.state == "committed"
        for e in ledger.entries().values()
    )
    changes = known is not None and not all(is_after(low, known) for low in lows)
    # Only changes of the table's newest generation; replayed rows may be of any.
    is_newest = all(f.kind == "change" and f.generation == plan.generation for f in plan.files)
    return Overlap(
        changes=changes,
        loads=bool(figures.loads) and loads,
        later=not changes and plan.source == "files" and is_newest,
    )
