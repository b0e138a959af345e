"""Loads the tables again from the files that are there; of a time, reads its files once more.

Files that landed in a time are read as if they had been written again: changes that the tables have of them are
recognized, what the files hold besides is added in its place in the order, and what they hold no more stays
(docs/semantics.md, section 13).
"""

from __future__ import annotations

from dataclasses import replace

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from spark_jobs.actions.reload_run import reload_table
from spark_jobs.batch.damaged_tables import require_undamaged
from spark_jobs.batch.pending import PendingWork, without_held
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.pipeline import finished, process_pending
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.landing_range import LandingRange
from spark_jobs.plan.waiting_files import Discovery


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """
    Raises:
        FatalError: `RANGE_INVALID`, `RANGE_EMPTY`; as `with_files_of`, `reload_table` or `process_pending`.
    """
    landed = LandingRange.of(run.job.options)
    if landed is None:
        return reload_table(run, totals)
    totals.mode = "refresh"
    with run.claim() as claim:
        ledger = run.ledger()
        discovery = with_files_of(run, ledger, landed)
        process_pending(run, claim, PendingWork(state=ledger.state, discovery=discovery), totals)
    return finished(run, totals)


def with_files_of(run: TableRun, ledger: Ledger, landed: LandingRange) -> Discovery:
    """What waits, as for any run, and the change files of the time that the ledger knows, as they are now.

    Raises:
        FatalError: as `require_undamaged` and `require_same_identity`; `RANGE_EMPTY`.
        RetriableError: `FILES_CHANGED`: files may still be written.
    """
    require_undamaged(run)
    require_same_identity(run.spec, ledger.state)
    known, unread = ledger.all_entries(), Ledger(run.runtime.storage, join(run.layout.state, "again"), set())
    there, found = run.discover(unread, wait="idle"), run.discover(ledger, wait="idle")
    if young := sorted({*there.unsettled, *found.unsettled}):
        what = f"{run.spec.table}: {len(young)} files may still be written, e.g. {young[0]}; the tables are unchanged"
        raise RetriableError("FILES_CHANGED", what, remedy="run the reload again once they are whole")
    files = [
        replace(file, generation=known[file.path].generation, corrects=True) for file in there.waiting
        if file.kind == "change" and file.path in known
        and (landed.holds(file.modified) or landed.holds(known[file.path].modified))
    ]  # fmt: skip
    if not files:
        what = f"{run.spec.table}: no change file that was loaded landed {landed}; the tables are unchanged"
        remedy = "choose another time: that of the files' last modification; a full load is read without a time"
        raise FatalError("RANGE_EMPTY", what, remedy=remedy)
    found = found if ledger.plan() is not None else without_held(run, found, ledger.state)
    paths = {file.path for file in found.waiting}
    waiting = (*found.waiting, *(file for file in files if file.path not in paths))
    return replace(found, waiting=tuple(sorted(waiting, key=lambda file: file.generation)))
