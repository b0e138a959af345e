"""Commit: the ledger takes the batch, as its last write."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from airflow_gddl.contract.codes import CAST_FAILED
from airflow_gddl.stores import Storage
from spark_jobs.batch import notices
from spark_jobs.batch.own_tables import has_of_changes, remember, versions_of
from spark_jobs.batch.read import forms_after
from spark_jobs.batch.session import Batch, TableSession
from spark_jobs.batch.source_log import files_before_log_began, log_time
from spark_jobs.batch.totals import columns_of
from spark_jobs.plan.applied_settings import settings_of
from spark_jobs.plan.batching import state_after
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, FileEntry, TableState
from spark_jobs.plan.sequence import greater, log_began_of

if TYPE_CHECKING:
    from spark_jobs.tables.engine import Engine

_MISPLACED = 1000
"""Most paths that the ledger keeps of files with positions of another log."""


def commit(table: TableSession, batch: Batch) -> None:
    """Commit the batch, and count it.

    Raises:
        RetriableError: `LEDGER_CONFLICT`, or as `Claim.check`.
    """
    number = batch.plan.number
    table.run.report("commit", number)
    table.claim.check_unless_young()
    made = commit_of(table, batch)
    remember(table.context, table.ledger, made.plan)
    table.ledger.commit(made)
    table.run.report("committed", number)
    _count(table, batch, made)


def _count(table: TableSession, batch: Batch, made: BatchCommit) -> None:
    totals = table.totals
    totals.batches += 1
    totals.files += len(made.plan.files)
    totals.bytes_read += made.plan.size
    if changing := tuple(row.path for row in made.files if not row.fingerprint):
        totals.revisit = True
        table.note(notices.of_unsettled(changing))
    if batch.work is not None:
        decoded, appended = batch.work.decoded_batch, batch.work.appended
        totals.changes_written += appended.written
        totals.redelivered += appended.redelivered
        totals.rows_read += decoded.figures.rows
        totals.quarantined += decoded.figures.quarantined
        totals.columns = columns_of(decoded.schema)
    done, main = totals.main, batch.main
    totals.main = replace(
        done, inserted=done.inserted + main.inserted, updated=done.updated + main.updated,
        deleted=done.deleted + main.deleted,
    )  # fmt: skip


def commit_of(table: TableSession, batch: Batch) -> BatchCommit:
    """The ledger's commit of a batch: its files, and the state of the table after it."""
    plan, swept, main, before = batch.plan, batch.swept, batch.main, table.state
    after = _state_of(table, batch, swept=swept.done)
    unlocked, replayed = _unlocked(table, plan)
    grown = main.inserted - (main.deleted if table.spec.delete == "hard" else 0)
    after = replace(
        after,
        rows=max(0, before.rows + grown),
        tombstones_purged_at=batch.purged_at or after.tombstones_purged_at,
        delta_versions=versions_of(table.context, before),
        foreign=table.foreign,
        foreign_changes=after.foreign_changes or has_of_changes(table.foreign),
        held=swept.held or (None if swept.done else after.held),
        unlocked=unlocked,
        replayed=replayed,
    )
    files = _entries_of(table.context.storage, batch, before)
    return BatchCommit(number=plan.number, plan=plan, files=files, state=after)


def has_unresolved(context: Engine) -> bool:
    """Whether anything is in quarantine."""
    return context.quarantine.counts()[0] > 0


def _unlocked(table: TableSession, plan: BatchPlan) -> tuple[int, int]:
    """`TableState.unlocked` and `replayed` after a batch; of a table of several sources they only grow."""
    state = table.state
    if plan.source == "quarantine" and (not plan.codes or CAST_FAILED in plan.codes):
        return (state.unlocked, table.ledger.unlocked) if plan.shard else (0, 0)
    if (plan.unlocks or state.unlocked) and has_unresolved(table.context):
        return state.unlocked + plan.unlocks, state.replayed
    return (state.unlocked, state.replayed) if plan.shard else (0, 0)


def _entries_of(storage: Storage, done: Batch, state: TableState) -> tuple[FileEntry, ...]:
    """A row for each readable or unreadable file of the plan; none for files that were removed.

    What was read of a file that was written meanwhile may be a part of it, also if its content is in the end what it
    was: its row says so by having no fingerprint, and the next listing takes it as written again.
    """
    plan = done.plan
    bad = {u.file.path for u in done.bad_files}
    rows = []
    for file in plan.files:
        if file.path in bad:
            reopens = not done.opens and file.kind == "load" and file.generation > max(state.generation, 1)
            generation = max(state.generation, 1) if reopens else file.generation
            rows.append(replace(file.entry(plan.number), state="unreadable", generation=generation, reopens=reopens))
        elif done.decoded_batch is not None and file.path in done.decoded_batch.schema_of:
            decoded, figures = done.decoded_batch, done.decoded_batch.figures.files.get(file.path)
            entry = replace(file.entry(plan.number), schema=decoded.schema_of[file.path], rows=0)
            entry = replace(entry, fingerprint=decoded.content_of.get(file.path, entry.fingerprint))
            rows.append(entry if figures is None else replace(entry, **asdict(figures)))
    as_listed = {file.path for file in plan.files if storage.is_as_listed(file, file.fingerprint)}
    return tuple(row if row.path in as_listed else replace(row, fingerprint="", etag="") for row in rows)


def _state_of(table: TableSession, done: Batch, *, swept: bool) -> TableState:
    """The table's state by the batch's files.

    Args:
        swept: rows of older generations were removed.
    """
    decoded_batch, spec, state, plan = done.decoded_batch, table.spec, table.state, done.plan
    plan = plan if done.opens else replace(plan, generation=max(state.generation, 1))
    times = table.context.dialect.times
    after = state_after(plan, state, landing=table.layout.landing, remaining=table.discovery, times=times)
    if swept:
        after = replace(after, swept=plan.generation)
    if decoded_batch is None:
        return after
    highest, newest = state.max_sequence, state.max_commit_ts
    for figures in decoded_batch.figures.files.values():
        highest = greater(highest, figures.max_sequence)
        newest = max(filter(None, (newest, figures.max_commit_ts)), default=None)
    table_schema, log_began, misplaced = decoded_batch.schema.table_schema, log_began_of(spec), state.misplaced
    if log_began != state.log_began:
        found = files_before_log_began(state.log_began, log_began, table.ledger)
        misplaced = tuple(dict.fromkeys((*misplaced, *found)))[:_MISPLACED]
    return replace(
        after,
        keys=spec.keys,
        sequence_by=table_schema.sequence or state.sequence_by,
        sequence_type=table_schema.sequence_type if table_schema.sequence else state.sequence_type,
        sequence_forms=forms_after(decoded_batch.figures, state, table_schema),
        log_began=log_began,
        misplaced=misplaced,
        log_time=log_time(decoded_batch.figures, state) if table_schema.log_positions else None,
        schemas=decoded_batch.schema.schemas,
        found=decoded_batch.schema.found,
        typed=decoded_batch.schema.typed,
        max_sequence=highest,
        max_commit_ts=newest,
        applied=settings_of(spec),
    )
