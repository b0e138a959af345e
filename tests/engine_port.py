"""What the tests ask of an engine, so that each scenario and property is written once for all engines."""

from __future__ import annotations

from typing import Any, Protocol

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec


class EnginePort(Protocol):
    """An engine under test; the fixture `engine` hands one out."""

    def run(self, job: JobSpec) -> list[JobResult]:
        """One job, one result a table in the job's order; a table's failure is in its result, never raised."""
        ...

    def read(self, path: str) -> list[dict[str, Any]]:
        """All rows of a Delta table as plain Python values (structs as dicts); empty when there is no table."""
        ...
