"""Exports of a whole table in a small lake: what tests of `mode: snapshots` land, run and read."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.plan.batching import SourceLimits
from tests.harness.asked import options_of
from tests.harness.lake import Lake

FORMAT: Mapping[str, Any] = {"path_format": "'dt='yyyy-MM-dd"}
SNAPSHOTS = TableSpec(table="s.t", keys=("id",), mode="snapshots", options=FORMAT, sweep_limit=1.0, settle="0s")
NOW = datetime(2024, 6, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Exports:
    """A lake, and the folder in which a table's exports land; a day is one of January 2024, or a date.

    Attributes:
        now: time of the runs.
    """

    lake: Lake
    spec: TableSpec = SNAPSHOTS
    now: datetime = NOW
    source: str = field(default="t")

    def of(self, **fields: Any) -> Exports:
        """The same lake with other fields of the row."""
        return replace(self, spec=with_expressions(replace(self.spec, **fields)))

    def limited(self, **limits: int) -> Exports:
        """The same exports, read with smaller limits."""
        return replace(self, lake=replace(self.lake, limits=SourceLimits(**limits)))

    def folder(self, day: int | str) -> Path:
        name = f"2024-01-{day:02d}" if isinstance(day, int) else day
        return self.lake.root / "landing" / "s" / self.source / f"dt={name}"

    def land(self, day: int | str, rows: pa.Table | str, name: str = "part") -> None:
        """Write an export anew: a table as parquet, a text as CSV."""
        folder = self.folder(day)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if isinstance(rows, str):
            (folder / f"{name}.csv").write_text(rows)
        else:
            pq.write_table(rows, folder / f"{name}.parquet")
        (folder / "_SUCCESS").touch()

    def run(self, **options: Any) -> JobResult:
        return self.lake.done(self.spec, options_of(**options), clock=lambda: self.now)

    def fault(self, **options: Any) -> str:
        """Code of the error of a run; empty: it had none."""
        outcome = self.lake.run(self.spec, options_of(**options), clock=lambda: self.now)
        assert isinstance(outcome, TableOutcome)
        return outcome.result.error.code if outcome.result.error is not None else ""

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """These columns, whatever the case of their names, of the live rows of the replica, sorted."""
        path = self.lake.layout(self.spec).replica
        if not Path(path).exists():
            return []
        found = pa.table(DeltaTable(path).scan()).to_pylist()
        live = [row for row in found if not row["_gddl"].get("deleted")]
        named = ({name.lower(): value for name, value in row.items()} for row in live)
        return sorted((tuple(row.get(c) for c in columns) for row in named), key=repr)

    def captured(self) -> Iterable[Path]:
        """Change files that are there."""
        return sorted(Path(self.lake.layout(self.spec).landing).glob("*"))


def csv_of(rows: Sequence[Sequence[object]], header: str = "id,v") -> str:
    return "\n".join([header, *(",".join("" if v is None else str(v) for v in row) for row in rows), ""])


def codes(result: JobResult) -> dict[str, int]:
    return {warning.code: warning.count for warning in result.warnings}
