"""The first changes decide what orders a table, also where a run breaks off and their files change meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs import pipeline
from spark_jobs.batch.totals import TableOutcome
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

SPEC = TableSpec(table="s.t", keys=("id",), history=True)
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def land(lake: Lake, name: str, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist([{"dms_timestamp": NOON, **row} for row in rows])
    write(Path(lake.layout(SPEC).landing), name, table)


def change(sequence: int, value: str) -> dict[str, Any]:
    return {"Op": "U", "transact_seq": f"{sequence:04d}", "id": 1, "v": value}


def test_batch_that_resumes_from_the_change_table_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    land(lake, "LOAD00000001.parquet", [{"id": 1, "v": "load"}])
    lake.done(SPEC)
    land(lake, "20240101-000000001.parquet", [change(12, "newer"), change(11, "older")])
    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "merge", _breaks_off)
        outcome = lake.run(SPEC)
    assert isinstance(outcome, TableOutcome)
    assert outcome.result.status == "failed"

    land(lake, "20240101-000000001.parquet", [change(12, "newer"), change(10, "oldest")])
    lake.done(SPEC)
    assert lake.replica(SPEC) == {1: "newer"}
    land(lake, "20240101-000000002.parquet", [change(14, "newest"), change(13, "late")])
    assert [w.code for w in lake.done(SPEC).warnings] == []
    assert lake.replica(SPEC) == {1: "newest"}
    assert lake.done(SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_first_changes_write_no_row_of_the_load(tmp_path: Path) -> None:
    """A sequence of numbers gets its type by a commit alone."""
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec, rows=5)
    lake.done(spec)
    path = lake.layout(spec).changes
    loaded = set(DeltaTable(path).file_uris())
    lake.change(spec, 1, [("I", 9, "first")])
    lake.done(spec)
    assert loaded <= set(DeltaTable(path).file_uris())
    found = DeltaTable(path).to_pyarrow_dataset().to_table(filter=pc.field("_gddl", "sequence") >= 0)
    assert [row["_gddl"]["sequence"] for row in found.to_pylist()] == [100]
    rows = pa.table(DeltaTable(path).scan()).to_pylist()
    assert sorted((row["id"], row["_gddl"]["sequence"] or 0) for row in rows) == [*((i, 0) for i in range(5)), (9, 100)]
    assert lake.replica(spec) == {**{i: f"load {i}" for i in range(5)}, 9: "first"}
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def _breaks_off(*_: Any, **__: Any) -> None:
    raise RuntimeError("the run breaks off")
