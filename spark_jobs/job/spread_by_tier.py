"""Runs the small tables of a job on one machine in Spark tasks or processes, by tier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.job.spread_local import LocalSpread
from spark_jobs.job.spread_spark import SparkSpread
from spark_jobs.table.outcome import Declined, TableOutcome


@dataclass(frozen=True)
class SpreadByTier:
    """See `Spread`.

    Attributes:
        tasks: tables of tiers with `spread: spark`.
        processes: tables of tiers with `spread: processes`; they need no Java.
    """

    tasks: SparkSpread
    processes: LocalSpread

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TableOutcome | Declined]:
        in_tasks, in_processes = by_spread(job, specs)
        if in_processes:
            yield from self.processes.run(job, in_processes)
        if in_tasks:
            yield from self.tasks.run(job, in_tasks)


def by_spread(job: JobSpec, specs: Sequence[TableSpec]) -> tuple[list[TableSpec], list[TableSpec]]:
    """Tables for Spark tasks, and tables for processes."""
    in_tasks = [spec for spec in specs if job.tiers[spec.size].spread == "spark"]
    return in_tasks, [spec for spec in specs if job.tiers[spec.size].spread != "spark"]
