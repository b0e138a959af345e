"""A table's run whose files a stream reports instead of a listing; batch code and ledger are the same.

The ledger decides: it recognizes a file that is notified twice, and files that a stream missed are found by the
periodic full listing (`file_names.FULL_LISTING_EVERY`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.file_names import is_listing_due
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.result import JobResult, RunWarning
from spark_jobs.discovery import FileStreamSource, NotifiedFile, drain
from spark_jobs.pipeline import bring_up_to_date, finished
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.table.runtime import RunTotals
from spark_jobs.table.table_run import TableRun


def takes_stream(run: TableRun, state: TableState) -> bool:
    """Whether a stream may provide the files of this run; a run that needs the whole folder lists it."""
    options = run.job.options
    asked = (
        options.action != "run"
        or options.repairs
        or options.full_listing
        or options.max_batches is not None
        or options.continuous is not None  # a continuous job has its own file discovery
    )
    asked = asked or bool(run.spec.shards)  # each source has a folder of its own
    return (
        run.engine == "spark"
        and not asked
        and state.batch > 0
        and not is_listing_due(state.listed_in_full_at, run.runtime.clock())
    )


def run_streamed(run: TableRun, source: FileStreamSource, outcome: RunTotals) -> JobResult:
    """Bring one table up to date with what the stream reports; where the stream fails, with what a listing finds.

    Raises:
        GddlError: as `run_table`. The files of the failed group are notified again next time.
    """
    outcome.max_commit_ts = run.ledger().state.max_commit_ts
    spec, session = run.spec, run.runtime.spark.for_table()
    checkpoint = join(run.job.roots.lake, STATE, "streams", spec.schema_name, spec.name, source.name)

    def take(files: Sequence[NotifiedFile]) -> None:
        bring_up_to_date(replace(run, notified=tuple(files)), outcome)

    try:
        drain(source, session, run.layout.landing, checkpoint, take)
    except GddlError as error:
        if error.code != "FILE_STREAM_FAILED":
            raise
        outcome.warn([RunWarning(code="FILE_STREAM_FAILED", message=str(error))])
        bring_up_to_date(run, outcome)
    return finished(run, outcome)
