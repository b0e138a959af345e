"""A fake workspace that runs the real job, and a lake of small tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("databricks.sdk")

from devtools.fake_databricks.server import FakeServer, serving
from tests.harness.lake import Lake

OWN: dict[str, Any] = {
    "wheel": "/Volumes/main/gddl/airflow_gddl.whl",
    "node_type": "i3.xlarge",
    "local_roots": True,
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with serving([sys.executable, "-m", "spark_jobs.main"]) as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.workspace.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", server.token)
        yield server


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)
