"""What is left in the quarantine."""

from __future__ import annotations

from airflow_gddl.contract.actions import ErrorsList
from airflow_gddl.contract.result import JobResult
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.rules.erasure import key_of_record


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Unresolved rows of the quarantine, of the codes of the job's options: their number by code, and the oldest rows,
    the key of each before its other values.
    """
    context, asked = run.context(), run.job.options.asked(ErrorsList)
    unresolved = context.quarantine.unresolved(asked.limit, asked.codes)
    rows = [{"key": key_of_record(row["record"], run.spec.keys), **row} for row in unresolved.rows]
    details = {"unresolved": unresolved.count, "codes": unresolved.codes, "rows": rows}
    return run.result(totals, status="succeeded", quarantined=unresolved.count, details=details)
