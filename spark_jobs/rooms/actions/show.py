"""What a table holds, for the page of Airflow, whose environment may lack the packages to read it."""

from __future__ import annotations

from airflow_gddl.contract.actions import ShowTable
from airflow_gddl.contract.names import HiddenColumns
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import delta_tables
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """The part that the job's options name, as `found`; see `airflow_gddl.stores.delta_tables`. Nothing is written.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    asked, layout, environ = run.job.options.asked(ShowTable), run.context().layout, run.runtime.environ
    match asked.part:
        case "schema":
            found = delta_tables.described(layout.replica, environ)
        case "quarantine":
            found = delta_tables.quarantined(layout.errors, asked.code, asked.limit, environ)
        case "rows":
            hides = HiddenColumns(run.spec).hides
            found = delta_tables.first_rows(layout.replica, hides, asked.limit, environ)
    return run.answer(totals, {"found": found})
