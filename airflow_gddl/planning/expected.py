"""Expected duration of a run: from the lake's records, else from benchmarks."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from airflow_gddl.contract.spec import EngineName, TableSpec, TierSpec
from airflow_gddl.runtime.state.facts import TableRecord

LEAST_RECORDS = 5
"""Minimum number of records: a first load takes longer than later ones."""
ENGINE_START: Mapping[EngineName, float] = {"delta_rs": 2.0, "spark": 15.0}
"""Seconds until a local job processes its first table."""
RUNNER_START: Mapping[str, float] = {
    "local": 0.0,
    "spark_submit": 20.0,
    "glue": 60.0,
    "emr_serverless": 120.0,
    "databricks": 300.0,
}
"""Seconds until machines are available; those of the clouds are estimates."""
FAST_SERVERLESS = 30.0
"""The same for Databricks' `PERFORMANCE_OPTIMIZED`."""
SHARED_TABLE: Mapping[EngineName, float] = {"delta_rs": 0.05, "spark": 2.2}
"""Core seconds for a table with 100 changes (`benchmarks/small_tables.py`)."""
OWN_TABLE: Mapping[EngineName, float] = {"delta_rs": 11.0, "spark": 18.0}
"""Seconds for 200,000 changes into 5,000,000 rows on two cores (`benchmarks/large_merge.py`)."""


@dataclass(frozen=True, kw_only=True)
class ExpectedDuration:
    """Duration of a tier's runs.

    Attributes:
        start_seconds: before its first table.
        table_seconds: of one table.
        at_once: tables processed in parallel.
        basis: where `table_seconds` comes from: `records` of the lake, `benchmarks`, or `given`.
    """

    start_seconds: float
    table_seconds: float
    at_once: int
    basis: Literal["records", "benchmarks", "given"] = "benchmarks"

    def run_seconds(self, tables: int) -> float:
        return self.start_seconds + math.ceil(tables / self.at_once) * self.table_seconds


def benchmark_pace(tier: TierSpec, runner: str, *, fast: bool = False) -> ExpectedDuration:
    """
    Args:
        fast: the runner's machines start at once.
    """
    shared = tier.tables_per_job > 1
    machines = tier.workers if runner != "local" and tier.engine == "delta_rs" else 1
    machine_start = FAST_SERVERLESS if fast else RUNNER_START.get(runner, 0.0)
    return ExpectedDuration(
        start_seconds=ENGINE_START[tier.engine] + machine_start,
        table_seconds=(SHARED_TABLE if shared else OWN_TABLE)[tier.engine],
        at_once=tier.cores * machines if shared else 1,
    )


def recorded_seconds(tables: Iterable[TableSpec], records: Mapping[str, TableRecord]) -> dict[str, float]:
    """By tier the median seconds of its tables' newest runs that did something; tiers with `LEAST_RECORDS` of them."""
    by_tier: defaultdict[str, list[float]] = defaultdict(list)
    for table in tables:
        record = records.get(table.table)
        newest = record.newest if record else None
        if newest is not None and newest.status == "succeeded":
            by_tier[table.size].append(newest.seconds)
    return {tier: statistics.median(found) for tier, found in by_tier.items() if len(found) >= LEAST_RECORDS}


def with_seconds(pace: ExpectedDuration, seconds: float | None, basis: Literal["records", "given"]) -> ExpectedDuration:
    """The pace with another time for a table; the same when it is null."""
    return pace if seconds is None else replace(pace, table_seconds=seconds, basis=basis)
