"""What the tests ask of an engine, so that each scenario and property is written once for all engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Protocol

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, TierSpec

EngineName = Literal["many", "one"]
"""`tasks` of a tier: many of Spark, or one in the process of the job, by delta-rs."""


def on_engine(name: EngineName, tier: TierSpec) -> TierSpec:
    """The tier for tables of this engine."""
    return tier if tier.in_one_task == (name == "one") else replace(tier, tasks=name)


class EnginePort(Protocol):
    """An engine under test; the fixture `engine` hands one out."""

    def run(self, job: JobSpec) -> list[JobResult]:
        """One job, one result a table in the job's order; a table's failure is in its result, never raised."""
        ...

    def read(self, path: str) -> list[dict[str, Any]]:
        """All rows of a Delta table as plain Python values (structs as dicts); empty when there is no table."""
        ...
