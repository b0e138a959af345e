"""The first changes decide what orders a table, also where a run breaks off and their files change meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs import pipeline
from spark_jobs.table.outcome import TableOutcome
from tests.delta_rs.small_lake import SmallLake
from tests.landing import write

SPEC = TableSpec(table="s.t", keys=("id",), history=True)
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def land(lake: SmallLake, name: str, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist([{"dms_timestamp": NOON, **row} for row in rows])
    write(Path(lake.layout(SPEC).landing), name, table)


def change(sequence: int, value: str) -> dict[str, Any]:
    return {"Op": "U", "transact_seq": f"{sequence:04d}", "id": 1, "v": value}


def test_batch_that_resumes_from_the_change_table_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = SmallLake(tmp_path)
    land(lake, "LOAD00000001.parquet", [{"id": 1, "v": "load"}])
    lake.done(SPEC)
    land(lake, "20240101-000000001.parquet", [change(12, "newer"), change(11, "older")])
    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "apply", _breaks_off)
        outcome = lake.run(SPEC)
    assert isinstance(outcome, TableOutcome)
    assert outcome.result.status == "failed"

    land(lake, "20240101-000000001.parquet", [change(12, "newer"), change(10, "oldest")])
    lake.done(SPEC)
    assert lake.replica(SPEC) == {1: "newer"}
    land(lake, "20240101-000000002.parquet", [change(14, "newest"), change(13, "late")])
    assert [w.code for w in lake.done(SPEC).warnings] == []
    assert lake.replica(SPEC) == {1: "newest"}
    assert lake.done(SPEC, JobOptions(action="verify")).details["verdict"] == "equal"


def _breaks_off(*_: Any, **__: Any) -> None:
    raise RuntimeError("the run breaks off")
