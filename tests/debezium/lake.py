"""A table `shop.t` of Debezium's files, and whole runs over it."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.harness.engine_port import EnginePort
from tests.spark.breaking import Break, Breaker


class Lake:
    """A table `shop.t` of Debezium's files."""

    def __init__(self, engine: EnginePort, root: Path, **row: Any) -> None:
        self._engine = engine
        self._roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
        spec = decode(TableSpec, {"table": "shop.t", "keys": ["id"], "dialect": "debezium", **row})
        self._spec = with_expressions(spec)
        self._layout = Layout.of(self._roots, self._spec)
        self._offset = 0

    def land_in(self, partition: int, offset: int, content: str) -> None:
        """As `land`, in a partition of the topic."""
        path = Path(self._layout.landing) / f"partition={partition}/shop.t+{partition}+{offset:010d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def empty(self) -> None:
        """Move all files out of the landing folder."""
        for path in Path(self._layout.landing).rglob("*.*"):
            path.unlink()

    @property
    def state(self) -> Path:
        """Folder of the ledger."""
        return Path(self._layout.state)

    def land(self, content: str | bytes, ending: str = "json") -> str:
        """Under the name that Confluent's sink would give it."""
        path = Path(self._layout.landing) / f"partition=0/shop.t+0+{self._offset:010d}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self._offset += 100
        return str(path)

    def run(self, **options: Any) -> JobResult:
        (result,) = self._engine.run(self._job(**options))
        assert result.error is None, result.error
        return result

    def with_row(self, **row: Any) -> Lake:
        """The same table under another row."""
        other = copy.copy(self)
        other._spec = with_expressions(decode(TableSpec, {**plain(self._spec), **row}))
        return other

    def refused(self) -> str:
        """The code with which a run fails."""
        (result,) = self._engine.run(self._job())
        assert result.error is not None
        return result.error.code

    def break_off(self, step: str) -> None:
        """A run that dies once the step is done."""
        breaker = Breaker({self._spec.table: Break(step)})
        port = self._engine
        assert isinstance(port, LocalPort)
        runtime = replace(port.runtime, observe=breaker)
        (outcome,) = run_job(port.tiered(self._job()), runtime, lambda _: None)
        assert (outcome.result.status, breaker.done) == ("failed", {self._spec.table})

    def _job(self, **options: Any) -> JobSpec:
        return JobSpec(run_id="r", roots=self._roots, tables=(self._spec,), options=JobOptions(**options))

    def replica(self, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[name] for name in columns) for row in self._engine.read(self._layout.replica))

    def history(self, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[name] for name in columns) for row in self._engine.read(self._layout.history))

    def errors(self) -> list[Mapping[str, Any]]:
        return sorted(
            self._engine.read(self._layout.errors), key=lambda row: (row["source_file"], row["position"] or 0)
        )

    def changes(self) -> int:
        return len(self.change_rows())

    def change_rows(self) -> list[dict[str, Any]]:
        return sorted(self._engine.read(self._layout.changes), key=lambda row: row["_gddl"]["position"])

    def columns(self) -> set[str]:
        return {name for row in self._engine.read(self._layout.replica) for name in row}


def warnings_of(result: JobResult) -> list[str]:
    return sorted(warning.code for warning in result.warnings)


def enveloped(*events: Mapping[str, Any]) -> bytes:
    """Parquet as Confluent's sink writes it."""
    return parquet(pa.Table.from_pylist([dict(found) for found in events]))


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
