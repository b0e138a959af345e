"""A fake workspace that runs the real job, and a lake of small tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("databricks.sdk")

from airflow_gddl.contract.result import JobResult
from airflow_gddl.fakes.databricks.server import TOKEN, FakeServer, serving
from airflow_gddl.runners.base import ProgressEvent
from tests.delta_rs.small_lake import SmallLake

OWN: dict[str, Any] = {"wheel": "/Volumes/main/gddl/airflow_gddl.whl", "local_roots": True}


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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with serving([sys.executable, "-m", "spark_jobs.main"]) as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.workspace.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", TOKEN)
        yield server


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(tmp_path)
