"""`gddl adopt`: a replica that another job kept becomes ours in place; none of its data files is written again.

checks ─► `adoption.json` ─► its rows in the change table ─► `_gddl` by metadata ─► the ledger's first commit.

Interrupted anywhere, it is run again: until the replica has `_gddl` it begins anew where that has changed, afterwards
it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.actions import Adopt
from airflow_gddl.contract.codes import ADOPT_REFUSED
from airflow_gddl.contract.errors import FatalError
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
from spark_jobs.plan.applied_settings import AppliedSettings, settings_of
from spark_jobs.plan.batching import state_after
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, FileEntry, PlannedFile, TableState
from spark_jobs.plan.waiting_files import Discovery
from spark_jobs.rooms.actions.adopt_checks import files_gone, require_possible, require_seen_commits
from spark_jobs.rooms.actions.adopt_proof import schema_of_tables
from spark_jobs.rooms.actions.adopt_proposal import Proposal, asked_of, propose
from spark_jobs.rooms.actions.adopt_release import give_back
from spark_jobs.rules.batch_schema import known_schemas
from spark_jobs.tables.delta_log import APPEND, MERGE, version_of
from spark_jobs.tables.engine import Engine

_SAMPLE = 20


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
        raise files_gone(run, error) from error


def _done(run: TableRun, totals: RunTotals) -> JobResult:
    dry_run = run.job.options.dry_run
    totals.mode = "initial"
    require_possible(run)
    require_seen_commits(run)
    before = TargetRecords(run.runtime.storage, run.job.roots, run.spec).former_target(keep=not dry_run)
    totals.warn(notices.of_former_target(before, run.spec.table))
    if dry_run:
        found = propose(run, run.context(), _ledger_of(run))
        totals.warn(found.warnings)
        return run.result(totals, status="succeeded", details={"adopt": _described(found)})
    with run.claim() as claim:
        return _taken(run, claim, totals)


def _taken(run: TableRun, claim: Claim, totals: RunTotals) -> JobResult:
    storage, state = run.runtime.storage, run.layout.state
    begun, details = read_adoption(storage, state), {}
    if begun is not None and not _goes_on(run, begun):
        _undo(run, claim, begun)
        return _taken(replace(run), claim, totals)  # which knows no tables yet
    if begun is None:
        found = propose(run, run.context(), _ledger_of(run))
        begun, details = found.adoption, _described(found)
        totals.warn(found.warnings)
        claim.check()
        write_adoption(storage, state, begun)
        run.report("plan", 1)
    ledger = run.ledger()
    if not ledger.state.batch:
        _Takeover(run, run.context(), claim, ledger, begun).carry_out()
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
        what = f"{run.spec.table} is adopted or loaded already: its ledger has {ledger.state.batch} batches"
        remedy = f"`gddl run --table {run.spec.table}` loads what is new"
        raise FatalError(ADOPT_REFUSED, what, where=run.layout.state, remedy=remedy)
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
            what = f"{run.spec.table}: an adoption was interrupted, and the table has our column already"
            remedy = "end it without a proof; then `gddl verify`, or --release"
            raise FatalError(ADOPT_REFUSED, what, where=run.layout.replica, remedy=remedy)
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
        what = f"{run.spec.table}: its change table has more than an adoption has put there"
        raise FatalError(ADOPT_REFUSED, what, where=layout.changes, remedy="move the change table away")
    claim.check()
    remove_table(run.runtime.storage, layout.changes)
    end_adoption(run.runtime.storage, layout.state)


def plan_of(adoption: Adoption) -> BatchPlan:
    """The batch that it is in the ledger."""
    return BatchPlan(
        number=1, mode="initial", planned_at=adoption.planned_at, generation=adoption.baseline.generation,
        files=adoption.files,
    )  # fmt: skip


@dataclass(frozen=True)
class _Takeover:
    run: TableRun
    context: Engine
    claim: Claim
    ledger: Ledger
    adoption: Adoption

    def carry_out(self) -> None:
        adoption, schema, plan = (
            self.adoption,
            schema_of_tables(self.context.dialect, self.adoption),
            plan_of(self.adoption),
        )
        work = self.context.baseline
        self.claim.check()
        if not _is_marked(self.context, adoption):
            work.append(plan, schema, adoption.baseline)
            self.run.report("append", 1, adoption.rows)
            self.claim.check()
        version = work.mark(plan, schema, adoption.baseline, adoption.version)
        self.run.report("replica", 1, adoption.rows)
        self.claim.check()
        changes = self.context.tables.version(self.context.layout.changes)
        versions = {"replica": version} | ({} if changes is None else {"changes": changes})
        state = replace(self._state(plan), delta_versions=versions)
        files = tuple(self._entry(file) for file in adoption.files)
        self.run.report("commit", 1)
        self.ledger.commit(BatchCommit(number=1, plan=plan, files=files, state=state))
        self.run.report("committed", 1)

    def _state(self, plan: BatchPlan) -> TableState:
        """The ledger's first state; what the row asks of a table is done by the next batch."""
        run, adoption = self.run, self.adoption
        times = self.context.dialect.times
        columns = dict(zip(adoption.columns, adoption.types, strict=True))
        _, schemas = known_schemas(self.context.dialect, TableState()).with_groups([columns])
        after = state_after(plan, TableState(), landing=self.context.layout.landing, remaining=Discovery(), times=times)
        return replace(
            after, keys=run.spec.keys, sequence_by=adoption.sequence_by, sequence_type=adoption.sequence_type,
            sequence_forms=dict(adoption.sequence_forms), max_sequence=adoption.max_sequence,
            schemas=schemas.schemas, rows=adoption.rows, baseline=adoption.baseline, adopted=True,
            applied=_nothing_applied(settings_of(run.spec)),
        )  # fmt: skip

    def _entry(self, file: PlannedFile) -> FileEntry:
        return replace(file.entry(1), rows=0, schema=0)


def _nothing_applied(settings: AppliedSettings) -> AppliedSettings:
    """Settings of the row without those that the tables don't obey yet."""
    return replace(
        settings,
        history=False,
        table_properties={},
        cluster_by=(),
        description=None,
        column_descriptions={},
    )


def _described(found: Proposal) -> dict[str, Any]:
    adoption = found.adoption
    return {
        "rows": adoption.rows,
        "version": adoption.version,
        "keys": list(found.keys),
        "sequence": list(adoption.baseline.sequence),
        "without_sequence": found.without_sequence,
        "max_sequence": adoption.max_sequence,
        "files": len(adoption.files),
        "newest": [file.path for file in adoption.files[-_SAMPLE:]],
        "waiting": len(found.later),
        "next": [file.path for file in found.later[:_SAMPLE]],
        "adds": list(found.adds),
        **({"proved": found.proved} if found.proved else {}),
    }
