"""Where engine `spark` works on a table and how it commits, chosen by the table's name and given to the job."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, replace

from airflow_gddl.contract.spec import JobSpec
from spark_jobs.tables.places import TaskBounds


@dataclass(frozen=True)
class Way:
    """How engine `spark` writes a table.

    Attributes:
        merged: by commits of Spark's Delta, like tables that only it can write.
        in_tasks: whole tables in tasks, by small ranges of keys, like large ones.
        large: batches by ranges of keys, like large ones.
    """

    merged: bool = False
    in_tasks: bool = False
    large: bool = False


def way_of(table: str) -> Way:
    """Two tables of eight are `merged`, every second one of either `in_tasks`, and so on.

    `GDDL_MERGED=014567` merges the other eighths; none if it is empty. A batch of such a table costs ten others.
    """
    number = zlib.crc32(table.encode())
    merged = str(number // 8 % 8) in os.environ.get("GDDL_MERGED", "23")
    return Way(merged=merged, in_tasks=bool(number // 2 % 2), large=bool(number // 4 % 2))


def table_of(way: Way, name: str = "crm.orders") -> str:
    """A table that is written in this way."""
    return next(table for table in (f"{name}_{number}" for number in range(1000)) if way_of(table) == way)


def bounds_of(table: str) -> TaskBounds:
    """For `Runtime.bounds_of`."""
    way, usual = way_of(table), TaskBounds()
    return TaskBounds(
        files=-1 if way.in_tasks else usual.files, batch=-1 if way.large else usual.batch, key_range=8_000
    )


def with_commits(job: JobSpec) -> JobSpec:
    """The job, in which tables that `way_of` merges have a tier of their own with `commit: merge`."""
    merged = {
        f"{size}_merged": replace(tier, commit="merge") for size, tier in job.tiers.items() if not tier.in_one_task
    }
    tables = [
        replace(spec, size=f"{spec.size}_merged")
        if way_of(spec.table).merged and f"{spec.size}_merged" in merged
        else spec
        for spec in job.tables
    ]
    return replace(job, tables=tuple(tables), tiers={**merged, **job.tiers})
