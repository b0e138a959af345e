"""Counts of batches that were compared, and of those that could not be; imports no Spark."""

from __future__ import annotations

from airflow_gddl.contract.errors import documented
from airflow_gddl.contract.result import RunWarning
from spark_jobs.batch.merge import MergedBatch
from spark_jobs.batch.session import TableSession
from spark_jobs.tables.engine import ProposedCommit

NOT_COMPARED_CODE = "SHADOW_NOT_COMPARED"


class CommitCheck:
    """A batch's comparison, as `TableContext.before_commit`."""

    def __call__(self, proposed: ProposedCommit) -> None:
        """
        Raises:
            RetriableError: `SHADOW_DIFFERENCE`.
        """

    def end(self, merged: MergedBatch) -> None:
        """Count the batch, once it is committed."""


def not_compared(table: TableSession, reason: str) -> None:
    """Count a batch that was chosen and is not compared."""
    table.totals.add({"shadow.not_compared": 1, f"shadow.not_compared.{reason}": 1})
    more = documented("trust.md", "shadow")
    message = f"batches that `shadow` chose were not compared with Spark's MERGE; {more} says what the reasons mean"
    table.note([RunWarning(code=NOT_COMPARED_CODE, message=message, sample=(reason,))])
