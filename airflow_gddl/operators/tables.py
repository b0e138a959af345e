"""The task that loads tables in a user's own DAG."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from airflow_gddl.operators.jobs import JobOperator

ALIAS = "gddl_load"
"""Asset alias of these tasks."""


class GddlLoadOperator(JobOperator):
    """Loads tables of the metadata, beside the DAGs that load them by schedule.

    The ledger keeps files from being loaded twice, and a table that another run loads is waited for.

    Tables of one DAG share a job. A table that fails does not stop the others; the task fails at the end. Events of
    changed tables' assets are sent when the task succeeds.

    Args:
        tables: names, `schema.name`; a text is split at commas and blanks.
        select, exclude: selectors of tables, `tag:finance`; see `selection.selected`. Without `tables` and `select`,
            the task fails.
        full_refresh: rebuild them from their change tables.
        metadata: folder or `s3://` URL; null: as for the DAGs, from the configuration.
        runner: see `JobTask`.
    """

    execution = "airflow_gddl.operators.tables_execution"
    template_fields: Sequence[str] = ("tables", "select", "exclude", "metadata")
    ui_color = "#e3eefa"

    def __init__(
        self,
        *,
        tables: Sequence[str] | str = (),
        select: Sequence[str] | str = (),
        exclude: Sequence[str] | str = (),
        full_refresh: bool = False,
        metadata: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(metadata=metadata or "", pipeline=ALIAS, **kwargs)
        self.tables = tables
        self.select = select
        self.exclude = exclude
        self.full_refresh = full_refresh

    @property
    def job_key(self) -> str:
        """Other DAGs may have a task of this name, and mapped instances load other tables."""
        what = f"{self.tables} {self.select} {self.exclude}"
        return f"{self.dag_id} {self.task_id} {hashlib.sha256(what.encode()).hexdigest()[:8]}"
