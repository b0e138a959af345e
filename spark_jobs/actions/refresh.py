"""A full refresh: rebuild replica and history from the files, next to the live tables, and swap (rule 10).

All files are ingested again into a separate change table and ledger below the state folder, in the usual bounded
batches, so that an interrupted refresh resumes where it stopped. Then, each step in one Delta commit: the change table
gains missing changes; replica, tombstones and history are overwritten with the fold of the new change table; the
quarantine is settled; the ledger commits.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult, MainCounts
from spark_jobs.actions import refresh_generations
from spark_jobs.actions.refresh_plan import is_sealed, new_plan, nothing_to_refresh, shadow_of
from spark_jobs.actions.resync import ResyncCheck, check
from spark_jobs.engines.base import DeclinedError, RebuildRequest, TableContext
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
from spark_jobs.plan.sweeping import SweepRule
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.batch_schema import plan_batch
from spark_jobs.rules.figures import Rebuilt
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


def refresh_table(run: TableRun, outcome: RunTotals) -> JobResult:
    """Rebuild one table.

    Raises:
        GddlError: the cause of the failure; readers see the old table until the swap.
    """
    outcome.mode = "refresh"
    with run.claim() as claim:
        ledger, context = run.ledger(), run.context()
        context.erasures.keys(keep=True)  # checks that stop every batch come before the first write
        plan = ledger.plan()
        if plan is not None and plan.mode != "refresh":
            ledger.drop_plan()
            plan = None
        if plan is None or (run.job.options.resync and not plan.swapping):
            plan = _with_check(plan or new_plan(run, ledger), run)
            claim.check()
            ledger.write_plan(plan)
        run.report("plan", plan.number)
        checked = _carry_out(_Refresh(run=run, live=context, ledger=ledger, plan=plan, claim=claim), outcome)
    run.report("done", outcome.batches, outcome.rows_read)
    return run.result(outcome, details=None if checked is None else {"resync": asdict(checked)})


def _with_check(plan: BatchPlan, run: TableRun) -> BatchPlan:
    """The plan with the job's check, since a run that resumes it reads only the plan."""
    options = run.job.options
    return replace(plan, resync=options.resync, source_connection=options.source_connection if options.resync else "")


def _carry_out(work: _Refresh, outcome: RunTotals) -> ResyncCheck | None:
    """Result of a resync's check; null for a full refresh."""
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


def _built(work: _Refresh, outcome: RunTotals) -> tuple[RebuildRequest, Ledger, ResyncCheck | None]:
    """Build and check the shadow table; the live table is unchanged."""
    table_schema, fresh = _ingest_all(work, outcome)
    if table_schema is None:
        raise nothing_to_refresh(work.run.spec.table, work.live.layout.landing)
    work.run.report("read", work.plan.number, outcome.rows_read)
    files, again = fresh.all_entries(), is_resequenced(table_schema, work.ledger.state, fresh.state)
    order = RebuildRequest(
        live=work.live, shadow=work.shadow.layout, plan=work.plan, table_schema=table_schema,
        generation_low_watermarks=refresh_generations.watermarks(table_schema, fresh.state, again),
        swept=_swept(work, fresh)[0].swept,
        landed=tuple(files), read={path: row.generation for path, row in files.items() if row.state == "committed"},
        resequenced=again, reselected=bool(reselected_columns(work.run.spec, work.ledger.state)),
    )  # fmt: skip
    if work.plan.swapping:
        return order, fresh, None
    checked = _checked(work, order, fresh) if work.plan.resync else None
    _require_all_changes(work, order, fresh.state)
    return order, fresh, checked


def _checked(work: _Refresh, order: RebuildRequest, fresh: Ledger) -> ResyncCheck:
    """Check the shadow table before the swap.

    A check that can't run drops the refresh too: the table's next loads must not wait for its source.
    """
    try:
        checked = check(work.run, order, fresh.all_entries(), work.plan.source_connection)
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
    run, context = work.shadow, replace(work.live, layout=work.shadow.layout, dialect=work.shadow.dialect)
    ledger = run.ledger()
    if ledger.state.batch == 0:
        ledger.commit(_empty_commit(work, refresh_generations.seed(work.ledger.state, work.recorded)))
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
            commit(run, context, batch, done)
            count(outcome, plan, done)
        ledger.commit(_empty_commit(work, replace(ledger.state, batch=ledger.state.batch + 1)))
    if ledger.state.keys is None:
        return None, ledger
    table_schema = plan_batch(context.dialect, (), context.stored_columns(), ledger.state).table_schema
    return replace(table_schema, spec=work.run.dialect.spec), ledger


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
    return refresh_generations.by_ledger(work.run, work.ledger, found, outcome)


def _commit(work: _Refresh, fresh: Ledger, order: RebuildRequest, rows_now: int) -> None:
    """The live ledger takes over the rows and the state of the shadow ledger."""
    work.run.report("commit", work.plan.number)
    before, rows = work.ledger.state, fresh.all_entries()
    entries: tuple[FileEntry, ...] = tuple(replace(e, batch=work.plan.number) for e in rows.values())
    highest = refresh_generations.highest_sequence(before, fresh.state)
    state = replace(
        _swept(work, fresh)[0], batch=work.plan.number, rows=rows_now,
        max_sequence=fresh.state.max_sequence if order.resequenced else highest,
        delta_versions=versions_of(work.live.engine, work.live.layout), foreign=(),
        generation_floor=order.generation_low_watermarks, tombstones_purged_at=before.tombstones_purged_at,
        applied=settings_of(work.run.spec),
    )  # fmt: skip
    work.ledger.commit(BatchCommit(number=work.plan.number, plan=work.plan, files=entries, state=state))
    work.run.report("committed", work.plan.number)


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
    """Drop a refresh that has swapped nothing; the table's next run is a normal one."""
    work.claim.check()
    work.ledger.drop_plan()
    _clean_up(work)


def _clean_up(work: _Refresh) -> None:
    """Remove the shadow table; leftovers are harmless, so a crash here needs no repair."""
    root = join(work.live.layout.state, "refresh")
    for found in list(work.live.storage.list(root)):
        work.live.storage.delete(found.path)
