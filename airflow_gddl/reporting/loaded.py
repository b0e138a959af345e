"""Totals of a task's loads for each table over its jobs, for lineage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract.layout import LOADS
from airflow_gddl.contract.result import JobResult, MainCounts
from airflow_gddl.contract.spec import Roots, TableSpec


@dataclass(frozen=True, kw_only=True)
class LoadedTables:
    """Grows while a task runs.

    Attributes:
        specs: the pipeline's rows by table.
        environ: where connections to sources are looked up.
        sums: totals by table, of tables with rows or deletes.
    """

    roots: Roots
    specs: Mapping[str, TableSpec]
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    sums: dict[str, JobResult] = field(default_factory=dict)

    def take(self, result: JobResult) -> None:
        """Add a result; results of failed or idle tables and of other actions are ignored."""
        if result.status != "succeeded" or result.action not in LOADS or result.table not in self.specs:
            return
        before = self.sums.get(result.table)
        self.sums[result.table] = result if before is None else _sum(before, result)


def _sum(before: JobResult, after: JobResult) -> JobResult:
    """`after` with the sum of both counts, and the mode of the first full load or refresh."""
    counted = ("files", "bytes_read", "rows_read", "changes_written")
    sums: dict[str, Any] = {name: getattr(before, name) + getattr(after, name) for name in counted}
    return replace(
        after,
        **sums,
        mode=after.mode if before.mode == "incremental" else before.mode,
        main=MainCounts(
            inserted=before.main.inserted + after.main.inserted,
            updated=before.main.updated + after.main.updated,
            deleted=before.main.deleted + after.main.deleted,
            rows=after.main.rows,
        ),
    )
