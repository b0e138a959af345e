"""A table's run, from discovery to ledger: start reading here.

    discover ─► plan ─► read ─► decode ─► check ─► evolve ─► quarantine
    ─► append ─► truncate ─► tombstones ─► merge ─► sweep ─► history ─► commit

A batch is planned before it runs and committed last; every write between is idempotent by its plan's time, so
an interrupted run is simply run again (docs/semantics.md, rule 4).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult, MainCounts
from spark_jobs.batch import notices
from spark_jobs.batch.current_batch import (
    NOT_SWEPT,
    Batch,
    Ingested,
    Swept,
    commit_of,
    held_truncate,
    is_late_as_a_whole,
    is_small,
    load_is_whole,
    loads_that_hold,
    overlap_of,
    require_sound,
    schema_changes,
    sweep,
    sweep_alone,
    tidy,
    with_decision,
)
from spark_jobs.batch.pending import (
    NextBatch,
    PendingWork,
    Turns,
    has_tables,
    known_until,
    left_in_quarantine,
    moment,
    next_plan,
    replays,
    report_left,
    waits_for_files,
    withdraw,
    without_held,
)
from spark_jobs.batch.runtime import RunTotals, TableRun, columns_of, iso
from spark_jobs.dialects.protocol import KEYS_UNKNOWN, Unreadable
from spark_jobs.discovery import keep
from spark_jobs.iceberg import publish
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.applied_settings import history_begins, settings_of
from spark_jobs.plan.discover import Discovery, generation_low_watermarks_of, tombstones_since
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, ForeignCommit, HeldTruncate, TableState
from spark_jobs.plan.sharding import require_same_order
from spark_jobs.rules.errors_table import MISFIT_CODE
from spark_jobs.rules.sweep import unknown_truncates
from spark_jobs.tables.engine import AppendedWork, TableContext


def run_table(run: TableRun, outcome: RunTotals) -> JobResult:
    """Bring one table up to date; Spark starts only when there is work.

    Raises:
        GddlError: the cause of the failure; `outcome` holds the counts so far.
    """
    bring_up_to_date(run, outcome)
    return finished(run, outcome)


def bring_up_to_date(run: TableRun, outcome: RunTotals) -> None:
    """`run_table` without a result; called once per group of notified files.

    Raises:
        GddlError: as `run_table`.
    """
    turns = Turns(run, outcome)
    turns.find_pending()
    if turns.pending:
        with run.claim() as claim:
            turns.take(lambda one, seen: process_pending(one, claim, seen, outcome))
    outcome.warn(left_in_quarantine(run))
    turns.require_all()


def idle_result(run: TableRun, outcome: RunTotals) -> JobResult | int:
    """The result of an idle table; for any other what it has to do (`PendingWork.cost`).

    Raises:
        GddlError: as `run_table`.
    """
    turns = Turns(run, outcome)
    turns.find_pending()
    if turns.pending:
        return turns.cost
    turns.require_all()
    return finished(run, outcome)


def finished(run: TableRun, outcome: RunTotals) -> JobResult:
    """The result of a run, after its last step is reported."""
    run.report("done", outcome.batches, outcome.rows_read)
    outcome.complete_until = known_until(run, outcome)
    return run.result(outcome)


def process_pending(run: TableRun, claim: Claim, seen: PendingWork, outcome: RunTotals) -> None:
    """Run batches until no file waits, then, if a column became text, here or before, the quarantine's.

    The listing from before the claim is valid unless another run came between: a file that was rewritten
    since is found by the next listing, like one that is written while the batch runs.
    """
    ledger, context = run.ledger(), run.context(None if run.shard else seen.cost)
    strange, found = look_again(run, context, ledger, seen, outcome)
    limit = run.job.options.max_batches
    replayed = False
    while limit is None or outcome.batches < limit:
        coming = next_plan(run, context, found, ledger, replayed=replayed) or of_misfits(run, context, found, ledger)
        if coming is None:
            break
        follow_earlier(run, outcome)
        before, plan = found, start(run, coming, ledger, claim)
        found = found if coming.appended else found.without(plan)
        if plan.source == "quarantine":
            replayed, found = True, with_unread(run, context, ledger, found, outcome)
        batch = Batch(coming=coming, ledger=ledger, claim=claim, left=found, foreign=strange)
        done = run_batch(run, context, batch, outcome)
        if done.held is not None:
            found = before.held_from(done.held.path)
            note_hold(run, context, replace(batch, left=found), done.held, outcome)
        elif done.set_aside:
            found = before.without_yet(done.set_aside, all_after=run.spec.truncate == "hold")
            continue
        found = found.with_unreadable([u.file for u in done.bad_files])
        publish(run.runtime.storage, run.layout, run.spec)  # checked once, at the end of the run
    outcome.warn(notices.of_misplaced(run.spec, ledger.state))
    report_left(run, ledger, found, outcome)
    if not found.waiting:
        notices.require_whole_load(run.spec.table, ledger, found.unread_loads)
    tidy(run, context, ledger, claim, outcome.batches)
    if outcome.batches and context.engine.exists(context.layout.replica):
        outcome.main = replace(outcome.main, rows=ledger.state.rows)
        outcome.version = context.engine.version(context.layout.replica)


def look_again(
    run: TableRun, context: TableContext, ledger: Ledger, seen: PendingWork, outcome: RunTotals
) -> tuple[tuple[ForeignCommit, ...], Discovery]:
    """Commits of others, and what waits now that the run has the claim.

    Raises:
        FatalError: ledger and tables don't belong together, or generations are unknown.
    """
    keep(run.place, ledger)
    if ledger.plan() is None or ledger.state.batch:
        there = has_tables(run, context, ledger.state)
        notices.require_tables(run.spec, ledger.state, there, context.layout.state)
    strange = notices.require_own_tables(context, ledger)
    outcome.warn(notices.warnings_of(strange))
    found = seen.found
    if ledger.state != seen.state or waits_for_files(run, found):
        found = without_held(run, run.discover(ledger, wait="idle"), ledger.state)
    if ledger.plan() is None:
        notices.require_known_generations(found.inference, run.spec.table)
    outcome.warn(notices.of_discovery(found, run.layout.landing, run.dialect))
    return strange, found


def follow_earlier(run: TableRun, outcome: RunTotals) -> None:
    """Let catalogs follow what earlier batches of this run have published; the end of the run does it for the last."""
    if outcome.batches:
        run.runtime.follow(run.spec.table)


def start(run: TableRun, coming: NextBatch, ledger: Ledger, claim: Claim) -> BatchPlan:
    """Write the plan of a batch, unless an earlier run has."""
    run.go_on()
    if not coming.resumed:
        claim.check()
        ledger.write_plan(coming.plan)
    run.report("plan", coming.plan.number)
    return coming.plan


def with_unread(
    run: TableRun, context: TableContext, ledger: Ledger, found: Discovery, outcome: RunTotals
) -> Discovery:
    """Files to read after rows of the quarantine: those that could not be read, where a user asked for the replay.

    Those that a user has dismissed count as resolved.
    """
    if not replays(run):
        return found
    unread = run.discover_unread(ledger)
    if unread.waiting and context.engine.exists(context.layout.errors):
        gone, known = context.engine.dismissed_files(context), ledger.all_entries()
        left = (f for f in unread.waiting if f.path not in gone or known[f.path].fingerprint != f.fingerprint)
        unread = replace(unread, waiting=tuple(left))
    outcome.warn(notices.of_unread_loads(unread))
    return unread


def of_misfits(run: TableRun, context: TableContext, found: Discovery, ledger: Ledger) -> NextBatch | None:
    """The batch of quarantined values that did not fit their columns, where one became text since; else None."""
    if not ledger.awaits_replay:
        return None
    options = replace(run.job.options, action="errors_replay", codes=(MISFIT_CODE,))
    return next_plan(replace(run, job=replace(run.job, options=options)), context, found, ledger, replayed=False)


def run_batch(run: TableRun, context: TableContext, batch: Batch, outcome: RunTotals) -> Ingested:
    """Carry out one planned batch and commit it."""
    plan, state = batch.plan, batch.ledger.state
    few = is_small(plan, state)
    context = replace(context, engine=context.engine.suited(few_rows=few), resumed=batch.coming.resumed)
    done = resume(run, context, batch) if batch.coming.appended else ingest(run, context, batch, outcome)
    if done.held is not None or done.set_aside:
        return done
    batch = batch.decided(done.plan)
    plan = batch.plan
    sweeps = plan.sweep and load_is_whole(plan, done.bad_files, batch.ledger)
    if (work := done.work) is not None:
        main, swept = apply(run, context, work, batch, outcome, sweeps=sweeps)
        outcome.commit = work.tables.commit_method
        done = replace(done, purged_at=purge(run, context, state))
        if plan.source == "quarantine":
            work.resolve_rows()
    else:
        swept = sweep_alone(context, plan, state, sweeps=sweeps)
        main = swept.counts
    grown = main.inserted - (main.deleted if run.spec.delete == "hard" else 0)
    count(outcome, commit(run, context, batch, done, swept=swept, grown=grown), done)
    outcome.warn(notices.of_exceptions(run.spec, done.appended.written))
    outcome.count(main)
    outcome.max_commit_ts = batch.ledger.state.max_commit_ts
    return done


def note_hold(
    run: TableRun, context: TableContext, batch: Batch, held: HeldTruncate, outcome: RunTotals
) -> None:  # fmt: skip
    """Let the ledger know which files wait, so that no later run decodes them in vain.

    A table without a batch can't keep that; its next run finds the truncate again.
    """
    state = batch.ledger.state
    if state.batch:
        plan = BatchPlan(
            number=state.batch + 1, mode="incremental", planned_at=iso(moment(run, batch.ledger, batch.plan)),
            generation=state.generation, files=(), holds=held, shard=run.shard,
        )  # fmt: skip
        coming = NextBatch(plan=plan)
        start(run, coming, batch.ledger, batch.claim)
        run_batch(run, context, replace(batch, coming=coming), outcome)


def ingest(run: TableRun, context: TableContext, batch: Batch, outcome: RunTotals) -> Ingested:
    """Steps from files to change table and quarantine."""
    plan, state = batch.plan, batch.ledger.state
    work, unreadable = context.engine.decode_files(context, plan, state)
    if waiting := tuple(u.file.path for u in unreadable if u.code == KEYS_UNKNOWN):
        withdraw(context, plan, batch.ledger)
        return Ingested(set_aside=waiting)
    outcome.warn(notices.of_files(unreadable))
    bad_files = tuple(u for u in unreadable if u.code != "FILE_VANISHED")
    bad_loads = () if batch.of_reload else loads_that_hold(context, plan, bad_files)
    if work is None or bad_loads:
        if work is not None:
            work.discard()
        return put_aside(run, context, batch, bad_loads or bad_files)
    decoded_batch = work.decoded_batch
    held = held_truncate(run.spec, plan, decoded_batch.figures, state)
    if held is not None:
        work.discard()
        withdraw(context, plan, batch.ledger)
        return Ingested(held=held)
    outcome.truncates += len(unknown_truncates(state.truncates, decoded_batch.figures.truncates))
    outcome.warn(notices.of_truncates(run.spec, plan, decoded_batch.figures.truncates, state))
    outcome.warn(notices.of_erased(decoded_batch.erased))
    outcome.warn(notices.of_times(decoded_batch.figures.reduced, run.spec.sub_microseconds))
    outcome.warn(notices.of_rescues(decoded_batch.figures.rescued))
    outcome.warn(notices.of_incomplete_moves(decoded_batch.figures.incomplete))
    outcome.warn(notices.of_partial_updates(run.spec, decoded_batch.figures.partial))
    outcome.warn(notices.of_expectations(run.spec, decoded_batch.figures.tallies))
    outcome.tally(run.spec, decoded_batch.figures.tallies)
    outcome.filtered += decoded_batch.filtered
    outcome.rescued += decoded_batch.figures.rescued
    require_sound(run.dialect, decoded_batch, state)
    batch.claim.check()
    order = decoded_batch.schema.table_schema
    try:
        require_same_order(run.spec.table, run.shard, (order.sequence, order.sequence_type), run.others)
    except FatalError:
        withdraw(context, plan, batch.ledger)
        raise
    known = with_decision(plan, decoded_batch.schema, state)
    if known != plan:
        batch.ledger.write_plan(known)
    if batch.coming.resumed or state.keys is None or schema_changes(decoded_batch, state) or _is_changed(run, state):
        work.tables.ensure_tables()
    if plan.source == "files":
        work.quarantine(bad_files, _known(run, batch))
    run.report("quarantine", plan.number, decoded_batch.figures.quarantined)
    done = work.append(overlap_of(decoded_batch.figures, plan, batch.ledger))
    run.report("append", plan.number, done.appended.written)
    outcome.warn((*decoded_batch.schema.warnings, *done.appended.warnings))
    outcome.schema_changes += [c for c in decoded_batch.schema.plan.changes if c not in outcome.schema_changes]
    return Ingested(work=done, plan=known, bad_files=bad_files)


def put_aside(run: TableRun, context: TableContext, batch: Batch, bad_files: tuple[Unreadable, ...]) -> Ingested:
    """Leave the batch to its files that could not be read; those that could wait for the whole load."""
    paths = {u.file.path for u in bad_files}
    plan = batch.plan
    if bad_files and len(paths) < len(plan.files):
        plan = replace(plan, files=tuple(file for file in plan.files if file.path in paths), sweep=False)
        batch.ledger.write_plan(plan)
    if bad_files:
        context.engine.quarantine_files(context, plan, bad_files, _known(run, batch.decided(plan)))
    return Ingested(plan=plan, bad_files=bad_files)


def _is_changed(run: TableRun, state: TableState) -> bool:
    """Whether the tables must be reconciled with the metadata row."""
    return state.applied != settings_of(run.spec)


def resume(run: TableRun, context: TableContext, batch: Batch) -> Ingested:
    """Resume from the change table a batch that had appended its changes before its files changed."""
    plan, state = batch.plan, batch.ledger.state
    work = context.engine.resume_from_changes(context, plan, state)
    if _is_changed(run, state):
        work.tables.ensure_tables()
    return Ingested(work=work)


def commit(
    run: TableRun, context: TableContext, batch: Batch, done: Ingested, *, swept: Swept = NOT_SWEPT, grown: int = 0
) -> BatchCommit:
    """Commit the batch: its last write."""
    plan = batch.plan
    run.report("commit", plan.number)
    batch.claim.check()
    made = commit_of(context, batch, done, swept, grown)
    batch.ledger.commit(made)
    run.report("committed", plan.number)
    return made


def apply(
    run: TableRun, context: TableContext, work: AppendedWork, batch: Batch, outcome: RunTotals, *, sweeps: bool
) -> tuple[MainCounts, Swept]:
    """Steps from appended changes to replica and history."""
    plan, state = batch.plan, batch.ledger.state
    truncates = plan.truncates is not None
    cut = truncate(run, work, plan) if truncates else MainCounts()
    merging = work.tombstones() if work.decoded_batch.schema.table_schema.keys else None
    if merging is not None:
        run.report("tombstones", plan.number)
    applied = work.append_only() if merging is None else merging.merge()
    outcome.warn(applied.warnings)
    outcome.late_ignored += applied.late
    if work.decoded_batch.figures.quarantined:
        outcome.warn(work.stale_rows())
    # A late snapshot is as a whole between two others, and what waited in quarantine was overtaken there.
    waited = plan.source == "quarantine" or replays(run)
    may_restart = run.spec.mode == "changes" and not waited
    if may_restart and is_late_as_a_whole(work.decoded_batch.figures, state):
        outcome.warn(notices.of_late_batch(applied.late))
    swept = sweep(context, work.tables, plan) if sweeps else NOT_SWEPT
    run.report("merge", plan.number, applied.main.inserted + applied.main.updated + applied.main.deleted)
    if merging is not None and run.spec.history:
        of_all_keys = swept.done or truncates or history_begins(run.spec, state.applied)
        versions = work.tables if of_all_keys else merging
        vanished = plan.generation if swept.done else state.swept
        versions.history(generation_low_watermarks_of(plan, state), swept=vanished)
        run.report("history", plan.number)
    main = replace(applied.main, updated=applied.main.updated + cut.updated)
    return replace(main, deleted=main.deleted + swept.counts.deleted + cut.deleted), swept


def truncate(run: TableRun, work: AppendedWork, plan: BatchPlan) -> MainCounts:
    """Delete rows before the truncates of a batch, before its other changes are applied."""
    done = work.tables.truncate()
    run.report("truncate", plan.number, done.deleted)
    updated = work.tables.fold_again()
    run.report("fold_again", plan.number, updated)
    return replace(done, updated=updated)


def _known(run: TableRun, batch: Batch) -> list[str]:
    """Files of the plan that an earlier batch has read, or could not read.

    Of archived rows only those of change files that were read, for all archives are many; a replay is asked for.
    """
    entries = batch.ledger.all_entries() if replays(run) else batch.ledger.entries()
    return [file.path for file in batch.plan.files if file.corrects or file.path in entries]


def purge(run: TableRun, context: TableContext, state: TableState) -> str | None:
    """Once a day remove tombstones older than their retention; returns the time, or None."""
    now, path = run.runtime.clock(), context.layout.tombstones
    last = state.tombstones_purged_at
    if last is not None and now - datetime.fromisoformat(last) < timedelta(days=1):
        return None
    if last is not None and run.spec.keys and context.engine.exists(path):
        context.engine.maintenance(context).forget_tombstones(path, tombstones_since(run.spec, now), dry_run=False)
    return iso(now)


def count(outcome: RunTotals, made: BatchCommit, done: Ingested) -> None:
    outcome.batches += 1
    outcome.files += len(made.plan.files)
    outcome.bytes_read += sum(file.size for file in made.plan.files)
    left = tuple(row.path for row in made.files if not row.fingerprint)
    outcome.revisit = outcome.revisit or bool(left)
    outcome.warn(notices.of_unsettled(left))
    outcome.changes_written += done.appended.written
    outcome.redelivered += done.appended.redelivered
    if done.decoded_batch is not None:
        outcome.rows_read += done.decoded_batch.figures.rows
        outcome.quarantined += done.decoded_batch.figures.quarantined
        outcome.columns = columns_of(done.decoded_batch.schema)
