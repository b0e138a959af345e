"""Loads the tables again from the files that are there; of a time, reads its files once more.

Files that landed in a time are read as if they had been written again: changes that the tables have of them are
recognized, what the files hold besides is added in its place in the order, and what they hold no more stays
(docs/semantics.md, section 13).
"""

from __future__ import annotations

from airflow_gddl.contract.result import JobResult
from spark_jobs.batch.pending import PendingWork
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.pipeline import finished, process_pending
from spark_jobs.plan.waiting_files import LandingRange
from spark_jobs.rooms.actions.reload_run import reload_table, with_files_of


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """
    Raises:
        FatalError: `OPTION_INVALID`; as `with_files_of`, `reload_table` or `process_pending`.
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
