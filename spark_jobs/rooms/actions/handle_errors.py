"""What is left in quarantine, and the end of the wait for rows for which nothing better comes.

A replay is an ordinary load, see `batch.pending`.
"""

from __future__ import annotations

from airflow_gddl.contract.actions import HandleErrors
from airflow_gddl.contract.codes import SPEC_INVALID
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from spark_jobs.batch import notices
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.rules.erasure import key_of_record


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """List unresolved rows, or dismiss them. Raises as `_dismissed`."""
    asked = run.job.options.asked(HandleErrors)
    return _listed(run, totals, asked) if asked.mode == "list" else _dismissed(run, totals, asked)


def _listed(run: TableRun, totals: RunTotals, asked: HandleErrors) -> JobResult:
    """The number of rows by code, and the oldest rows, the key of each before its other values."""
    unresolved = run.context().quarantine.unresolved(asked.limit, asked.codes)
    rows = [{"key": key_of_record(row["record"], run.spec.keys), **row} for row in unresolved.rows]
    details = {"unresolved": unresolved.count, "codes": unresolved.codes, "rows": rows}
    return run.result(totals, status="succeeded", quarantined=unresolved.count, details=details)


def _dismissed(run: TableRun, totals: RunTotals, asked: HandleErrors) -> JobResult:
    """Mark rows in quarantine, of the codes and files that are named, as resolved, in one commit: none is loaded.

    The rows stay in the errors table, with `resolved_at`. `details` has `dismissed`, their number, and for the record
    `codes`, `files`, `reason` and `by`.

    Raises:
        FatalError: `BATCH_UNFINISHED`: a batch that replays them may have stored some. `SPEC_INVALID`: no code or no
            reason is given.
        RetriableError: `TABLE_BUSY`.
    """
    if not asked.codes or not asked.reason.strip():
        what = f"{run.spec.table}: a dismissal without a code or a reason"
        raise FatalError(SPEC_INVALID, what, remedy="name the codes of the rows, and why nothing better is expected")
    with run.claim() as claim:
        ledgers = [one.ledger() for one in run.shard_runs() or (run,)]
        for one in (*run.shard_runs(), *run.former_shards) or (run,):
            notices.require_finished(one, one.ledger(), then="dismiss the rows")
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
    return run.answer(totals, details)
