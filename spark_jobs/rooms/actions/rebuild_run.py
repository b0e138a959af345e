"""A rebuild: replica and history again from the change table; then files that are not yet in it are loaded as usual.

No landing file is read for it. The change table is rewritten where the row's keys, sequence, types, masks or selected
columns have changed; no policy of the row is asked, since every column of the table stays. Each table is replaced in
one Delta commit; the ledger commits last.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce

from airflow_gddl.contract.codes import REBUILD_REFUSED, SHARDS_UNSUPPORTED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch import notices
from spark_jobs.batch.commit import has_unresolved
from spark_jobs.batch.damaged_tables import damaged, damages, mend_files, mend_logs, of_files, require_undamaged
from spark_jobs.batch.own_tables import has_all_changes, has_foreign_changes, versions_of
from spark_jobs.batch.pending import PendingWork, drop
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.batch.turns import Turns
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.pipeline import process_pending
from spark_jobs.plan.applied_settings import columns_of_schemas, settings_of
from spark_jobs.plan.generations import Recorded
from spark_jobs.plan.identity import reselected_columns
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, TableState, floors_of
from spark_jobs.plan.sequence import greater, log_began_of
from spark_jobs.plan.sharding import LOAD_AGAIN
from spark_jobs.plan.table_schema import protected_missing
from spark_jobs.rooms.actions.reload_run import kept_values, new_plan, note_replica, reload_table, repair_of
from spark_jobs.rooms.dialects.protocol import texts_of
from spark_jobs.rules.batch_schema import missing_of
from spark_jobs.rules.rewrite import Rewrite, needs_files, plan_rewrite
from spark_jobs.tables.damage import Damage
from spark_jobs.tables.delta_log import REWRITE, version_of
from spark_jobs.tables.engine import Engine
from spark_jobs.tables.swap import SwapRequest


def rebuild_table(run: TableRun, outcome: RunTotals) -> JobResult:
    """Rebuild one table, then load what waits.

    Where the ledger is lost or behind its tables, or the change table is lost or an older copy, the files are read
    again, and what the change table still has is kept.

    Raises:
        GddlError: the cause of the failure; readers see the old table until each is replaced. `TABLE_DAMAGED`: the
            change table or the quarantine is damaged, which no other table of the lake makes again.
    """
    outcome.mode = "refresh"
    if run.spec.shards:
        require_undamaged(run)
        return _rebuild_shards(run, outcome)
    with run.claim() as claim:
        found = damages(run)
        if of_files(found) and (fault := damaged(run.spec, found)):
            raise fault
        found = mend_logs(run, found)
        ledger, context = run.ledger(), run.context()
        if reads_changes(run, ledger):
            context.erasures.keys()  # checks that stop every batch come before the first write
            rebuild = _Rebuild(run=run, context=context, ledger=ledger, claim=claim, found=found)
            details = rebuild.carry_out(outcome)
            _load_waiting(run, claim, outcome)
            run.report("done", outcome.batches, outcome.rows_read)
            return run.result(outcome, details={"rebuild": details})
    return reload_table(run, outcome)


def reads_changes(run: TableRun, ledger: Ledger) -> bool:
    """Whether a rebuild reads the change table; else the files are read again."""
    begun = repair_of(ledger.plan())
    if ledger.state.keys is None or not has_all_changes(run, ledger):
        return False
    return begun is None or begun.source == "changes"


def require_possible(run: TableRun, ledger: Ledger) -> None:
    """Refuse what a rebuild of a table, or of one of its sources, from the change table would refuse; writes nothing.

    Stored values are read only where the row asks for others.

    Raises:
        FatalError: `SHARDS_UNSUPPORTED`, `REBUILD_REFUSED`, `REBUILD_NEEDS_FILES`; as `ErasureRegister.keys`.
    """
    if run.shard:
        _require_changes(run, ledger)
    context = run.context()
    context.erasures.keys()
    _rewrite(run, context, ledger)


def _rewrite(run: TableRun, context: Engine, ledger: Ledger) -> Rewrite:
    """What the rebuild does to the change table. Unless it has begun, stored values have to fit what the row asks for.

    Raises:
        FatalError: `SHARDS_UNSUPPORTED`: the change table of a shard stays as it is, since the other shards' changes
            are in it. `REBUILD_NEEDS_FILES`: the row filter is new, and updates carry parts of their rows, so that what
            it leaves out would be missing in rows that enter it later. As `plan_rewrite` and `_require_values`.
    """
    pending = ledger.plan()
    begun = repair_of(pending)
    dropped = begun.dropped if begun is not None else "" if pending is None else pending.batch_id
    if begun is None:
        _require_protected(run, context, ledger.state)
    how = plan_rewrite(context.dialect, context.stored_columns(), ledger.state, dropped)
    how = replace(how, foreign=context.stored.foreign_rows(context.layout.changes) > 0)
    is_changed = how.is_needed or _is_rekeyed(run, ledger)
    if run.shard and is_changed:
        raise _shard_needs_files(run, "the stored changes have another key, order, type, filter or mask")
    if how.filters and how.schema.keys and how.schema.has_partial_updates:
        what = f"{run.spec.table}: the row filter is new, and stored updates may carry only a part of their row"
        raise needs_files(run.spec, what, "restore where")
    if begun is None and is_changed:
        _require_values(run, context, how)
    return how


def _require_protected(run: TableRun, context: Engine, state: TableState) -> None:
    """Require that known files have each column that `mask` and `exclude_columns` name.

    Raises:
        FatalError: `PROTECTED_COLUMN_MISSING`: the rebuild would leave the column that a misspelt name means.
    """
    load = run.source_load
    found = (*state.found, *(() if load is None else load.left_out))
    if missing := missing_of(run.dialect, found, columns_of_schemas(state.schemas)):
        stored = context.stored_columns().data
        raise protected_missing(run.spec.table, missing, () if stored is None else stored.names)


def _is_rekeyed(run: TableRun, ledger: Ledger) -> bool:
    return lowered(run.spec.keys) != lowered(ledger.state.keys or ())


def _require_values(run: TableRun, context: Engine, how: Rewrite) -> None:
    """Require that stored values fit what the row now asks for.

    Raises:
        FatalError: `REBUILD_REFUSED`: a stored value fits none of what the row now asks for.
    """
    refused = context.stored.refused_values(how)
    if refused:
        shown = ", ".join(
            f"{count} value{'' if count == 1 else 's'} of {column} ({code})"
            for (code, column), count in refused.items()
        )
        table = run.spec.table
        raise FatalError(
            REBUILD_REFUSED,
            f"{table}: stored values do not fit the metadata row as it is now: {shown}; the tables are unchanged",
            where=context.layout.changes,
            remedy="restore keys, sequence_by and options.types in the metadata row, or load the files that are "
            "there with "
            f"`gddl reload --from-files --table {table}`, which quarantines what does not fit",
        )


def _rebuild_shards(run: TableRun, outcome: RunTotals) -> JobResult:
    """Rebuild the rows of each source in turn, while those of the others stay; then load what waits.

    Raises:
        FatalError: `SHARDS_UNSUPPORTED`: files of a source would have to be read. As `rebuild_table`.
    """
    turns = Turns(run, outcome)
    with run.claim() as claim:
        states = run.shard_states()
        columns: object = []
        for shard in run.shard_runs():
            one = shard.beside(states)
            pending = one.ledger().plan()
            if pending is not None and pending.mode != "refresh":  # its changes may be stored
                process_pending(one, claim, _waiting(one), outcome)
            ledger, context = one.ledger(), one.context()
            if ledger.state.batch == 0:
                continue
            _require_changes(one, ledger)
            context.erasures.keys()
            rebuild = _Rebuild(run=one, context=context, ledger=ledger, claim=claim)
            columns = rebuild.carry_out(outcome)["columns"]
            states[one.shard] = one.own_state()
        turns.find_pending()
        turns.take(lambda one, seen: process_pending(one, claim, seen, outcome))
        turns.require_all()
    rows, outcome.mode = outcome.main.rows, "refresh"
    run.report("done", outcome.batches, outcome.rows_read)
    return run.result(outcome, details={"rebuild": {"rows": rows, "columns": columns, "rewritten": False}})


def _shard_needs_files(run: TableRun, why: str) -> FatalError:
    what = f"{run.title} can't be rebuilt: {why}; its files would have to be read again, which is not built for tables "
    return FatalError(SHARDS_UNSUPPORTED, f"{what}of several sources", remedy=LOAD_AGAIN)


def _require_changes(run: TableRun, ledger: Ledger) -> None:
    if not has_all_changes(run, ledger):
        why = "the change table lacks changes that its ledger knows, or the ledger is behind"
        raise _shard_needs_files(run, why)


def _load_waiting(run: TableRun, claim: Claim, outcome: RunTotals) -> None:
    """Files that no batch has taken yet, and quarantined values of columns made text, as a usual run loads them."""
    rows = outcome.main.rows
    process_pending(run, claim, _waiting(run), outcome)
    if outcome.main.rows is None:
        outcome.main = replace(outcome.main, rows=rows)


def _waiting(run: TableRun) -> PendingWork:
    ledger = run.ledger()
    return PendingWork(state=ledger.state, discovery=run.discover(ledger, wait="idle"))


@dataclass(frozen=True, kw_only=True)
class _Rebuild:
    """A rebuild under way.

    Attributes:
        found: damage of tables that it replaces, by their names.
    """

    run: TableRun
    context: Engine
    ledger: Ledger
    claim: Claim
    found: dict[str, Damage] = field(default_factory=dict)

    def carry_out(self, outcome: RunTotals) -> dict[str, object]:
        """Rebuild replica and history, and commit the result to the ledger.

        An unfinished batch is dropped, an unfinished rebuild is resumed.
        """
        run, ledger = self.run, self.ledger
        pending = ledger.plan()
        plan = repair_of(pending)
        how = _rewrite(run, self.context, ledger)
        if plan is None:
            dropped = "" if pending is None else pending.batch_id
            plan = replace(new_plan(run, ledger), source="changes", dropped=dropped)
            self.claim.check()
            if pending is not None:
                drop(self.context, pending, ledger)
            ledger.write_plan(plan)
        mend_files(self.context, self.found, run.runtime.clock())
        run.report("plan", plan.number)
        state = self._rewritten(plan, how)
        reselected = reselected_columns(run.spec, ledger.state)
        outcome.warn(kept_values(run, reselected))
        request = SwapRequest(
            shadow=None, plan=plan, table_schema=how.schema,
            floors=state.floors, swept=state.swept, reselected=bool(reselected),
        )  # fmt: skip
        done = self.context.swap(request).carry_out(lambda step: run.report(step, plan.number))
        outcome.warn(notices.of_new_keys(run.spec, ledger.state, done.rows))
        rekeyed = _is_rekeyed(run, ledger)
        self._commit(plan, replace(state, rows=done.rows))
        outcome.batches += 1
        note_replica(outcome, self.context, state, done.rows)
        columns = [c.name for c in how.schema.data]
        return {"rows": done.rows, "columns": columns, "rewritten": how.is_needed, "rekeyed": rekeyed}

    def _rewritten(self, plan: BatchPlan, how: Rewrite) -> TableState:
        """The state once the change table is as it should be."""
        context, path = self.context, self.context.layout.changes
        if how.is_needed and context.tables.last_transaction(path, REWRITE) < version_of(plan):
            self.claim.check()
            context.rewrite_changes(plan, how)
        self.run.report("append", plan.number)
        state, schema = self.ledger.state, how.schema
        state = replace(state, keys=self.run.spec.keys, sequence_by=schema.sequence or state.sequence_by)
        if not how.reordered:
            return state
        recorded = Recorded(context.stored.recorded_files())
        highest = reduce(greater, (row.max_sequence for row in recorded.rows), None)
        snapshots = None
        if state.snapshots is not None and schema.follows_snapshots:
            snapshots = context.dialect.replaced_snapshots(state.snapshots)
        floors = [replace(f, sequence=recorded.highest_before(g)) for g, f in enumerate(state.floors, start=1)]
        return replace(
            state, sequence_type=schema.sequence_type, sequence_forms={},
            log_began=log_began_of(self.run.spec), misplaced=(), log_time=None, max_sequence=highest,
            floors=floors_of(floors, snapshots), snapshots=snapshots,
        )  # fmt: skip

    def _commit(self, plan: BatchPlan, state: TableState) -> None:
        run, context = self.run, self.context
        run.report("commit", plan.number)
        self.claim.check()
        texts = texts_of(run.dialect, state.typed)
        altered = has_foreign_changes(run, self.ledger)
        state = replace(
            state, batch=plan.number, delta_versions=versions_of(context), foreign=(),
            foreign_changes=altered, baseline=None,
            applied=settings_of(run.spec), unlocked=int(bool(texts) and has_unresolved(context)),
            typed=tuple(name for name in state.typed if name not in texts),
        )  # fmt: skip
        self.ledger.commit(BatchCommit(number=plan.number, plan=plan, files=(), state=state))
        run.report("committed", plan.number)
