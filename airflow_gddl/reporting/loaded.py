"""What a task has loaded of each table: the sum of its jobs' results, for lineage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.layout import LOADS
from airflow_gddl.contract.result import JobResult, MainCounts
from airflow_gddl.contract.spec import Roots, TableSpec


@dataclass(frozen=True, kw_only=True)
class LoadedTables:
    """Grows while a task runs.

    Attributes:
        specs: the pipeline's rows by table.
        environ: where connections to sources are looked up.
        sums: by table; of tables that a job has brought rows or deletes of.
    """

    roots: Roots
    specs: Mapping[str, TableSpec]
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    sums: dict[str, JobResult] = field(default_factory=dict)

    def take(self, result: JobResult) -> None:
        """Add a result; those of failed tables, of idle ones and of actions that load nothing change nothing."""
        if result.status != "succeeded" or result.action not in LOADS or result.table not in self.specs:
            return
        before = self.sums.get(result.table)
        self.sums[result.table] = result if before is None else _sum(before, result)


def _sum(before: JobResult, after: JobResult) -> JobResult:
    """`after` with the counts of both, and the mode of the first that was more than an increment."""
    return replace(
        after,
        mode=after.mode if before.mode == "incremental" else before.mode,
        files=before.files + after.files,
        bytes_read=before.bytes_read + after.bytes_read,
        rows_read=before.rows_read + after.rows_read,
        changes_written=before.changes_written + after.changes_written,
        main=MainCounts(
            inserted=before.main.inserted + after.main.inserted,
            updated=before.main.updated + after.main.updated,
            deleted=before.main.deleted + after.main.deleted,
            rows=after.main.rows,
        ),
    )
