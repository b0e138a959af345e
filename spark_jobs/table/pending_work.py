"""What a run finds to do before it has the claim, and what it leaves to a later one."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import TableState
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.sweeping import is_due_by_time
from spark_jobs.table import foreign, notices
from spark_jobs.table.next_batch import is_emptied, sweep_of
from spark_jobs.table.outcome import RunTotals
from spark_jobs.table.run import TableRun

_BYTES_A_ROW = 50
_LANDED_WEIGHT = 7
"""What a byte of a landing file costs, in bytes of a replica that is merged into: see docs/decisions/175."""


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
    """
    ledger = run.ledger()
    run.report("discover")
    pending = ledger.plan() is not None  # its late files must be found again
    found = run.discover(ledger, brief=not pending)
    outcome.not_listed = found.not_listed
    outcome.mode = "initial" if ledger.state.batch == 0 else "incremental"
    outcome.max_commit_ts = ledger.state.max_commit_ts
    outcome.version = ledger.state.delta_versions.get("replica")
    # Also without new files: a row that stored rows do not follow is never reported as up to date.
    require_same_identity(run.spec, ledger.state)
    due = is_emptied(run, found, ledger) or sweep_of(run, found, ledger.state) == "due"
    replaying = run.job.options.action == "errors_replay"
    replaying = replaying or ledger.state.unlocked
    if not (found.waiting or pending or due or replaying or waits_for_files(run, found)):
        outcome.warn(notices.of_discovery(found, run.layout.landing, run.dialect))
        report_left(run, ledger, found, outcome)
        if run.job.options.full_listing:  # requested by a user
            commits = foreign.foreign_commits(run.spec, run.runtime.storage, run.layout, ledger)
            outcome.warn(foreign.warnings_of(run.spec, commits))
        notices.require_first_load(run.spec.table, ledger)
        return None
    return PendingWork(state=ledger.state, found=found)


def waits_for_files(run: TableRun, found: Discovery) -> bool:
    """Whether a run waits for files that may still be written; a continuous job lists them again."""
    return bool(found.unsettled) and run.job.options.continuous is None


def report_left(run: TableRun, ledger: Ledger, found: Discovery, outcome: RunTotals) -> None:
    """What a run leaves to a later one: files that may still be written, rows that a reload may yet bring again."""
    standing = sweep_of(run, found, ledger.state)
    outcome.warn((*notices.of_unsettled(found), *notices.of_sweep(standing, ledger.state, found)))
    outcome.revisit = bool(found.unsettled) or is_due_by_time(ledger.state, standing)
