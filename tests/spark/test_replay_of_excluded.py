"""Records of the quarantine lack excluded columns, and are replayed without them; a sequence is needed for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.harness.engine_port import EnginePort

SPEC = TableSpec(
    table="s.t",
    keys=("id",),
    sequence_by=("seq",),
    options={"types": {"price": "decimal(4,2)"}},
    exclude_columns=("ssn", "seq"),
)
WIDER = replace(SPEC, options={"types": {"price": "decimal(9,2)"}})


class _Lake:
    def __init__(self, engine: EnginePort, root: Path) -> None:
        self._engine, self._root = engine, root
        self._roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
        self._layout = Layout.of(self._roots, SPEC)

    def land(self, number: int, **columns: Any) -> None:
        folder = Path(self._layout.landing)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / f"20240101-{number:09d}.parquet")

    def run(self, spec: TableSpec, **options: Any) -> JobResult:
        job = JobSpec(run_id="r", roots=self._roots, tables=(spec,), options=JobOptions(**options))
        (result,) = self._engine.run(job)
        assert result.error is None, result.error
        return result

    def replica(self, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.get(name) for name in columns) for row in self._engine.read(self._layout.replica))

    def unresolved(self) -> list[Any]:
        return [row for row in self._engine.read(self._layout.errors) if row["resolved_at"] is None]

    def stored(self) -> bytes:
        """All bytes of the lake that are not compressed: logs, records of runs."""
        return b"".join(file.read_bytes() for file in Path(self._roots.lake).rglob("*") if file.is_file())


def test_record_is_replayed_without_the_column(engine: EnginePort, tmp_path: Path) -> None:
    lake = _Lake(engine, tmp_path)
    lake.land(1, Op=["I", "I"], seq=[1, 2], id=[1, 2], price=["1.00", "12345.00"], ssn=["secret-1", "secret-2"])
    lake.run(SPEC)
    (error,) = lake.unresolved()
    assert "secret" not in str(error)
    assert b"secret" not in lake.stored()
    result = lake.run(WIDER, action="errors_replay")
    assert ([w.code for w in result.warnings], result.changes_written, lake.unresolved()) == ([], 1, [])
    assert lake.replica("id", "ssn") == [(1, None), (2, None)]


@pytest.mark.parametrize("dropped", ["keep", "null", "fail"])
def test_column_that_is_excluded_no_more_is_null(engine: EnginePort, tmp_path: Path, dropped: Any) -> None:
    lake = _Lake(engine, tmp_path)
    lake.land(1, Op=["I", "U"], seq=[1, 3], id=[1, 2], price=["1.00", "12345.00"], ssn=[7, 8])
    lake.run(SPEC)
    taken = replace(WIDER, exclude_columns=("seq",), schema_evolution=SchemaEvolution(dropped_column=dropped))
    lake.land(2, Op=["I"], seq=[2], id=[2], price=["2.00"], ssn=[9])
    lake.run(taken)
    assert lake.replica("id", "ssn") == [(1, None), (2, 9)]
    lake.run(taken, action="errors_replay")
    assert lake.unresolved() == []
    assert lake.replica("id", "ssn") == [(1, None), (2, None)]
