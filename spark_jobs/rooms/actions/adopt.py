"""`gddl adopt`: a replica that another job kept becomes ours in place; none of its data files is written again.

checks ─► `adoption.json` ─► its rows in the change table ─► `_gddl` by metadata ─► the ledger's first commit.

Interrupted anywhere, it is run again: until the replica has `_gddl` it begins anew where that has changed, afterwards
it goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_gddl.contract.actions import Adopt
from airflow_gddl.contract.result import JobResult, MainCounts
from airflow_gddl.stores import remove_table
from spark_jobs.batch import notices
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.adoption import (
    Adoption,
    end_adoption,
    read_adoption,
    write_adoption,
)
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.ledger.targets import TargetRecords
from spark_jobs.plan.applied_settings import settings_of
from spark_jobs.plan.batching import state_after
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, TableState, first_batch
from spark_jobs.plan.waiting_files import Discovery
from spark_jobs.rooms.actions.adopt_checks import refused, require_possible, require_seen_commits
from spark_jobs.rooms.actions.adopt_proof import schema_of_tables
from spark_jobs.rooms.actions.adopt_proposal import asked_of, propose
from spark_jobs.rooms.actions.adopt_release import give_back
from spark_jobs.rooms.actions.landed_changes import vanished
from spark_jobs.rules.batch_schema import known_schemas
from spark_jobs.tables.delta_log import APPEND, MERGE, version_of
from spark_jobs.tables.engine import Engine


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Take over the replica; `details["adopt"]` says what was found and done. Or give it back, see `give_back`.

    Raises:
        FatalError: `ADOPT_REFUSED`.
        RetriableError: `TABLE_BUSY`; `DELTA_CONFLICT`: another writer has changed the replica meanwhile;
            `FILES_CHANGED`.
    """
    if run.job.options.asked(Adopt).mode == "release":
        return give_back(run, totals)
    try:
        return _done(run, totals)
    except FileNotFoundError as error:
        raise vanished(run, run.layout.replica, error) from error


def _done(run: TableRun, totals: RunTotals) -> JobResult:
    dry_run = run.job.options.dry_run
    totals.mode = "initial"
    require_possible(run)
    require_seen_commits(run)
    before = TargetRecords(run.runtime.storage, run.job.roots, run.spec).former_target(keep=not dry_run)
    totals.warn(notices.of_former_target(before, run.spec.table))
    if dry_run:
        return run.answer(totals, {"adopt": propose(run, _ledger_of(run), totals)[1]})
    with run.claim() as claim:
        return _taken(run, claim, totals)


def _taken(run: TableRun, claim: Claim, totals: RunTotals) -> JobResult:
    storage, state = run.runtime.storage, run.layout.state
    begun, details = read_adoption(storage, state), dict[str, Any]()
    if begun is not None and not _goes_on(run, begun):
        _undo(run, claim, begun)
        return _taken(replace(run), claim, totals)  # which knows no tables yet
    if begun is None:
        begun, details = propose(run, _ledger_of(run), totals)
        claim.check()
        write_adoption(storage, state, begun)
        run.report("plan", 1)
    ledger = run.ledger()
    if not ledger.state.batch:
        _take_over(run, claim, ledger, begun)
    end_adoption(storage, state)
    totals.batches = 1
    totals.main = MainCounts(rows=begun.rows)
    totals.version = ledger.state.delta_versions.get("replica")
    run.report("done", 1, begun.rows)
    return run.result(totals, details={"adopt": {"rows": begun.rows, "files": len(begun.files), **details}})


def _ledger_of(run: TableRun) -> Ledger:
    """The ledger of the replica, in which nothing is.

    Raises:
        FatalError: `ADOPT_REFUSED`.
    """
    ledger = run.ledger()
    if ledger.state.batch or ledger.plan() is not None:
        what = f"it is adopted or loaded already: its ledger has {ledger.state.batch} batches"
        raise refused(run, what, f"`gddl run --table {run.spec.table}` loads what is new", run.layout.state)
    return ledger


def _is_marked(context: Engine, begun: Adoption) -> bool:
    """Whether the table has `_gddl` by this adoption, which then can only be ended."""
    plan = plan_of(begun)
    return context.tables.last_transaction(context.layout.replica, MERGE) >= version_of(plan)


def _goes_on(run: TableRun, begun: Adoption) -> bool:
    """Whether an adoption goes on: the replica is marked, or it and what is asked are as they were.

    Raises:
        FatalError: `ADOPT_REFUSED`: it can't be proved any more.
    """
    asked, same, context = run.job.options.asked(Adopt), asked_of(run) == begun.asked, run.context()
    if run.ledger().state.batch or _is_marked(context, begun):
        if not same and asked.source_connection:
            what = "an adoption was interrupted, and the table has our column already"
            raise refused(run, what, "end it without a proof; then `gddl verify`, or --release")
        return True
    return same and context.tables.version(context.layout.replica) == begun.version


def _undo(run: TableRun, claim: Claim, begun: Adoption) -> None:
    """Remove what an adoption has written that no longer holds: readers have seen none of it.

    Raises:
        FatalError: `ADOPT_REFUSED`.
    """
    context = run.context()
    tables, layout = context.tables, context.layout
    if tables.exists(layout.changes) and tables.last_transaction(layout.changes, APPEND) > version_of(plan_of(begun)):
        what = "its change table has more than an adoption has put there"
        raise refused(run, what, "move the change table away", layout.changes)
    claim.check()
    remove_table(run.runtime.storage, layout.changes)
    end_adoption(run.runtime.storage, layout.state)


def plan_of(adoption: Adoption) -> BatchPlan:
    """The batch that it is in the ledger."""
    return first_batch(adoption.planned_at, adoption.files)


def _take_over(run: TableRun, claim: Claim, ledger: Ledger, adoption: Adoption) -> None:
    context, plan = run.context(), plan_of(adoption)
    schema = schema_of_tables(context.dialect, adoption)
    claim.check()
    if not _is_marked(context, adoption):
        context.baseline.append(plan, schema, adoption.baseline)
        run.report("append", 1, adoption.rows)
        claim.check()
    version = context.baseline.mark(plan, schema, adoption.baseline, adoption.version)
    run.report("replica", 1, adoption.rows)
    claim.check()
    changes = context.tables.version(context.layout.changes)
    versions = {"replica": version} | ({} if changes is None else {"changes": changes})
    state = replace(_first_state(context, adoption, plan), delta_versions=versions)
    files = tuple(replace(file.entry(1), rows=0, schema=0) for file in adoption.files)
    run.report("commit", 1)
    ledger.commit(BatchCommit(number=1, plan=plan, files=files, state=state))
    run.report("committed", 1)


def _first_state(context: Engine, adoption: Adoption, plan: BatchPlan) -> TableState:
    """The ledger's first state; what the row asks of a table is done by the next batch."""
    dialect, spec = context.dialect, context.spec
    columns = dict(zip(adoption.columns, adoption.types, strict=True))
    _, schemas = known_schemas(dialect, TableState()).with_groups([columns])
    # Settings of the row without those that the tables don't obey yet.
    applied = replace(
        settings_of(spec), history=False, table_properties={}, cluster_by=(), description=None, column_descriptions={}
    )
    after = state_after(plan, TableState(), landing=context.layout.landing, remaining=Discovery(), times=dialect.times)
    return replace(
        after, keys=spec.keys, sequence_by=adoption.sequence_by, sequence_type=adoption.sequence_type,
        sequence_forms=dict(adoption.sequence_forms), max_sequence=adoption.max_sequence,
        schemas=schemas.schemas, rows=adoption.rows, baseline=adoption.baseline, adopted=True, applied=applied,
    )  # fmt: skip
