"""Tables loaded again from the files that are there: a reload, a resync, and a rebuild whose ledger is lost (rule 10).

All files are ingested again into a separate change table and ledger below the state folder, in the usual bounded
batches, so that an interrupted run resumes where it stopped. Then, each step in one Delta commit: the change table
takes what the files hold; replica, tombstones and history are overwritten with its fold; the quarantine is settled; the
ledger commits. What only the change table knew is archived by a reload or resync, and kept where the ledger is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult, MainCounts, error_info
from spark_jobs.actions import refresh_generations
from spark_jobs.actions.refresh_plan import is_sealed, new_plan, nothing_to_refresh, shadow_of
from spark_jobs.actions.resync import Replacement, check, require_connection, still_different
from spark_jobs.engines.port import DeclinedError, RebuildRequest, TableContext
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.pipeline import commit, count, ingest
from spark_jobs.plan.batch import BatchCommit, BatchPlan, TableState
from spark_jobs.plan.batching import next_batch
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.files import FileEntry
from spark_jobs.plan.generations import Recorded
from spark_jobs.plan.identity import reselected_columns
from spark_jobs.plan.settings import settings_of
from spark_jobs.plan.snapshots import floors_of
from spark_jobs.plan.sweeping import SweepRule
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.batch_schema import plan_batch
from spark_jobs.rules.figures import Rebuilt
from spark_jobs.rules.order import ARCHIVED
from spark_jobs.rules.rewrite import Rewrite, plan_archive
from spark_jobs.table import notices
from spark_jobs.table.batch_run import Batch
from spark_jobs.table.decisions import is_resequenced, is_small
from spark_jobs.table.foreign import versions_of
from spark_jobs.table.next_batch import NextBatch, files_changed, moment
from spark_jobs.table.outcome import RunTotals
from spark_jobs.table.run import TableRun


@dataclass(frozen=True, kw_only=True)
class _Refresh:
    """A refresh in progress: the live table and the shadow table that is built beside it."""

    run: TableRun
    live: TableContext
    ledger: Ledger
    plan: BatchPlan
    claim: Claim

    @cached_property
    def recorded(self) -> Recorded | None:
        """Generations by the change table, where the ledger is lost."""
        return refresh_generations.recorded_files(self.live, self.ledger.state)

    @property
    def shadow(self) -> TableRun:
        return shadow_of(self.run, self.plan)

    @property
    def shadow_context(self) -> TableContext:
        """The shadow table begins with the live table's columns, unless the files alone are to say them.

        Policies compare with the live table all the same.
        """
        live, shadow = self.live, self.shadow
        stored = live.stored_columns()
        begins_with, replaces = (None, stored.data) if self.plan.archives else (stored, None)
        return replace(live, layout=shadow.layout, dialect=shadow.dialect, begins_with=begins_with, replaces=replaces)


def refresh_table(run: TableRun, outcome: RunTotals) -> JobResult:
    """Load one table again.

    Raises:
        GddlError: the cause of the failure; readers see the old table until the swap.
    """
    outcome.mode = "refresh"
    with run.claim() as claim:
        ledger, context = run.ledger(), run.context()
        context.erasures.keys(keep=True)  # checks that stop every batch come before the first write
        plan = ledger.plan()
        if plan is not None and plan.source == "changes":  # a rebuild, which this one replaces
            ledger.drop_plan()
            plan = None
        asked = run.job.options.reload or run.job.options.resync
        if plan is None or plan.mode != "refresh":
            plan = _with_check(new_plan(run, ledger, plan, context), run)
            claim.check()
            ledger.write_plan(plan)
        elif asked and not plan.swapping:
            plan = _with_check(plan, run)
            claim.check()
            ledger.write_plan(plan)
        run.report("plan", plan.number)
        checked = _carry_out(_Refresh(run=run, live=context, ledger=ledger, plan=plan, claim=claim), outcome)
    run.report("done", outcome.batches, outcome.rows_read)
    if checked is None:
        return run.result(outcome)
    result = run.result(outcome, details={"resync" if plan.resync else "reload": asdict(checked)})
    return (
        replace(result, status="failed", error=error_info(still_different(run, checked)))
        if checked.far_after
        else result
    )


def _with_check(plan: BatchPlan, run: TableRun) -> BatchPlan:
    """The plan with what the job asks for, since a run that resumes it reads only the plan.

    Raises:
        FatalError: as `require_connection`.
    """
    options = run.job.options
    connection = require_connection(run) if options.resync else ""
    return replace(plan, resync=options.resync, source_connection=connection, confirmed=options.confirmed,
                   archives=options.reload or options.resync)  # fmt: skip


def _carry_out(work: _Refresh, outcome: RunTotals) -> Replacement | None:
    """What a reload or resync has replaced; null for another one, and where only its swap was left."""
    try:
        order, fresh, checked = _built(work, outcome)
    except FatalError:
        # A user has to fix the cause: until then the table is loaded as before. Once tables may have been swapped,
        # a refresh can only be resumed.
        if not work.plan.swapping:
            _forget(work)
        raise
    if not work.plan.swapping:
        work.claim.check()
        work.ledger.write_plan(replace(work.plan, swapping=True))
    work.run.report("swapping", work.plan.number)
    done = work.live.engine.rebuild(order).swap(lambda step: work.run.report(step, work.plan.number))
    work.claim.check()
    state, left = _swept(work, fresh)
    if state.swept < state.generation:
        outcome.revisit = True
        outcome.warn(notices.of_sweep("pending", state, left))
    _commit(work, fresh, order, done.rows)
    _settle(work, outcome, fresh.state, done)
    _clean_up(work)
    return checked


def _built(work: _Refresh, outcome: RunTotals) -> tuple[RebuildRequest, Ledger, Replacement | None]:
    """Build and check the shadow table; the live table is unchanged."""
    table_schema, fresh = _ingest_all(work, outcome)
    if table_schema is None:
        raise nothing_to_refresh(work.run.spec.table, work.live.layout.landing)
    work.run.report("read", work.plan.number, outcome.rows_read)
    files, again = fresh.all_entries(), is_resequenced(table_schema, work.ledger.state, fresh.state)
    order = RebuildRequest(
        live=work.live, shadow=work.shadow.layout, plan=work.plan, table_schema=table_schema,
        archives=_archives(work, table_schema),
        generation_low_watermarks=_watermarks(work, table_schema, fresh.state, again),
        swept=_swept(work, fresh)[0].swept,
        landed=tuple(files), read={path: row.generation for path, row in files.items() if row.state == "committed"},
        resequenced=again, reselected=bool(reselected_columns(work.run.spec, work.ledger.state)),
    )  # fmt: skip
    if work.plan.swapping:
        return order, fresh, None
    checked = _checked(work, order, fresh) if work.plan.archives else None
    _require_all_changes(work, order, fresh.state)
    return order, fresh, checked


def _archives(work: _Refresh, table_schema: TableSchema) -> Rewrite | None:
    if not work.plan.archives:
        return None
    return plan_archive(work.live.dialect, work.live.stored_columns(), work.ledger.state, table_schema)


def _watermarks(
    work: _Refresh, table_schema: TableSchema, state: TableState, resequenced: bool
) -> tuple[str | None, ...]:
    """Greatest sequence before each generation, in the order that the new tables have."""
    if not work.plan.archives:
        return refresh_generations.watermarks(table_schema, state, resequenced)
    held = Recorded(work.live.engine.recorded_files(work.shadow_context))
    floors = [held.highest_before(generation) for generation in range(1, len(state.generation_floor) + 1)]
    return floors_of(floors, state.snapshots)


def _checked(work: _Refresh, order: RebuildRequest, fresh: Ledger) -> Replacement:
    """Check the shadow table before the swap.

    A check that can't run drops the refresh too: the table's next loads must not wait for its source.
    """
    try:
        checked = check(work.run, work.plan, order, fresh.all_entries())
    except (DeclinedError, FatalError):
        raise
    except Exception:
        _forget(work)
        raise
    work.run.report("checked", work.plan.number)
    return checked


def _require_all_changes(work: _Refresh, order: RebuildRequest, fresh: TableState) -> None:
    if work.live.engine.rebuild(order).drops_changes():
        before = work.ledger.state.sequence_by or ()
        other = before and before != fresh.sequence_by
        own = f"write sequence_by: [{', '.join(before)}] in the row, which is their order, or " if other else ""
        raise FatalError(
            "CHANGES_INCOMPATIBLE",
            "the change table holds changes of removed files, with another order or other types than the files now",
            where=work.live.layout.changes,
            remedy=f"{own}restore those files, or move the change table away and refresh again; "
            "the tables are unchanged",
        )


def _ingest_all(work: _Refresh, outcome: RunTotals) -> tuple[TableSchema | None, Ledger]:
    """Ingest every landed file into the shadow change table and seal its ledger; returns the resulting schema.

    A sealed ledger accepts no further files: finished steps of the swap would lack them, and the commit would not.
    """
    run, context = work.shadow, work.shadow_context
    ledger = run.ledger()
    if ledger.state.batch == 0:
        state, archives = work.ledger.state, work.plan.archives
        state = refresh_generations.seed(state, work.recorded, run.dialect, archives=archives)
        ledger.commit(_empty_commit(work, state))
    if not is_sealed(ledger):
        found = _with_generations(work, run.discover(ledger, wait="idle"), outcome)
        outcome.warn(notices.of_unsettled(found))
        _require_unchanged(work, ledger, found)
        while (plan := _next_plan(run, ledger, found)) is not None:
            work.claim.check()
            found = found.without(plan)
            context = replace(context, engine=context.engine.suited(few_rows=is_small(plan, ledger.state)))
            batch = Batch(coming=NextBatch(plan=plan), ledger=ledger, claim=work.claim, left=found)
            done = ingest(run, context, batch, outcome)
            commit(run, context, batch.decided(done.plan), done)
            count(outcome, plan, done)
        ledger.commit(_empty_commit(work, replace(ledger.state, batch=ledger.state.batch + 1)))
    if ledger.state.keys is None:
        return None, ledger
    return plan_batch(work.run.dialect, (), context.stored_columns(), ledger.state).table_schema, ledger


def _next_plan(run: TableRun, ledger: Ledger, found: Discovery) -> BatchPlan | None:
    plan = ledger.plan()
    if plan is None:
        plan = next_batch(found.waiting, limits=run.limits, state=ledger.state, now=moment(run, ledger))
        if plan is not None:
            plan = replace(plan, sweep=False)
            ledger.write_plan(plan)
    return plan


def _require_unchanged(work: _Refresh, ledger: Ledger, found: Discovery) -> None:
    """Files that changed during an interrupted refresh make the next run start it again."""
    pending = ledger.plan()
    if pending is not None and files_changed(pending, found):
        _forget(work)
        raise RetriableError("FILES_CHANGED", f"{work.run.spec.table}: files changed since its full refresh started",
                             remedy="run the refresh again; the tables are unchanged")  # fmt: skip


def _empty_commit(work: _Refresh, state: TableState) -> BatchCommit:
    plan = BatchPlan(
        number=state.batch, mode="refresh", planned_at=work.plan.planned_at, generation=state.generation, files=()
    )
    return BatchCommit(number=state.batch, plan=plan, files=(), state=state)


def _with_generations(work: _Refresh, found: Discovery, outcome: RunTotals) -> Discovery:
    if work.recorded is not None:
        return refresh_generations.by_change_table(found, work.recorded, outcome)
    return refresh_generations.by_ledger(work.run, work.ledger, found, outcome, archives=work.plan.archives)


def _commit(work: _Refresh, fresh: Ledger, order: RebuildRequest, rows_now: int) -> None:
    """The live ledger takes over the rows and the state of the shadow ledger."""
    work.run.report("commit", work.plan.number)
    before, rows = work.ledger.state, fresh.all_entries()
    entries: tuple[FileEntry, ...] = tuple(replace(e, batch=work.plan.number) for e in rows.values())
    if work.plan.archives:
        entries += _forgotten(work, rows)
    highest = refresh_generations.highest_sequence(before, fresh.state)
    state = replace(
        _swept(work, fresh)[0], batch=work.plan.number, rows=rows_now,
        max_sequence=fresh.state.max_sequence if order.resequenced or order.archives else highest,
        delta_versions=versions_of(work.live.engine, work.live.layout), foreign=(),
        generation_floor=order.generation_low_watermarks, tombstones_purged_at=before.tombstones_purged_at,
        applied=settings_of(work.run.spec),
    )  # fmt: skip
    work.ledger.commit(BatchCommit(number=work.plan.number, plan=work.plan, files=entries, state=state))
    work.run.report("committed", work.plan.number)


def _forgotten(work: _Refresh, present: Mapping[str, FileEntry]) -> tuple[FileEntry, ...]:
    """Ledger rows of files that are gone, whose changes are archived: should one come back, it is loaded again."""
    gone = (entry for path, entry in work.ledger.all_entries().items() if path not in present)
    return tuple(replace(e, batch=work.plan.number, fingerprint="", etag="", generation=ARCHIVED) for e in gone)


def _swept(work: _Refresh, fresh: Ledger) -> tuple[TableState, Discovery]:
    rule = SweepRule.of(work.run.spec)
    return refresh_generations.sweep_after_refresh(work.plan, work.ledger.state, fresh.state, fresh.all_entries(), rule)


def _settle(work: _Refresh, outcome: RunTotals, state: TableState, done: Rebuilt) -> None:
    outcome.batches = max(outcome.batches, 1)
    outcome.changes_written = done.changes_added
    outcome.redelivered = outcome.rows_read - outcome.quarantined - done.changes_added
    outcome.main = MainCounts(inserted=done.rows, rows=done.rows)
    outcome.max_commit_ts = state.max_commit_ts
    outcome.version = work.live.engine.version(work.live.layout.replica)


def _forget(work: _Refresh) -> None:
    """Drop a refresh that has swapped nothing; the table's next run is a normal one, which resumes a started batch."""
    work.claim.check()
    if work.plan.interrupted is None:
        work.ledger.drop_plan()
    else:
        work.ledger.write_plan(work.plan.interrupted)
    _clean_up(work)


def _clean_up(work: _Refresh) -> None:
    """Remove the shadow table; leftovers are harmless, so a crash here needs no repair."""
    root = join(work.live.layout.state, "refresh")
    for found in list(work.live.storage.list(root)):
        work.live.storage.delete(found.path)
