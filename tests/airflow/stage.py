"""A metadata folder, landing files and a stand-in job, and what Airflow makes of them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.spec import JobOptions, Roots
from airflow_gddl.runtime.state.documents import PipelineState
from airflow_gddl.runtime.state.recording import StateRecorder


@dataclass
class Stage:
    """Everything below one folder; the environment points to it."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    orders: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metadata, self.landing, self.lake = (self.root / name for name in ("metadata", "landing", "lake"))
        (self.metadata / "tables").mkdir(parents=True)
        self.write("gddl.yaml", "landing: ../landing\nlake: ../lake\n")
        self.record = self.root / "jobs.jsonl"
        self.order()
        self.monkeypatch.setenv("GDDL_METADATA", str(self.metadata))
        self.monkeypatch.setenv("FAKE_JOB", str(self.root / "orders.json"))
        self.monkeypatch.setenv("AIRFLOW__GDDL__CACHE_DIR", str(self.root / "cache"))
        from airflow_gddl.dags.factory import AGAIN  # noqa: PLC0415 - Airflow reads its configuration when it is imported

        self.monkeypatch.setitem(AGAIN, "retries", 0)
        # What jobs and pipelines do is seen best in the fewest tasks; the other views have tests of their own.
        self.monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", "pack")

    def order(self, **orders: Any) -> None:
        """What the next jobs are to do."""
        self.orders = {"record": str(self.record), **orders}
        (self.root / "orders.json").write_text(json.dumps(self.orders))

    def write(self, name: str, text: str) -> None:
        path = self.metadata / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        # Older than what might still be being written.
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 60))

    def rows(self, *rows: str, file: str = "tables/shop.yaml") -> None:
        """Rows in YAML's flow form."""
        self.write(file, "tables:\n" + "".join(f"  - {row}\n" for row in rows) if rows else "tables: []\n")

    def land(self, table: str, name: str = "20240101-000000000.parquet", content: str = "x") -> Path:
        path = self.landing / table.replace(".", "/", 1) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """What jobs were started, in order; options with their defaults."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        jobs = [json.loads(line) for line in lines]
        return [{**job, "options": plain(decode(JobOptions, job["options"]))} for job in jobs]

    @property
    def loaded(self) -> list[list[str]]:
        """The tables of each job, sorted."""
        return [sorted(job["tables"]) for job in self.jobs]

    def state(self, dag_id: str) -> PipelineState:
        return StateRecorder(Roots(landing=str(self.landing), lake=str(self.lake)), dag_id, ()).known
