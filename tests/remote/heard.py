"""Who listens to a job of the tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_gddl.contract.result import JobResult
from airflow_gddl.runners.interface import ProgressEvent


@dataclass
class Heard:
    """A listener that remembers."""

    results: list[JobResult] = field(default_factory=list)

    def on_progress(self, event: ProgressEvent) -> None:
        raise AssertionError(f"a run elsewhere tells no steps: {event}")

    def on_result(self, result: JobResult) -> None:
        self.results.append(result)

    @property
    def states(self) -> dict[str, str]:
        """Table to status, with the code of a failure."""
        return {r.table: r.error.code if r.error else r.status for r in self.results}
