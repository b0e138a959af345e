"""What a feature can do beside the steps of a batch; `spark_jobs.rooms.features` has those that there are."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_gddl.contract.result import Warnings
    from spark_jobs.batch.table_run import TableRun


class Feature:
    """What a feature does at these points; this one: nothing."""

    def update(self, run: TableRun) -> Warnings:  # noqa: ARG002 - for features that do
        """After a batch is in the ledger, and at the end of an action that wrote the tables."""
        return ()

    def forget_rows(self, run: TableRun) -> None:
        """After a key was erased, also of a row that does not use the feature any more: remove rows that it keeps."""

    def shows_withheld(
        self,
        run: TableRun,  # noqa: ARG002 - for features that do
        columns: Collection[str],  # noqa: ARG002 - for features that do
    ) -> Warnings:
        """Before stored columns are masked or left out, also of a row that no longer uses the feature: what keeps
        their values."""
        return ()

    def has_work(self, run: TableRun) -> bool:  # noqa: ARG002 - for features that do
        """For a poll: whether an idle table needs a run all the same."""
        return False

    def clean(self, run: TableRun) -> int:  # noqa: ARG002 - for features that do
        """In maintenance: remove files that nobody needs any more, of a row that no longer uses the feature also those
        that its readers find; returns their number."""
        return 0
