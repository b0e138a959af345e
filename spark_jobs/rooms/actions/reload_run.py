"""Tables loaded again from the files that are there: a reload, and a rebuild whose ledger is lost (rule 10).

All files are ingested again into a separate change table and ledger below the state folder, in the usual bounded
batches, so that an interrupted run resumes where it stopped. Then, each step in one Delta commit: the change table
takes what the files hold; replica, tombstones and history are overwritten with its fold; the quarantine is settled; the
ledger commits. What only the change table knew is archived by a reload, and kept where the ledger is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.codes import (
    CHANGES_INCOMPATIBLE,
    FILES_CHANGED,
    GENERATIONS_INFERRED,
    NOTHING_TO_REFRESH,
    OPTION_INVALID,
)
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult, MainCounts, RunWarning
from spark_jobs.batch import notices
from spark_jobs.batch.append import append
from spark_jobs.batch.commit import commit
from spark_jobs.batch.damaged_tables import damaged, damages, mend_files, mend_logs, of_files, require_undamaged
from spark_jobs.batch.own_tables import has_all_changes, require_no_other_table, versions_of
from spark_jobs.batch.pending import batches_ahead, files_changed, moment, without_held
from spark_jobs.batch.read import read
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.session import Batch, TableSession
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.applied_settings import settings_of
from spark_jobs.plan.batching import next_batch
from spark_jobs.plan.generations import Recorded, of_times, reconstruct
from spark_jobs.plan.identity import require_same_identity, reselected_columns
from spark_jobs.plan.planned_batch import (
    BatchCommit,
    BatchPlan,
    FileEntry,
    GenerationFloor,
    PlannedFile,
    TableState,
    Truncate,
    floors_of,
    is_small,
)
from spark_jobs.plan.sequence import greater
from spark_jobs.plan.source_snapshots import KnownSnapshots, SnapshotRun, text_of
from spark_jobs.plan.sweeps import SweepRule, sweep_state
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.plan.waiting_files import Discovery, LandingRange
from spark_jobs.rooms.actions.reload_check import Replacement, check, require_landed
from spark_jobs.rooms.dialects.protocol import Dialect
from spark_jobs.rooms.features import installed_features
from spark_jobs.rules.batch_schema import plan_batch
from spark_jobs.rules.order import ARCHIVED
from spark_jobs.rules.rewrite import plan_archive
from spark_jobs.rules.truncates import kept_truncates, restamped
from spark_jobs.tables.damage import Damage
from spark_jobs.tables.delta_log import version_of
from spark_jobs.tables.engine import Engine
from spark_jobs.tables.places import LargeBatchError
from spark_jobs.tables.swap import SwapRequest


def seed(state: TableState, recorded: Recorded | None, dialect: Dialect, *, archives: bool = False) -> TableState:
    """State that a shadow ledger inherits: schema ids, generations, snapshots of the source.

    Args:
        archives: the files alone are to say what there is; so they do of snapshots, and no row of another job counts.
    """
    if recorded is None:
        known = None if state.snapshots is None else dialect.replaced_snapshots(state.snapshots)
        known = KnownSnapshots() if archives and dialect.log_positions else known
        return TableState(batch=1, generation=max(state.generation, 1), schemas=state.schemas,
                          found=state.found, snapshots=known,
                          adopted=state.adopted and not archives,
                          floors=floors_of(state.floors or (GenerationFloor(),), known))  # fmt: skip
    return TableState(batch=1, generation=recorded.generation,
                      snapshots=_recorded_snapshots(recorded) if dialect.log_positions else None,
                      floors=recorded.floors(recorded.generation))  # fmt: skip


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


def by_ledger(
    run: TableRun, live: Ledger, discovery: Discovery, totals: RunTotals, *, archives: bool = False
) -> Discovery:
    """The files with the generations that the live ledger gave them, or would give them now.

    Where places in the source's log say the generations of changes, a reload gives all files the current one: their
    snapshots open later ones. Under `generations: by_time` the times of the files decide in a reload, whatever the
    ledger took them for: a user says so where a load was taken for a part of the one before. Changes that were
    ingested before a load that is older than they are belong to that load.

    Raises:
        FatalError: as `notices.require_known_generations`.
    """
    waiting = run.discover(live)
    notices.require_known_generations(waiting.inference, run.spec.table)
    totals.warn(notices.of_generations(waiting.inference))
    if archives and run.dialect.log_positions:
        return _with_generations(
            discovery, dict.fromkeys((f.path for f in discovery.waiting), max(live.state.generation, 1))
        )
    if archives and run.spec.generations == "by_time":
        return _with_generations(discovery, of_times(discovery.waiting, live.state.generation))
    rows = live.all_entries()
    known = {path: entry.generation for path, entry in rows.items()}
    known |= {file.path: file.generation for file in waiting.waiting}
    if waiting.overtaken is not None:
        later = (file for file in discovery.waiting if file.kind == "change" and file.modified > waiting.reloaded_at)
        known |= dict.fromkeys((file.path for file in later), live.state.generation + 1)
    return _with_generations(_with_fingerprints(discovery, rows), known)


def _with_fingerprints(discovery: Discovery, rows: Mapping[str, FileEntry]) -> Discovery:
    """The files with the fingerprints that the live ledger has of their content, by which erased keys are known."""

    def known(file: PlannedFile) -> PlannedFile:
        row = rows.get(file.path)
        if row is None or row.etag != file.etag or not row.fingerprint:
            return file
        return replace(file, fingerprint=row.fingerprint)

    return replace(discovery, waiting=tuple(map(known, discovery.waiting)))


def by_change_table(discovery: Discovery, recorded: Recorded, totals: RunTotals) -> Discovery:
    """The files with generations that are inferred without a ledger, with a warning."""
    files = discovery.waiting
    message = (
        "the ledger was lost: which full load files belong to was taken from the change table, and of files that it "
        "does not know from their times; compare the table with its source"
    )
    paths = tuple(file.path for file in files[: notices.SAMPLE])
    totals.warn([RunWarning(code=GENERATIONS_INFERRED, message=message, count=len(files), sample=paths)])
    return _with_generations(discovery, reconstruct(files, recorded))


def _with_generations(discovery: Discovery, generations: Mapping[str, int]) -> Discovery:
    """The files with these generations, in the order of ingestion."""
    files = [replace(f, generation=generations.get(f.path, f.generation)) for f in discovery.waiting]
    return replace(discovery, waiting=tuple(sorted(files, key=lambda f: f.generation)))


def repair_of(plan: BatchPlan | None) -> BatchPlan | None:
    """The plan of a repair that was interrupted; None: it is of no repair, or there is none."""
    return plan if plan is not None and plan.mode == "refresh" else None


def new_plan(
    run: TableRun, ledger: Ledger, interrupted: BatchPlan | None = None, context: Engine | None = None
) -> BatchPlan:
    """Plan of a reload that starts now, as the table's next batch, in place of a started one.

    Args:
        context: to see which numbers of batches the tables have where the ledger does not know them; None: not asked.
    """
    state = ledger.state
    known = max(state.batch, 0 if context is None else _unknown_batches(run, context, ledger))
    return BatchPlan(
        number=known + 1, mode="refresh", planned_at=iso(moment(run, ledger, interrupted)),
        generation=max(state.generation, 1), files=(), interrupted=interrupted, shard=run.shard,
    )  # fmt: skip


def _unknown_batches(run: TableRun, context: Engine, ledger: Ledger) -> int:
    """Greatest number of a batch in the change table that the ledger lacks; no later one may have it again."""
    is_lost = ledger.state.batch == 0
    if not is_lost and has_all_changes(run, ledger):
        return 0
    if not context.tables.exists(context.layout.changes):
        return 0
    return max((file.batch for file in context.stored.recorded_files()), default=0)


def kept_values(run: TableRun, reselected: Collection[str]) -> list[RunWarning]:
    """What features keep of columns that a repair is about to mask or to leave out."""
    features = installed_features() if reselected else ()
    return [warning for feature in features for warning in feature.shows_withheld(run, reselected)]


def shadow_of(run: TableRun, plan: BatchPlan) -> TableRun:
    """The run of the shadow table: its tables and its ledger lie below the state folder of the live table."""
    live = run.layout
    root = join(live.state, "refresh", f"{plan.batch_id}-{version_of(plan)}")
    layout = replace(
        live, changes=join(root, "changes"), errors=join(root, "errors"), state=join(root, "ledger"),
        replica=join(root, "replica"), history=join(root, "history"), tombstones=join(root, "tombstones"),
    )  # fmt: skip
    # A partition column may come with a later file; the new tables are checked once all files are read.
    return replace(run, layout_override=layout, spec=replace(run.spec, partition_by=()))


def is_sealed(fresh: Ledger) -> bool:
    """Whether the shadow table has all files: only the swap is left."""
    last = fresh.last_commit()
    return last is not None and last.number > 1 and not last.plan.files


def nothing_to_reload(table: str, landing: str) -> FatalError:
    what = f"{table}: no file below {landing} can be read"
    return FatalError(NOTHING_TO_REFRESH, what, remedy="restore the files; the tables are unchanged")


def rebuild_batches(run: TableRun) -> tuple[list[tuple[BatchPlan, bool]], Discovery]:
    """As `reload_batches`, of a rebuild from the change table."""
    ledger = run.ledger()
    begun, discovery = repair_of(ledger.plan()), run.discover(ledger)
    plan = begun or replace(new_plan(run, ledger), source="changes")
    state = replace(ledger.state, batch=plan.number)
    return [(plan, begun is not None), *batches_ahead(run, None, state, discovery)], discovery


def reload_batches(run: TableRun, totals: RunTotals) -> tuple[list[tuple[BatchPlan, bool]], Discovery]:
    """Remaining batches of a reload, each with whether it is resumed, and what was found; writes nothing.

    Of one that has only its swap left, the batch is the reload itself, without files. Where the ledger is
    lost, generations are inferred from the times of the files; the run takes them from the change table.

    Raises:
        FatalError: `NOTHING_TO_REFRESH`; as `notices.require_known_generations`.
    """
    ledger = run.ledger()
    begun = repair_of(ledger.plan())
    shadow = shadow_of(run, begun or new_plan(run, ledger))
    fresh = shadow.ledger()
    discovery = shadow.discover(fresh)
    if begun is not None and is_sealed(fresh):
        return [(begun, True)], discovery
    discovery = by_ledger(run, ledger, discovery, totals)
    if not discovery.waiting and fresh.state.batch <= 1:
        raise nothing_to_reload(run.spec.table, run.layout.landing)
    state = fresh.state if fresh.state.batch else seed(ledger.state, None, run.dialect)
    ahead = batches_ahead(shadow, fresh.plan(), state, discovery)
    # The first commit of the shadow ledger has no files.
    return [(replace(p, number=p.number - 1, mode="refresh", sweep=False), resumed) for p, resumed in ahead], discovery


@dataclass(frozen=True, kw_only=True)
class _Reload:
    """A reload in progress: the live table and the shadow table that is built beside it.

    Attributes:
        found: damage of the live tables, by their names.
    """

    run: TableRun
    live: Engine
    ledger: Ledger
    plan: BatchPlan
    claim: Claim
    found: dict[str, Damage]

    @cached_property
    def recorded(self) -> Recorded | None:
        """Generations by the change table; None: the ledger has them, or there is no change table."""
        state, tables = self.ledger.state, self.live.tables
        if state.batch or state.schemas or not tables.exists(self.live.layout.changes):
            return None
        return Recorded(self.live.stored.recorded_files())

    @property
    def shadow(self) -> TableRun:
        return shadow_of(self.run, self.plan)

    @property
    def shadow_context(self) -> Engine:
        """The shadow table begins with the live table's columns, unless the files alone are to say them.

        Policies compare with the live table all the same.
        """
        live, shadow = self.live, self.shadow
        stored = live.stored_columns()
        begins_with, replaces = (None, stored.data) if self.plan.archives else (stored, None)
        return replace(
            live, layout=shadow.layout, dialect=shadow.dialect_after_load, begins_with=begins_with, replaces=replaces
        )


def reload_table(run: TableRun, outcome: RunTotals) -> JobResult:
    """Load one table again.

    Raises:
        GddlError: the cause of the failure; readers see the old table until the swap.
    """
    outcome.mode = "refresh"
    with run.claim() as claim:
        ledger = run.ledger()
        found = _repairable(run, ledger)
        context = run.context()
        require_no_other_table(context, ledger)
        context.erasures.keys()  # checks that stop every batch come before the first write
        plan = _planned(run, context, ledger, claim)
        run.report("plan", plan.number)
        work = _Reload(run=run, live=context, ledger=ledger, plan=plan, claim=claim, found=found)
        checked = _carry_out(work, outcome)
    run.report("done", outcome.batches, outcome.rows_read)
    return run.result(outcome, details=None if checked is None else {"reload": asdict(checked)})


def _repairable(run: TableRun, ledger: Ledger) -> dict[str, Damage]:
    """Damage of the tables that the reload replaces; a log that can't be read is gone now.

    Raises:
        FatalError: `TABLE_DAMAGED`: the action does not ask for a load. As `require_landed`.
    """
    found = damages(run, opens=True)
    if not found:
        return {}
    pending = ledger.plan()
    if run.job.options.load is None and (fault := damaged(run.spec, found)):
        raise fault
    confirmed = pending is not None and pending.confirmed
    if of_files(found) and not confirmed:
        require_landed(run, ledger, found)
    return mend_logs(run, found)


def _planned(run: TableRun, context: Engine, ledger: Ledger, claim: Claim) -> BatchPlan:
    """The plan of this reload, written; one that has begun to exchange tables goes on as it was asked for."""
    plan, options = ledger.plan(), run.job.options
    if plan is not None and plan.source == "changes":  # a rebuild, which this one replaces
        ledger.drop_plan()
        plan = None
    begun = repair_of(plan)
    if begun is not None and (begun.swapping or not options.reloads):
        return begun
    load = options.load
    # A run that resumes it reads only the plan.
    new = replace(
        begun or new_plan(run, ledger, plan, context),
        confirmed=isinstance(load, Reload) and load.confirmed, archives=options.reloads,
    )  # fmt: skip
    claim.check()
    ledger.write_plan(new)
    return new


def _carry_out(work: _Reload, outcome: RunTotals) -> Replacement | None:
    """What a reload has replaced; null for a rebuild, and where only its swap was left."""
    try:
        request, fresh, checked = _built(work, outcome)
    except FatalError:
        # A user has to fix the cause: until then the table is loaded as before. Once tables may have been swapped,
        # a reload can only be resumed.
        if not work.plan.swapping:
            _forget(work)
        raise
    if not work.plan.swapping:
        work.claim.check()
        work.ledger.write_plan(replace(work.plan, swapping=True))
    mend_files(work.live, work.found, work.run.runtime.clock())
    work.run.report("swapping", work.plan.number)
    done = work.live.swap(request).carry_out(lambda step: work.run.report(step, work.plan.number))
    work.claim.check()
    state, discovery = _swept(work, fresh)
    if state.swept < state.generation:
        outcome.revisit = True
        outcome.warn(notices.of_sweep(work.run.spec.table, "pending", state, discovery))
    _commit(work, fresh, request, done.rows)
    outcome.batches = max(outcome.batches, 1)
    outcome.changes_written = done.changes_added
    outcome.redelivered = outcome.rows_read - outcome.quarantined - done.changes_added
    note_replica(outcome, work.live, fresh.state, done.rows)
    _clean_up(work)
    return checked


def _built(work: _Reload, outcome: RunTotals) -> tuple[SwapRequest, Ledger, Replacement | None]:
    """Build and check the shadow table; the live table is unchanged."""
    table_schema, fresh = _ingest_all(work, outcome)
    if table_schema is None:
        raise nothing_to_reload(work.run.spec.table, work.live.layout.landing)
    work.run.report("staged", work.plan.number, outcome.rows_read)
    files, before = fresh.all_entries(), work.ledger.state
    live, archives = work.live, work.plan.archives
    reselected = reselected_columns(work.run.spec, before)
    outcome.warn(kept_values(work.run, reselected))
    resequenced = before.max_sequence is not None and before.log_began != fresh.state.log_began
    request = SwapRequest(
        shadow=work.shadow.layout, plan=work.plan, table_schema=table_schema,
        archives=plan_archive(live.dialect, live.stored_columns(), before, table_schema) if archives else None,
        floors=_floors(work, fresh.state) if archives else fresh.state.floors,
        swept=_swept(work, fresh)[0].swept,
        landed=tuple(files), read={path: row.generation for path, row in files.items() if row.state == "committed"},
        resequenced=resequenced, reselected=bool(reselected),
    )  # fmt: skip
    if work.plan.swapping:
        return request, fresh, None
    _require_all_changes(work, request, fresh.state)
    checked = check(work.run, work.plan, live.swap(request), files, work.found) if archives else None
    return request, fresh, checked


def _floors(work: _Reload, state: TableState) -> tuple[GenerationFloor, ...]:
    """What was ingested before each generation, in the order that the new tables have."""
    held = Recorded(work.shadow_context.stored.recorded_files())
    return floors_of(held.floors(len(state.floors)), state.snapshots)


def _require_all_changes(work: _Reload, request: SwapRequest, fresh: TableState) -> None:
    if work.live.swap(request).drops_changes():
        before = work.ledger.state.sequence_by or ()
        other = before and before != fresh.sequence_by
        hint = (
            f"write sequence_by: [{', '.join(before)}] in the metadata row, which is their order, or " if other else ""
        )
        raise FatalError(
            CHANGES_INCOMPATIBLE,
            "the change table holds changes of removed files, with another order or other types than the files now",
            where=work.live.layout.changes,
            remedy=f"{hint}restore those files, or move the change table away and reload again; "
            "the tables are unchanged",
        )


def _ingest_all(work: _Reload, outcome: RunTotals) -> tuple[TableSchema | None, Ledger]:
    """Ingest every landed file into the shadow change table and seal its ledger; returns the resulting schema.

    A sealed ledger accepts no further files: finished steps of the swap would lack them, and the commit would not.
    """
    run, context = work.shadow, work.shadow_context
    ledger = run.ledger()
    if ledger.state.batch == 0:
        state = seed(work.ledger.state, work.recorded, run.dialect, archives=work.plan.archives)
        ledger.commit(_empty_commit(work, state))
    if not is_sealed(ledger):
        discovery = _with_known_generations(work, run.discover(ledger, wait="idle"), outcome)
        outcome.warn(notices.of_unsettled(discovery.unsettled))
        _require_unchanged(work, ledger, discovery)
        _require_settled(work, discovery.unsettled)
        table = TableSession(
            run=run, context=context, ledger=ledger, claim=work.claim, totals=outcome, discovery=discovery,
            limits=run.limits,
        )  # fmt: skip
        while (plan := _next_plan(table)) is not None:
            work.claim.check()
            before, table.discovery = table.discovery, table.discovery.without(plan)
            table.suit(few_rows=is_small(plan, ledger.state))
            try:
                delivered = read(table, Batch(plan=plan, of_reload=True))
            except LargeBatchError:
                ledger.drop_plan()
                table.discovery, table.limits = before, replace(table.limits, first_load=0)
                continue
            _require_loads(work, delivered)
            if delivered.set_aside:
                table.discovery = table.discovery.with_last(plan.files, delivered.set_aside)
                if all(file.path in delivered.set_aside for file in table.discovery.waiting):
                    break
                continue
            commit(table, append(table, delivered))
        _require_settled(work, [path for path, row in ledger.all_entries().items() if not row.fingerprint])
        sealed = replace(ledger.state, batch=ledger.state.batch + 1, truncates=_truncates(work, ledger.state))
        ledger.commit(_empty_commit(work, sealed))
    if ledger.state.keys is None:
        return None, ledger
    return plan_batch(work.run.dialect, (), context.stored_columns(), ledger.state).table_schema, ledger


def _truncates(work: _Reload, fresh: TableState) -> tuple[Truncate, ...]:
    """Truncates of the files; where stored changes stay, also those of files that are gone, as the ledger has them."""
    live, before = work.live, work.ledger.state
    if work.plan.archives:
        return restamped(fresh.truncates, work.plan, ())
    has_changes = bool(fresh.truncates) and live.tables.exists(live.layout.changes)
    stored = live.stored.recorded_files() if has_changes else ()
    gone = before.truncates if before.sequence_by == fresh.sequence_by else ()
    return kept_truncates(restamped(fresh.truncates, work.plan, stored), gone, history=work.run.spec.history)


def _require_loads(work: _Reload, delivered: Batch) -> None:
    """Make no table of a part of its full load; of a reload a user is told what it would lack, and decides.

    Raises:
        FatalError: `LOAD_UNREADABLE`.
    """
    bad = tuple(u.file.path for u in delivered.bad_files if u.file.kind == "load")
    if bad and not work.plan.archives:
        _forget(work)
        raise notices.unread_load(work.run.spec.table, bad)


def _next_plan(table: TableSession) -> BatchPlan | None:
    ledger = table.ledger
    plan = ledger.plan()
    if plan is None:
        now = moment(table.run, ledger)
        plan = next_batch(table.discovery.waiting, limits=table.limits, state=ledger.state, now=now)
        if plan is not None:
            # A user asked for all that the files say.
            plan = replace(plan, sweep=False, releases=True)
            ledger.write_plan(plan)
    return plan


def _require_unchanged(work: _Reload, ledger: Ledger, discovery: Discovery) -> None:
    """Files that changed during an interrupted reload make the next run start it again."""
    pending = ledger.plan()
    if pending is not None and files_changed(pending, discovery):
        _forget(work)
        raise _files_changed(work, "files changed since its rebuild started")


def _require_settled(work: _Reload, unsettled: Iterable[str]) -> None:
    """Replace no table by one that lacks rows of files that are written again: they are in the table now."""
    known = work.ledger.all_entries() if work.plan.archives and not work.plan.swapping else {}
    again = sorted(path for path in unsettled if path in known and known[path].state == "committed")
    if again:
        _forget(work)
        raise _files_changed(work, f"{len(again)} of its files are written again, e.g. {again[0]}")


def _files_changed(work: _Reload, what: str) -> RetriableError:
    remedy = "run it again; the tables are unchanged"
    return RetriableError(FILES_CHANGED, f"{work.run.spec.table}: {what}", remedy=remedy)


def _empty_commit(work: _Reload, state: TableState) -> BatchCommit:
    plan = BatchPlan(
        number=state.batch, mode="refresh", planned_at=work.plan.planned_at, generation=state.generation, files=()
    )
    return BatchCommit(number=state.batch, plan=plan, files=(), state=state)


def _with_known_generations(work: _Reload, discovery: Discovery, outcome: RunTotals) -> Discovery:
    if work.recorded is not None:
        return by_change_table(discovery, work.recorded, outcome)
    return by_ledger(work.run, work.ledger, discovery, outcome, archives=work.plan.archives)


def _commit(work: _Reload, fresh: Ledger, request: SwapRequest, rows_now: int) -> None:
    """The live ledger takes over the rows and the state of the shadow ledger."""
    work.run.report("commit", work.plan.number)
    before, rows = work.ledger.state, fresh.all_entries()
    entries = tuple(replace(entry, batch=work.plan.number) for entry in rows.values())
    if work.plan.archives:
        entries += _forgotten(work, rows)
    # Sequences of one type only compare with each other; after a change of `sequence_by` the new ones count alone.
    apart = request.resequenced or request.archives or before.sequence_type != fresh.state.sequence_type
    newest = fresh.state.max_sequence
    state = replace(
        _swept(work, fresh)[0], batch=work.plan.number, rows=rows_now,
        max_sequence=newest if apart else greater(before.max_sequence, newest),
        delta_versions=versions_of(work.live), baseline=None,
        foreign=(), foreign_changes=False,
        floors=request.floors,
        tombstones_purged_at=before.tombstones_purged_at,
        applied=settings_of(work.run.spec),
    )  # fmt: skip
    work.ledger.commit(BatchCommit(number=work.plan.number, plan=work.plan, files=entries, state=state))
    work.run.report("committed", work.plan.number)


def _forgotten(work: _Reload, present: Mapping[str, FileEntry]) -> tuple[FileEntry, ...]:
    """Ledger rows of files that are gone, whose changes are archived: should one come back, it is loaded again."""
    entries = (entry for path, entry in work.ledger.all_entries().items() if path not in present)
    return tuple(replace(e, batch=work.plan.number, fingerprint="", etag="", generation=ARCHIVED) for e in entries)


def _swept(work: _Reload, fresh: Ledger) -> tuple[TableState, Discovery]:
    """The state with the first generation whose rows remain in the rebuilt replica, and why older ones remain.

    Rows that the files lack are swept if the newest full load is complete: a user requested the refresh.
    """
    before, after, at = work.ledger.state, fresh.state, work.plan.planned_at
    loads = [row for row in fresh.all_entries().values() if row.kind == "load"]
    discovery = Discovery(
        older_loads=tuple(r.path for r in loads if r.state == "committed" and r.generation < after.generation),
        unreadable_loads=tuple(r.path for r in loads if r.state == "unreadable"),
    )
    is_new = before.generation < after.generation
    known = before.swept if before.batch else min((row.generation for row in loads), default=1)
    state = replace(after, swept=known, loaded_at=at if is_new else before.loaded_at, held=None)
    if sweep_state(state, discovery, SweepRule.of(work.run.spec), datetime.fromisoformat(at)) == "pending":
        return state, discovery
    return replace(state, swept=after.generation), discovery


def note_replica(outcome: RunTotals, context: Engine, state: TableState, rows: int) -> None:
    """What a result says of a replica that was made again."""
    outcome.main = MainCounts(inserted=rows, rows=rows)
    outcome.max_commit_ts = state.max_commit_ts
    outcome.version = context.tables.version(context.layout.replica)


def _forget(work: _Reload) -> None:
    """Drop a reload that has swapped nothing; the table's next run is a normal one, which resumes a started batch."""
    work.claim.check()
    if work.plan.interrupted is None:
        work.ledger.drop_plan()
    else:
        work.ledger.write_plan(work.plan.interrupted)
    _clean_up(work)


def _clean_up(work: _Reload) -> None:
    """Remove the shadow table; leftovers are harmless, so a crash here needs no repair."""
    root = join(work.live.layout.state, "refresh")
    for file in list(work.live.storage.list(root)):
        work.live.storage.delete(file.path)


def with_files_of(run: TableRun, ledger: Ledger, landed: LandingRange) -> Discovery:
    """What waits, as for any run, and the change files of the time that the ledger knows, as they are now.

    Raises:
        FatalError: as `require_undamaged` and `require_same_identity`; `OPTION_INVALID`.
        RetriableError: `FILES_CHANGED`: files may still be written.
    """
    require_undamaged(run)
    require_same_identity(run.spec, ledger.state)
    known, unread = ledger.all_entries(), Ledger(run.runtime.storage, join(run.layout.state, "again"))
    there, found = run.discover(unread, wait="idle"), run.discover(ledger, wait="idle")
    if young := sorted({*there.unsettled, *found.unsettled}):
        what = f"{run.spec.table}: {len(young)} files may still be written, e.g. {young[0]}; the tables are unchanged"
        raise RetriableError(FILES_CHANGED, what, remedy="run the reload again once they are whole")
    files = [
        replace(file, generation=known[file.path].generation, corrects=True) for file in there.waiting
        if file.kind == "change" and file.path in known
        and (landed.holds(file.modified) or landed.holds(known[file.path].modified))
    ]  # fmt: skip
    if not files:
        what = f"{run.spec.table}: no change file that was loaded landed {landed}; the tables are unchanged"
        remedy = "choose another time: that of the files' last modification; a full load is read without a time"
        raise FatalError(OPTION_INVALID, what, remedy=remedy)
    found = found if ledger.plan() is not None else without_held(run, found, ledger.state)
    rewritten, again = {file.path: file for file in found.waiting}, {file.path for file in files}
    # They come before one with a truncate, which holds all after it.
    first = (replace(rewritten.get(file.path, file), corrects=True) for file in files)
    waiting = (*first, *(file for file in found.waiting if file.path not in again))
    return replace(found, waiting=tuple(sorted(waiting, key=lambda file: file.generation)))
