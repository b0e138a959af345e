"""What waits for a table: its next batch, and the turns of its sources."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from airflow_gddl.contract.completeness import HeartbeatFacts, complete_until
from airflow_gddl.contract.connections import mask_key
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.source_rooms import source_room
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.batch import notices
from spark_jobs.batch.runtime import RunTotals, TableRun, iso
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.discover import (
    RELEASED,
    Discovery,
    SweepRule,
    SweepState,
    is_due_by_time,
    next_batch,
    sweep_state,
    with_sweep,
)
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import BatchPlan, PlannedFile, TableState
from spark_jobs.tables.delta_log import APPEND, version_of
from spark_jobs.tables.engine import TableContext
from spark_jobs.tables.places import DeclinedError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NextBatch:
    """A plan, and its state by an earlier run.

    Attributes:
        resumed: its plan was written by an earlier run.
        appended: its changes are in the change table, and its files have changed since it was planned:
            resume from the change table.
    """

    plan: BatchPlan
    resumed: bool = False
    appended: bool = False


def next_plan(
    run: TableRun, context: TableContext, found: Discovery, ledger: Ledger, *, replayed: bool
) -> NextBatch | None:
    """The batch to run now; None when nothing is left.

    A started batch whose files changed before it appended rows is dropped: the current files form a new one.

    Args:
        replayed: this run has replayed the rows in quarantine; `found` has the files in quarantine, if a user asked.
    """
    pending = ledger.plan()
    if pending is not None and not files_changed(pending, found):
        return NextBatch(plan=pending, resumed=True)
    if pending is not None:
        if context.engine.last_transaction(context.layout.changes, APPEND) >= version_of(pending):
            return NextBatch(plan=pending, resumed=True, appended=True)
        drop(context, pending, ledger)
    now, state = moment(run, ledger, pending), ledger.state
    without_files = BatchPlan(
        number=state.batch + 1, mode="incremental", planned_at=iso(now), generation=state.generation, files=()
    )
    if replays(run):
        plan = None if state.keys is None else replace(without_files, source="quarantine", codes=run.job.options.codes)
        plan = next_batch(found.waiting, limits=run.limits, state=state, now=now) if replayed else plan
    elif is_emptied(run, found, ledger):
        plan = replace(without_files, generation=state.generation + 1, sweep=True, released=True)
    elif sweep_of(run, found, state) == "due":
        # It removes the rows that the newest full load lacks.
        plan = replace(without_files, sweep=True, released=releases(run))
    elif releases(run):
        plan = None
    else:
        waiting, released = to_release(found, state) if releases_truncates(run) else (found.waiting, False)
        plan = next_batch(waiting, limits=run.limits, state=state, now=now)
        plan = None if plan is None else replace(with_sweep(plan, found, SweepRule.of(run.spec)), releases=released)
        plan = replace(plan, sweep=False) if plan is not None and plan.sweep and run.is_loading else plan
    return None if plan is None else NextBatch(plan=replace(plan, shard=run.shard))


def batches_ahead(
    run: TableRun, pending: BatchPlan | None, state: TableState, found: Discovery
) -> Iterator[tuple[BatchPlan, bool]]:
    """Batches that a run would make of what was found, each with whether it is resumed; writes nothing.

    Args:
        pending: a started batch; null: none.
        state: before these batches.
    """
    now = run.runtime.clock()
    while (plan := pending or next_batch(found.waiting, limits=run.limits, state=state, now=now)) is not None:
        yield plan, pending is not None
        pending, found = None, found.without(plan)
        state = replace(state, batch=plan.number, generation=plan.generation)


def replays(run: TableRun) -> bool:
    """Whether a user lets the quarantine be processed again."""
    return run.job.options.action == "errors_replay"


def releases(run: TableRun) -> bool:
    """Whether a user has released the sweep of rows that the newest full load lacks; a snapshot is no full load."""
    return run.job.options.action == "sweep_release" and run.spec.mode == "changes"


def releases_truncates(run: TableRun) -> bool:
    """Whether a user has released the truncates of the file that is held."""
    return run.job.options.action == "truncate_release"


def to_release(found: Discovery, state: TableState) -> tuple[tuple[PlannedFile, ...], bool]:
    """Files up to the one whose truncates a user releases, and whether a batch of them does.

    Where the ledger knows no such file, the first load waits for the release.
    """
    held = state.held_truncate
    if state.batch == 0 or held is None:
        return found.waiting, state.batch == 0
    at = next((at for at, file in enumerate(found.waiting, start=1) if file.path == held.path), 0)
    return (found.waiting[:at], True) if at else (found.waiting, False)


def without_held(run: TableRun, found: Discovery, state: TableState) -> Discovery:
    """What waits, without files that a truncate holds: these wait for a user."""
    if run.spec.truncate != "hold" or releases_truncates(run):
        return found
    return found.held_by(state.held_truncate)


def sweep_of(run: TableRun, found: Discovery, state: TableState) -> SweepState:
    """State of the newest generation's sweep; a user's release makes it due."""
    rule = RELEASED if releases(run) else SweepRule.of(run.spec)
    standing = sweep_state(state, found, rule, run.runtime.clock())
    return "pending" if standing == "due" and not rule.released and run.is_loading else standing


def moment(run: TableRun, ledger: Ledger, dropped: BatchPlan | None = None) -> datetime:
    """The time of a new plan, later than all earlier plans regardless of clocks: it is the transaction version."""
    last = ledger.last_commit()
    before = [p.planned_at for p in (dropped, last.plan if last else None) if p is not None]
    floor = [datetime.fromisoformat(text) + timedelta(microseconds=1) for text in before]
    return max([run.runtime.clock(), *floor])


def is_emptied(run: TableRun, found: Discovery, ledger: Ledger) -> bool:
    """Whether the folder is missing, the row empties the table then, and no batch has done so yet.

    A landing root that is missing says nothing of its tables.
    """
    is_empty = found.folder_missing and not found.root_missing and run.dialect.options.missing_folder == "empty"
    if not (is_empty and ledger.state.batch):
        return False
    generation = ledger.state.generation
    return any(row.generation == generation for row in ledger.all_entries().values())


def files_changed(plan: BatchPlan, found: Discovery) -> bool:
    """Whether a file of a started batch has changed since it was planned."""
    now = {file.path: file.fingerprint for file in found.waiting}
    return any(now.get(file.path) != file.fingerprint for file in plan.files)


def drop(context: TableContext, plan: BatchPlan, ledger: Ledger) -> None:
    """Drop a batch that has written at most quarantined rows."""
    if context.engine.exists(context.layout.errors):
        context.engine.forget_errors(context, plan.batch_id)
    ledger.drop_plan()


def withdraw(context: TableContext, plan: BatchPlan, ledger: Ledger) -> None:
    """Drop a batch that can't be loaded, so that nothing waits for it, unless its changes are in the change table."""
    if context.engine.last_transaction(context.layout.changes, APPEND) < version_of(plan):
        drop(context, plan, ledger)


def let_go_of_unwritten(context: TableContext, ledger: Ledger) -> None:
    """Drop a started batch that has appended nothing; the next run plans another.

    So what a user asks for need not wait until the cause is corrected, as of a batch that stopped at an expectation.
    """
    plan = ledger.plan()
    if plan is not None and plan.mode != "refresh":
        withdraw(context, plan, ledger)


_BYTES_A_ROW = 50
_LANDED_WEIGHT = 7
"""What a byte of a landing file costs, in bytes of a replica that is merged into: see docs/decisions/places.md."""


@dataclass(frozen=True, kw_only=True)
class PendingWork:
    """A table with new files, as listed before the run had the claim.

    Attributes:
        state: its ledger's then.
    """

    state: TableState
    found: Discovery

    @property
    def cost(self) -> int:
        """Estimated work, in bytes of the replica: waiting files, which cost more, plus the replica."""
        return sum(f.size for f in self.found.waiting) * _LANDED_WEIGHT + self.state.rows * _BYTES_A_ROW


def find_pending(run: TableRun, outcome: RunTotals) -> PendingWork | None:
    """The table's work; None when there is none.

    Raises:
        FatalError: as `require_same_identity`; `FIRST_LOAD_UNREADABLE`.
        RetriableError: `LANDING_MISSING`.
    """
    ledger = run.ledger()
    run.report("discover")
    pending = ledger.plan() is not None  # its late files must be found again
    found = run.discover(ledger, brief=not pending)
    found = found if pending else without_held(run, found, ledger.state)
    outcome.not_listed = found.not_listed
    outcome.mode = "initial" if ledger.state.batch == 0 else "incremental"
    outcome.max_commit_ts = ledger.state.max_commit_ts
    outcome.version = ledger.state.delta_versions.get("replica")
    # Also without new files: a row that stored rows do not follow is never reported as up to date.
    require_same_identity(run.spec, ledger.state)
    due = is_emptied(run, found, ledger) or sweep_of(run, found, ledger.state) == "due"
    asked = replays(run) or ledger.awaits_replay or wants_source_load(run, ledger)
    if not (found.waiting or pending or due or asked or waits_for_files(run, found)):
        if found.root_missing and source_room(run.spec) is None:  # a job makes the folder of a source that it reads
            raise notices.missing_root(run.spec.table, run.layout.landing)
        outcome.warn(notices.of_discovery(found, run.layout.landing, run.dialect))
        report_left(run, ledger, found, outcome)
        if run.job.options.full_listing:  # requested by a user
            commits = notices.foreign_commits(run.spec, run.runtime.storage, run.layout, ledger)
            outcome.warn(notices.warnings_of(commits))
        notices.require_first_load(run.spec.table, ledger)
        return None
    return PendingWork(state=ledger.state, found=found)


def wants_source_load(run: TableRun, ledger: Ledger) -> bool:
    """Whether the row asks for a full load from the source database, and the table has none yet."""
    if run.spec.initial_load is None or run.job.options.action != "run" or ledger.state.batch > 0:
        return False
    found = run.source_load
    return found is None or found.ended is None


def waits_for_files(run: TableRun, found: Discovery) -> bool:
    """Whether a run waits for files that may still be written; a continuous job lists them again."""
    return bool(found.unsettled) and run.job.options.continuous is None


def report_left(run: TableRun, ledger: Ledger, found: Discovery, outcome: RunTotals) -> None:
    """What a run leaves to a later one: files that may still be written, rows that a reload may yet bring again."""
    standing = sweep_of(run, found, ledger.state)
    outcome.warn((*notices.of_unsettled(found.unsettled), *notices.of_sweep(standing, ledger.state, found)))
    outcome.warn(notices.of_held_truncate(found, run.spec))
    outcome.revisit = outcome.revisit or bool(found.unsettled) or is_due_by_time(ledger.state, standing)


_COUNTED = 20_000
"""Rows in quarantine that are counted by source, oldest first."""
_PASSED_ON = (DeclinedError, MemoryError)
"""They concern the table as a whole: another engine takes it."""


@dataclass
class Turns:
    """What each source of a table has to do.

    Attributes:
        pending: the source whose oldest file waits longest first; a table of one source has one at most.
        faults: by source, why it could not be listed or loaded.
    """

    run: TableRun
    outcome: RunTotals
    pending: list[tuple[TableRun, PendingWork]] = field(default_factory=list)
    faults: dict[str, Exception] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        """See `PendingWork.cost`."""
        return sum(seen.cost for _, seen in self.pending)

    def take(self, work: Callable[[TableRun, PendingWork], None]) -> None:
        """Let `work` do what is pending. The caller holds the table's claim."""
        if not self.run.spec.shards:
            for run, seen in self.pending:
                work(run, seen)
            return
        states = self.run.shard_states()  # under the claim: another job may have loaded a shard since `find_pending`
        for run, seen in self.pending:
            self._guarded(run.shard, partial(work, run.beside(states), seen))
            states[run.shard] = run.own_state()
        self._replay_unlocked(work, states)
        self._sum_up(states)

    def find_pending(self) -> None:
        """Find what is pending.

        Raises:
            GddlError: as `find_pending`, of a table with one source.
        """
        if not self.run.spec.shards:
            seen = find_pending(self.run, self.outcome)
            self.pending = [] if seen is None else [(self.run, seen)]
            return
        self.run.ledger()  # which refuses a table that was loaded otherwise
        modes, newest = set(), self.outcome.max_commit_ts
        for run in self.run.shard_runs():
            self._guarded(run.shard, partial(self._find_pending, run))
            modes.add(self.outcome.mode)
            newest = max(filter(None, (newest, self.outcome.max_commit_ts)), default=None)
        self.outcome.mode = "initial" if modes == {"initial"} else "incremental"
        self.outcome.max_commit_ts = newest
        self.pending.sort(key=lambda turn: min((f.modified for f in turn[1].found.waiting), default=""))

    def require_all(self) -> None:
        """
        Raises:
            GddlError: the fault of a source; passing where all are.
        """
        if not self.faults:
            return
        shard, first = next(iter(self.faults.items()))
        if not isinstance(first, GddlError):
            what = f"source {shard}: {type(first).__name__}: {first}"
            raise RuntimeError(what) from first  # noqa: TRY004 - a fault of any kind
        passing = all(isinstance(fault, RetriableError) for fault in self.faults.values())
        family = RetriableError if passing else FatalError
        what, where, remedy = _together(self.run.spec.table, first, self.faults)
        raise family(first.code, what, where=where, remedy=remedy) from first

    def _find_pending(self, run: TableRun) -> None:
        seen = find_pending(run, self.outcome)
        if seen is not None:
            self.pending.append((run, seen))

    def _replay_unlocked(self, work: Callable[[TableRun, PendingWork], None], states: dict[str, TableState]) -> None:
        """Another turn for sources with values in quarantine, where one after them has made a column text."""
        for run in self.run.shard_runs():
            if run.shard not in self.faults and run.ledger().awaits_replay:
                self._guarded(run.shard, partial(self._replay, run, work))
                states[run.shard] = run.own_state()

    def _replay(self, run: TableRun, work: Callable[[TableRun, PendingWork], None]) -> None:
        ledger = run.ledger()
        work(run, PendingWork(state=ledger.state, found=run.discover(ledger)))

    def _guarded(self, shard: str, work: Callable[[], None]) -> None:
        try:
            work()
        except _PASSED_ON:
            raise
        except Exception as error:  # noqa: BLE001 - a failure of one source does not stop the next
            self.faults[shard] = error

    def _sum_up(self, states: Mapping[str, TableState]) -> None:
        """Rows of the replica, also of former sources, and the newest commit time of those that the row names."""
        if self.outcome.main.rows is not None:
            self.outcome.main = replace(self.outcome.main, rows=sum(state.rows for state in states.values()))
        times = filter(None, (states[shard].max_commit_ts for shard in self.run.spec.shards))
        self.outcome.max_commit_ts = max(times, default=None)


def known_until(run: TableRun, outcome: RunTotals) -> str | None:
    """See `Freshness.complete_until`, of a run with batches; null for an idle one, which reads no other table.

    A run with a limited number of batches may have left files, so that only its own changes are evidence.
    """
    if not outcome.batches:
        return None
    whole = run.job.options.max_batches is None and not outcome.revisit and outcome.started_at
    as_of = datetime.fromisoformat(outcome.started_at).timestamp() if whole else None
    own = None if outcome.max_commit_ts is None else datetime.fromisoformat(outcome.max_commit_ts).timestamp()
    until = complete_until(own, as_of, _heartbeat(run))
    return None if until is None else iso(datetime.fromtimestamp(until, UTC))


def _heartbeat(run: TableRun) -> HeartbeatFacts | None:
    """What the ledger of the source's heartbeat table says; null: nothing, also where it can't be read."""
    if run.spec.heartbeat is None or run.spec.shards:
        return None
    layout = Layout.of(run.job.roots, replace(run.spec, table=run.spec.heartbeat))
    try:
        newest = Ledger.open(run.runtime.storage, layout.state).state.max_commit_ts
    except GddlError as error:  # a load never fails because of another table
        _LOG.warning("the heartbeat %s can't be read: %s", run.spec.heartbeat, error)
        return None
    return None if newest is None else HeartbeatFacts(commit=datetime.fromisoformat(newest).timestamp())


def require_supported(run: TableRun) -> None:
    """
    Raises:
        FatalError: `SHARDS_UNSUPPORTED`: the job asks for what tables of several sources do not have. `SPEC_INVALID`:
            its spec was not made from metadata. `MASK_KEY_MISSING`.
    """
    if "hmac" in run.spec.mask.values():
        mask_key(os.environ)
    options, spec = run.job.options, run.spec
    if spec.shards and (set(spec.shards) - set(spec.shard_landings) or spec.keys[:1] != (SHARD_COLUMN,)):
        what = (
            f"{spec.table} has shards, but not a landing root for each, or not {SHARD_COLUMN} as its first key column"
        )
        raise FatalError("SPEC_INVALID", what, remedy="let gddl make the order from the metadata")
    asked = {
        "gddl move": options.action == "move",
        "a resync": options.resync or options.differences,
        "a reload": options.reload,
        "a comparison with the source": bool(options.source_connection) and options.action != "resync_rows",
        "a continuous job": options.continuous is not None,
    }
    if run.spec.shards and (names := [name for name, is_asked in asked.items() if is_asked]):
        what = f"{run.spec.table} has several sources: {names[0]} is not built for such tables; nothing was done"
        remedy = "to load it again, give the row a new target; see docs/sources.md, section Load a sharded table again"
        raise FatalError("SHARDS_UNSUPPORTED", what, remedy=remedy)


def of_key(run: TableRun, code: str) -> TableRun:
    """The run of the source, or former source, that the job's key names; of a table with one source the run itself.

    Args:
        code: of the error.

    Raises:
        FatalError: the key names no source, or one that the table does not have.
    """
    if not run.spec.shards:
        return run
    named = {name.lower(): value for name, value in run.job.options.key.items()}
    shard = named.get(SHARD_COLUMN)
    for one in run.shard_runs():
        if one.shard == shard:
            return one
    states = run.shard_states()
    for one in run.former_shards:
        if one.shard == shard:
            return _landed(one.beside(states))
    known, keys = ", ".join(states), " ".join(f"--key {name}=…" for name in run.spec.keys)
    if shard is None:
        what = f"the key of {run.spec.table} names no {SHARD_COLUMN}, one of {known}"
    else:
        what = f"{SHARD_COLUMN} {shard!r} is not one of {known}, the sources of {run.spec.table} (case counts)"
    raise FatalError(code, what, remedy=f"name the whole key: {keys}")


def _landed(run: TableRun) -> TableRun:
    """The run of a former source with the landing folder of its files, which only its ledger knows."""
    ledger, folder = run.ledger(), "/".join(run.spec.name_in_source.split(".", 1))
    root = next((path.rpartition(f"/{folder}/")[0] for path in ledger.entries() or ledger.all_entries()), "")
    if not root:
        return run
    spec = replace(run.spec, landing=root, shard_landings={run.shard: root})
    return replace(run, spec=spec, layout_override=replace(run.layout, landing=f"{root}/{folder}"))


def left_in_quarantine(run: TableRun) -> tuple[RunWarning, ...]:
    """Warning of a replay about rows in quarantine that no source of the row has: a replay takes them by source."""
    if not replays(run) or not run.former_shards:
        return ()
    context, names = run.context(), {one.shard for one in run.former_shards}
    if not context.engine.exists(context.layout.errors):
        return ()
    found = context.engine.unresolved(context, _COUNTED)
    left = Counter(shard for row in found.rows if (shard := str(row["batch_id"]).rpartition("/")[0]) in names)
    oldest = "" if found.count == len(found.rows) else f" (among the {_COUNTED} oldest)"
    return notices.of_former_shards(left, f"stay in quarantine, until their source is named again{oldest}")


def has_tables(run: TableRun, context: TableContext, state: TableState) -> bool:
    """Whether there is a change table with changes of what this run loads: other shards' may be in the same one."""
    if not context.engine.exists(context.layout.changes):
        return False
    if not run.shard or state.batch or not any(other.batch for other in run.others):
        return True
    files = context.engine.recorded_files(context)
    return any(file.path.startswith(f"{context.layout.landing}/") for file in files)


def _together(table: str, first: GddlError, faults: Mapping[str, Exception]) -> tuple[str, str, str]:
    """What is wrong, where, and the remedies of the faults of sources; equal ones are named once."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    remedies: dict[str, list[str]] = {}
    for shard, fault in faults.items():
        code, what, where = "", f"{type(fault).__name__}: {fault}", ""
        if isinstance(fault, GddlError):
            code, what, where = fault.code, fault.what.removeprefix(f"{table}: "), fault.where
            if fault.remedy:
                remedies.setdefault(fault.remedy, []).append(shard)
        groups.setdefault((code, what, where), []).append(shard)
    said: list[str] = []
    for (code, what, where), shards in groups.items():
        title = f"source{'s' if len(shards) > 1 else ''} {', '.join(shards)}{'' if said else f' of {table}'}"
        place = f" ({where})" if where and len(groups) > 1 else ""
        said.append(f"{title}: {f'[{code}] ' if code not in ('', first.code) else ''}{what}{place}")
    where = first.where if len(groups) == 1 else ""
    by_shard = [f"{', '.join(shards)}: {text}" for text, shards in remedies.items()]
    return "; ".join(said), where, next(iter(remedies), "") if len(remedies) == 1 else "; ".join(by_shard)
