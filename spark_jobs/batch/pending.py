"""What waits for a table, and its next batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING

from airflow_gddl.contract.actions import HandleErrors, Load
from airflow_gddl.contract.codes import CAST_FAILED
from airflow_gddl.contract.file_names import is_listing_due
from airflow_gddl.contract.sources import source_of
from spark_jobs.batch import notices
from spark_jobs.batch.damaged_tables import require_undamaged
from spark_jobs.batch.own_tables import foreign_commits, warnings_of
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.session import Batch, TableSession
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batching import next_batch as plan_files
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import BatchPlan, PlannedFile, TableState
from spark_jobs.plan.sweeps import RELEASED, SweepRule, SweepState, is_due_by_time, sweep_state, with_sweep
from spark_jobs.plan.waiting_files import Discovery

if TYPE_CHECKING:
    from spark_jobs.tables.engine import Engine

_LOG = logging.getLogger(__name__)


def next_batch(table: TableSession, *, replayed: bool) -> Batch | None:
    """The batch to run now; None when nothing is left.

    Args:
        replayed: this run has replayed the rows in quarantine; what waits has the files in quarantine, if a user asked.
    """
    return _next_batch(table, replayed=replayed) or _misfits(table)


def _next_batch(table: TableSession, *, replayed: bool) -> Batch | None:
    """A started batch whose files changed before it appended rows is dropped: the current files form a new one."""
    pending = table.ledger.plan()
    if pending is not None and not files_changed(pending, table.discovery):
        return Batch(plan=pending, resumed=True)
    if pending is not None:
        if table.context.has_appended(pending):
            return Batch(plan=pending, resumed=True, in_changes=True)
        drop(table.context, pending, table.ledger)
    plan = _planned(table, pending or table.dropped, replayed=replayed)
    return None if plan is None else Batch(plan=replace(plan, shard=table.run.shard))


def _misfits(table: TableSession) -> Batch | None:
    """The batch of quarantined values that did not fit their columns, where one became text since; else None."""
    if not table.ledger.awaits_replay:
        return None
    run = table.run.asking(HandleErrors(mode="replay", codes=(CAST_FAILED,)))
    return _next_batch(replace(table, run=run), replayed=False)


def _planned(table: TableSession, dropped: BatchPlan | None, *, replayed: bool) -> BatchPlan | None:
    run, discovery, state = table.run, table.discovery, table.state
    now = moment(run, table.ledger, dropped)
    without_files = BatchPlan(
        number=state.batch + 1, mode="incremental", planned_at=iso(now), generation=state.generation, files=()
    )
    if replays(run):
        plan = None if state.keys is None else replace(without_files, source="quarantine", codes=run.replayed_codes)
        return plan_files(discovery.waiting, limits=table.limits, state=state, now=now) if replayed else plan
    if is_emptied(run, discovery, table.ledger):
        return replace(without_files, generation=state.generation + 1, sweep=True, released=True)
    if sweep_of(run, discovery, state) == "due":
        # It removes the rows that the newest full load lacks.
        return replace(without_files, sweep=True, released=releases(run))
    if releases(run):
        return None
    waiting, released = to_release(run, discovery, state)
    plan = plan_files(waiting, limits=table.limits, state=state, now=now)
    if plan is not None and plan.sweep:
        plan = replace(plan, sweep=False) if run.is_loading else with_sweep(plan, discovery, SweepRule.of(run.spec))
    return replace(plan, releases=released) if plan is not None and released else plan


def start(table: TableSession, batch: Batch) -> None:
    """Write the plan of a batch, unless an earlier run has."""
    table.run.go_on()
    if not batch.resumed:
        table.claim.check_unless_young()
        table.ledger.write_plan(batch.plan)
    table.run.report("plan", batch.plan.number)


def add_unread(table: TableSession) -> None:
    """After rows of the quarantine read files that could not be read, where a user asked for the replay.

    Those that a user has dismissed count as resolved.
    """
    if not replays(table.run):
        return
    unread = table.run.discover_unread(table.ledger)
    if unread.waiting:
        dismissed, known = table.context.quarantine.dismissed_files(), table.ledger.all_entries()
        waiting = (f for f in unread.waiting if f.path not in dismissed or known[f.path].fingerprint != f.fingerprint)
        unread = replace(unread, waiting=tuple(waiting))
    table.note(notices.of_unread_loads(table.spec.table, unread))
    table.discovery = unread


def batches_ahead(
    run: TableRun, pending: BatchPlan | None, state: TableState, discovery: Discovery
) -> Iterator[tuple[BatchPlan, bool]]:
    """Batches that a run would make of what was found, each with whether it is resumed; writes nothing.

    Args:
        pending: a started batch; None: none.
        state: before these batches.
    """
    now = run.runtime.clock()
    while (plan := pending or plan_files(discovery.waiting, limits=run.limits, state=state, now=now)) is not None:
        yield plan, pending is not None
        pending, discovery = None, discovery.without(plan)
        state = replace(state, batch=plan.number, generation=plan.generation)


def replays(run: TableRun) -> bool:
    """Whether a user lets the quarantine be processed again."""
    return run.job.options.action.does == "errors_replay"


def replays_first_load(run: TableRun, ledger: Ledger) -> bool:
    """Whether a replay has to be a usual run: there is no table yet, since files of its first load were unreadable."""
    return replays(run) and run.replays_files and bool(notices.unread_first_load(ledger))


def releases(run: TableRun) -> bool:
    """Whether a user has released the sweep of rows that the newest full load lacks; a snapshot is no full load."""
    return run.job.options.releases("sweep") and run.spec.mode == "changes"


def releases_truncates(run: TableRun) -> bool:
    """Whether a user has released the truncates of the file that is held."""
    return run.job.options.releases("truncate")


def to_release(run: TableRun, discovery: Discovery, state: TableState) -> tuple[tuple[PlannedFile, ...], bool]:
    """Files up to the one whose truncates a user releases, and whether a batch of them does; else all that wait.

    Where the ledger knows no such file, the first load waits for the release. Of a reload of a time, a user asked for
    what its files say, which come first.
    """
    if run.job.options.reloads:
        again = tuple(takewhile(lambda file: file.corrects, discovery.waiting))
        return again or discovery.waiting, bool(again)
    if not releases_truncates(run):
        return discovery.waiting, False
    held = state.held_truncate
    if state.batch == 0 or held is None:
        return discovery.waiting, state.batch == 0
    at = next((at for at, file in enumerate(discovery.waiting, start=1) if file.path == held.path), 0)
    return (discovery.waiting[:at], True) if at else (discovery.waiting, False)


def without_held(run: TableRun, discovery: Discovery, state: TableState) -> Discovery:
    """What waits, without files that a truncate holds: these wait for a user."""
    held = state.held_truncate
    if held is None or run.spec.truncate != "hold" or releases_truncates(run):
        return discovery
    is_there = any((file.path, file.fingerprint) == (held.path, held.fingerprint) for file in discovery.waiting)
    return discovery.held_from(held.path) if is_there else discovery


def sweep_of(run: TableRun, discovery: Discovery, state: TableState) -> SweepState:
    """State of the newest generation's sweep; a user's release makes it due."""
    if state.is_swept:
        return "none"
    rule = RELEASED if releases(run) else SweepRule.of(run.spec)
    standing = sweep_state(state, discovery, rule, run.runtime.clock())
    return "pending" if standing == "due" and not rule.released and run.is_loading else standing


def moment(run: TableRun, ledger: Ledger, dropped: BatchPlan | None = None) -> datetime:
    """The time of a new plan, later than all earlier plans regardless of clocks: it is the transaction version."""
    last = ledger.last_commit()
    before = [p.planned_at for p in (dropped, last.plan if last else None) if p is not None]
    floor = [datetime.fromisoformat(text) + timedelta(microseconds=1) for text in before]
    return max([run.runtime.clock(), *floor])


def is_emptied(run: TableRun, discovery: Discovery, ledger: Ledger) -> bool:
    """Whether the folder is missing, the row empties the table then, and no batch has done so yet.

    A landing root that is missing says nothing of its tables.
    """
    is_empty = discovery.folder_missing and not discovery.root_missing and run.dialect.options.missing_folder == "empty"
    if not (is_empty and ledger.state.batch):
        return False
    generation = ledger.state.generation
    return any(row.generation == generation for row in ledger.all_entries().values())


def files_changed(plan: BatchPlan, discovery: Discovery) -> bool:
    """Whether a file of a started batch has changed since it was planned."""
    now = {file.path: file.fingerprint for file in discovery.waiting}
    return any(now.get(file.path) != file.fingerprint for file in plan.files)


def drop(context: Engine, plan: BatchPlan, ledger: Ledger) -> None:
    """Drop a batch; what it has put into the quarantine and resolved there is as it was before."""
    context.quarantine.forget(plan)
    ledger.drop_plan()


def withdraw(table: TableSession, plan: BatchPlan) -> None:
    """Drop a batch that can't be loaded, so that nothing waits for it, unless its changes are in the change table."""
    if not table.context.has_appended(plan):
        drop(table.context, plan, table.ledger)


def can_let_go(context: Engine, plan: BatchPlan) -> bool:
    """Whether a started batch may be dropped, which the next run plans again."""
    return plan.mode != "refresh" and not context.has_appended(plan)


def let_go_of_unwritten(context: Engine, ledger: Ledger) -> None:
    """Drop a started batch that has appended nothing; the next run plans another.

    So what a user asks for need not wait until the cause is corrected, as of a batch that stopped at an expectation.
    """
    plan = ledger.plan()
    if plan is not None and can_let_go(context, plan):
        drop(context, plan, ledger)


_BYTES_A_ROW = 50
_LANDED_WEIGHT = 7
"""What a byte of a landing file costs, in bytes of a replica that is merged into: see docs/decisions/size.md."""


@dataclass(frozen=True, kw_only=True)
class PendingWork:
    """A table with new files, as listed before the run had the claim.

    Attributes:
        state: its ledger's then.
    """

    state: TableState
    discovery: Discovery

    @property
    def cost(self) -> int:
        """Estimated work, in bytes of the replica: waiting files, which cost more, plus the replica."""
        return sum(f.size for f in self.discovery.waiting) * _LANDED_WEIGHT + self.state.rows * _BYTES_A_ROW


def looked(run: TableRun, totals: RunTotals) -> tuple[PendingWork, bool]:
    """What was found of the table, and whether a run has work.

    Raises:
        FatalError: as `require_same_identity` and `require_undamaged`; `FIRST_LOAD_UNREADABLE`.
        RetriableError: `LANDING_MISSING`.
    """
    ledger = run.ledger()
    if run.job.options.full_listing or is_listing_due(ledger.state.listed_in_full_at, run.runtime.clock()):
        require_undamaged(run)  # before the listing is noted: until a repair, each run says it
    run.report("discover")
    pending = ledger.plan() is not None  # its late files must be found again
    discovery = run.discover(ledger)
    discovery = discovery if pending else without_held(run, discovery, ledger.state)
    totals.not_listed = discovery.not_listed
    totals.mode = ledger.state.next_mode
    totals.commit = run.tier.commit  # of a run without a batch; a batch says how it was committed
    totals.max_commit_ts = ledger.state.max_commit_ts
    totals.version = ledger.state.delta_versions.get("replica")
    # Also without new files: a row that stored rows do not follow is never reported as up to date.
    require_same_identity(run.spec, ledger.state)
    seen = PendingWork(state=ledger.state, discovery=discovery)
    due = is_emptied(run, discovery, ledger) or sweep_of(run, discovery, ledger.state) == "due"
    requested = replays(run) or ledger.awaits_replay or wants_source_load(run, ledger)
    if discovery.waiting or pending or due or requested or waits_for_files(run, discovery):
        return seen, True
    if discovery.root_missing and source_of(run.spec) is None:  # a job makes the folder of a source that it reads
        raise notices.missing_root(run.spec.table, run.layout.landing)
    totals.warn(notices.of_discovery(run, discovery))
    report_left(run, ledger, discovery, totals)
    if run.job.options.full_listing:  # requested by a user
        totals.warn(warnings_of(foreign_commits(run, ledger)))
    notices.require_first_load(run.spec.table, ledger)
    return seen, False


def wants_source_load(run: TableRun, ledger: Ledger) -> bool:
    """Whether the row asks for a full load from the source database, and the table has none yet."""
    if run.spec.initial_load is None or not isinstance(run.job.options.action, Load) or ledger.state.batch > 0:
        return False
    load = run.source_load
    return load is None or load.ended is None


def waits_for_files(run: TableRun, discovery: Discovery) -> bool:
    """Whether a run waits for files that may still be written; a continuous job lists them again."""
    return bool(discovery.unsettled) and run.job.options.continuous is None


def report_left(run: TableRun, ledger: Ledger, discovery: Discovery, totals: RunTotals) -> None:
    """What a run leaves to a later one: files that may still be written, rows that a reload may yet bring again."""
    standing = sweep_of(run, discovery, ledger.state)
    if discovery.unsettled:
        totals.warn(notices.of_unsettled(discovery.unsettled))
    if standing != "none":
        totals.warn(notices.of_sweep(run.spec.table, standing, ledger.state, discovery))
    if discovery.held:
        totals.warn(notices.of_held_truncate(discovery, run.spec))
    totals.warn(notices.of_given_up(run.spec.table, ledger))
    totals.wait(_not_applied(ledger, discovery, standing))
    is_due = standing == "pending" and is_due_by_time(ledger.state)
    totals.revisit = totals.revisit or bool(discovery.unsettled) or is_due


def _not_applied(ledger: Ledger, discovery: Discovery, standing: SweepState) -> Iterator[str]:
    """When files landed that are there and not applied, or not wholly: the rows that a full load lacks stay."""
    yield from (file.modified for file in (*discovery.waiting, *discovery.held))
    yield from (row.modified for row in ledger.unread())
    state = ledger.state
    if standing == "held" and state.held is not None:
        yield state.held.since
        rows = ledger.entries().values()
        yield from (row.modified for row in rows if row.kind == "load" and row.generation == state.generation)


def has_tables(run: TableRun, context: Engine, state: TableState) -> bool:
    """Whether there is a change table with changes of what this run loads: other shards' may be in the same one."""
    if not context.tables.exists(context.layout.changes):
        return False
    if not run.shard or state.batch or not any(other.batch for other in run.others):
        return True
    files = context.stored.recorded_files()
    return any(file.path.startswith(f"{context.layout.landing}/") for file in files)
