"""Where engine `spark` works on a table and how it commits, chosen by the table's name and given to the job."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, replace

from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.tables.places import TaskBounds


@dataclass(frozen=True)
class Way:
    """How engine `spark` writes a table.

    Attributes:
        merged: by commits of Spark's Delta, like tables that only it can write.
        one: of merged tables: those whose tier has `tasks: one`, as `commit: merge` goes with any.
        in_tasks: whole tables in tasks, by small ranges of keys, like large ones.
        large: batches by ranges of keys, like large ones.
    """

    merged: bool = False
    one: bool = False
    in_tasks: bool = False
    large: bool = False


def way_of(table: str) -> Way:
    """Two tables of eight are `merged`, one of them in a tier of `tasks: one`, every second one of either `in_tasks`,
    and so on.

    `GDDL_MERGED=014567` merges the other eighths; none if it is empty. A batch of such a table costs ten others.
    """
    number = zlib.crc32(table.encode())
    merged = str(number // 8 % 8) in os.environ.get("GDDL_MERGED", "23")
    one = merged and number // 8 % 2 == 1
    return Way(merged=merged, one=one, in_tasks=bool(number // 2 % 2), large=bool(number // 4 % 2))


def table_of(way: Way, name: str = "crm.orders") -> str:
    """A table that is written in this way."""
    return next(table for table in (f"{name}_{number}" for number in range(1000)) if way_of(table) == way)


def bounds_of(table: str) -> TaskBounds:
    """For `Runtime.bounds_of`."""
    way, usual = way_of(table), TaskBounds()
    return TaskBounds(
        files=-1 if way.in_tasks else usual.files,
        batch=-1 if way.large else usual.batch,
        key_range=8_000,
        whole=-1 if way.large else usual.whole,
    )


def with_commits(job: JobSpec) -> JobSpec:
    """The job, in which rows of tables that `way_of` merges have `commit: merge`, half of them with `tasks: one`."""
    ones = {f"{size}_one": replace(tier, tasks="one") for size, tier in job.tiers.items() if tier.tasks == "many"}

    def with_commit(spec: TableSpec) -> TableSpec:
        way, size = way_of(spec.table), f"{spec.size}_one"
        if not way.merged or size not in ones:
            return spec
        return replace(spec, commit="merge", size=size if way.one else spec.size)

    return replace(job, tables=tuple(map(with_commit, job.tables)), tiers={**ones, **job.tiers})
