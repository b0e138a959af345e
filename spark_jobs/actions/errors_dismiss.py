"""Ends the wait for rows in quarantine for which nothing better comes: they count as resolved, and are not loaded."""

from __future__ import annotations

from airflow_gddl.contract.actions import ErrorsDismiss
from airflow_gddl.contract.codes import SPEC_INVALID
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from spark_jobs.batch import notices
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Mark rows in quarantine, of the codes and files that the job's options name, as resolved, in one commit.

    The rows stay in the errors table, with `resolved_at`. `details` has `dismissed`, their number, and for the record
    `codes`, `files`, `reason` and `by`.

    Raises:
        FatalError: `BATCH_UNFINISHED`: a batch that replays them may have stored some. `SPEC_INVALID`: no code or no
            reason is given.
        RetriableError: `TABLE_BUSY`.
    """
    asked = run.job.options.asked(ErrorsDismiss)
    if not asked.codes or not asked.reason.strip():
        what = f"{run.spec.table}: a dismissal without a code or a reason"
        raise FatalError(SPEC_INVALID, what, remedy="name the codes of the rows, and why nothing better is expected")
    with run.claim() as claim:
        ledgers = [one.ledger() for one in run.shard_runs() or (run,)]
        for one in (*run.shard_runs(), *run.former_shards) or (run,):
            notices.require_finished(one.title, one.ledger(), one.layout.state, then="dismiss the rows")
        context, count = run.context(), 0
        if context.tables.exists(context.layout.errors):
            claim.check()
            count = context.quarantine.dismiss(asked.codes, asked.source_files, iso(run.runtime.clock()))
            dismissed = context.quarantine.dismissed_files()
            for ledger in ledgers:
                ledger.note_dismissed(dismissed)  # the table goes on without load files among them
    for ledger in ledgers:
        totals.warn(notices.of_given_up(run.spec.table, ledger))
    run.report("done")
    details = {
        "dismissed": count,
        "codes": list(asked.codes),
        "files": list(asked.source_files),
        "reason": asked.reason,
        "by": asked.asked_by,
    }
    return run.result(totals, status="succeeded", details=details)
