"""A table's run, from discovery to ledger: start reading here.

    discover ─► plan ─► read ─► append ─► merge ─► commit

A batch is planned before it runs and committed last; every write between is idempotent by its plan's time, so
an interrupted run is simply run again (docs/semantics.md, rule 4). `batch` has a module for each step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_gddl.contract.result import JobResult
from spark_jobs.batch import notices
from spark_jobs.batch.append import append, resume
from spark_jobs.batch.commit import commit
from spark_jobs.batch.completeness import known_until
from spark_jobs.batch.merge import merge
from spark_jobs.batch.own_tables import recall, require_no_other_table, require_own_tables, warnings_of
from spark_jobs.batch.pending import (
    PendingWork,
    add_unread,
    drop,
    has_tables,
    looked,
    moment,
    next_batch,
    report_left,
    start,
    waits_for_files,
    without_held,
)
from spark_jobs.batch.read import read
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.session import Batch, TableSession
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.tidying import tidy
from spark_jobs.batch.totals import RunTotals
from spark_jobs.batch.turns import Turns, left_in_quarantine
from spark_jobs.discovery import keep
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import BatchPlan, ForeignCommit, HeldTruncate, is_small
from spark_jobs.rooms.features import features_of
from spark_jobs.tables.places import LargeBatchError

if TYPE_CHECKING:
    from spark_jobs.tables.engine import Engine


def run_table(run: TableRun, totals: RunTotals) -> JobResult:
    """Bring one table up to date; Spark starts only when there is work.

    Raises:
        GddlError: the cause of the failure; `totals` holds the counts so far.
    """
    bring_up_to_date(run, totals)
    return finished(run, totals)


def bring_up_to_date(run: TableRun, totals: RunTotals) -> None:
    """`run_table` without a result; called once per group of notified files.

    Raises:
        GddlError: as `run_table`.
    """
    if not run.spec.shards:
        seen, has_work = looked(run, totals)
        if has_work:
            with run.claim() as claim:
                process_pending(run, claim, seen, totals)
        return
    turns = Turns(run, totals)
    turns.find_pending()
    if turns.pending:
        with run.claim() as claim:
            turns.take(lambda source, seen: process_pending(source, claim, seen, totals))
    totals.warn(left_in_quarantine(run))
    turns.require_all()


def idle_result(run: TableRun, totals: RunTotals) -> JobResult | int:
    """The result of an idle table; for any other what it has to do (`PendingWork.cost`).

    Raises:
        GddlError: as `run_table`.
    """
    if run.spec.shards:
        turns = Turns(run, totals)
        turns.find_pending()
        if turns.pending:
            return sum(seen.cost for _, seen in turns.pending)
        turns.require_all()
        return finished(run, totals)
    seen, has_work = looked(run, totals)
    return seen.cost if has_work else finished(run, totals)


def finished(run: TableRun, totals: RunTotals) -> JobResult:
    """The result of a run, after its last step is reported."""
    run.report("done", totals.batches, totals.rows_read)
    totals.complete_until = known_until(run, totals)
    return run.result(totals)


def process_pending(run: TableRun, claim: Claim, seen: PendingWork, totals: RunTotals) -> None:
    """Run batches until no file waits, then, if a column became text, here or before, the quarantine's.

    The listing from before the claim is valid unless another run came between: a file that was rewritten
    since is found by the next listing, like one that is written while the batch runs.
    """
    if run.spec.features:
        features_of(run)  # a missing one is refused before anything is written
    table = TableSession(
        run=run, context=run.context(None if run.shard else seen.cost), ledger=run.ledger(), claim=claim,
        totals=totals, discovery=seen.discovery, limits=run.limits,
    )  # fmt: skip
    look_again(table, seen)
    replayed, limit = False, run.job.options.max_batches
    while limit is None or totals.batches < limit:
        batch = next_batch(table, replayed=replayed)
        if batch is None:
            break
        if totals.batches:  # for the last one the end of the run does it
            run.runtime.follow(run.spec.table)
        if batch.plan.source == "quarantine":
            replayed = True
        take(table, batch)
    end(table)


def take(table: TableSession, batch: Batch) -> None:
    """Run a planned batch, and leave in the session's discovery what waits after it."""
    before = table.discovery
    start(table, batch)
    if not batch.in_changes:
        table.discovery = before.without(batch.plan)
    if batch.plan.source == "quarantine":
        add_unread(table)
    try:
        done = run_batch(table, batch)
    except LargeBatchError:
        drop(table.context, batch.plan, table.ledger)
        table.discovery, table.limits, table.dropped = before, replace(table.limits, first_load=0), batch.plan
        return
    if done.held is not None:
        table.discovery = before.held_from(done.held.path)
        note_hold(table, batch.plan, done.held)
    elif done.set_aside:
        holds = table.spec.truncate == "hold" and not batch.plan.releases
        table.discovery = before.without_yet(done.set_aside, all_after=holds)
        return
    if table.state.batch == 1:
        table.discovery = table.discovery.with_held()
    table.discovery = table.discovery.with_unreadable([u.file for u in done.bad_files])


def run_batch(table: TableSession, batch: Batch) -> Batch:
    """One planned batch, from files to commit; every write is idempotent by the plan's time."""
    table.suit(few_rows=is_small(batch.plan, table.state), resumed=batch.resumed)
    if batch.in_changes:
        batch = resume(table, batch)
    else:
        batch = read(table, batch)  # files ─► rows; bad rows and files ─► quarantine
        if batch.waits:
            return batch
        batch = append(table, batch)  # change table: each change once
    batch = merge(table, batch)  # tombstones, replica, history: one net change a key
    commit(table, batch)  # the ledger, last
    for feature in features_of(table.run) if table.run.spec.features else ():
        feature.update(table.run)
    table.totals.max_commit_ts = table.state.max_commit_ts
    return batch


def look_again(table: TableSession, seen: PendingWork) -> None:
    """Look for commits of others, and for what waits now that the run has the claim.

    Raises:
        FatalError: ledger and tables don't belong together, or generations are unknown.
    """
    run, ledger, context = table.run, table.ledger, table.context
    keep(run.place, ledger)
    recall(context, ledger)
    table.foreign = require_sound_tables(run, context, ledger)
    table.note(warnings_of(table.foreign))
    if ledger.state != seen.state or waits_for_files(run, table.discovery):
        table.discovery = without_held(run, run.discover(ledger, wait="idle"), ledger.state)
    if ledger.plan() is None:
        notices.require_generations(table.discovery, run.spec.table)
        notices.require_same_landing(run.spec, table.discovery.waiting, ledger, run.layout.landing)
    table.note(notices.of_discovery(run, table.discovery))


def require_sound_tables(run: TableRun, context: Engine, ledger: Ledger) -> tuple[ForeignCommit, ...]:
    """Refuse tables and a ledger that don't belong together; returns commits of others that don't prevent a batch.

    Raises:
        FatalError: `TABLE_NOT_OURS`; as `notices.require_tables` and `require_own_tables`.
    """
    require_no_other_table(context, ledger)
    if ledger.plan() is None or ledger.state.batch:
        notices.require_tables(run, ledger.state, changes_exist=has_tables(run, context, ledger.state))
    return require_own_tables(run, context, ledger)


def note_hold(table: TableSession, dropped: BatchPlan, held: HeldTruncate) -> None:
    """Let the ledger know which files wait, so that no later run decodes them in vain.

    A table without a batch can't keep that; once it has one, the truncate is found again.
    """
    state = table.state
    if state.batch:
        plan = BatchPlan(
            number=state.batch + 1, mode="incremental", planned_at=iso(moment(table.run, table.ledger, dropped)),
            generation=state.generation, files=(), holds=held, shard=table.run.shard,
        )  # fmt: skip
        batch = Batch(plan=plan)
        start(table, batch)
        run_batch(table, batch)


def end(table: TableSession) -> None:
    """Say what is left, tidy, and state what the replica holds now.

    Raises:
        FatalError: as `notices.require_whole_load`.
    """
    if table.state.misplaced:
        table.note(notices.of_misplaced(table.spec, table.state))
    report_left(table.run, table.ledger, table.discovery, table.totals)
    if not table.discovery.waiting:
        notices.require_whole_load(table.spec.table, table.ledger, table.discovery.unread_loads)
    tidy(table)
    if table.totals.batches and table.context.tables.exists(table.layout.replica):
        table.totals.main = replace(table.totals.main, rows=table.state.rows)
        table.totals.version = table.context.tables.version(table.layout.replica)
