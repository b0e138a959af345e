"""A repair that is refused leaves the table as it was, and its next run is a usual one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Rebuild, Reload, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake, read
from tests.harness.landing import to_table, write
from tests.spark.breaking import Break, Breaker

pytestmark = pytest.mark.deep_on_many

SPEC = TableSpec(table="s.t", keys=("id",))
REFRESH = JobOptions(action=Rebuild())
FIRST, SECOND, THIRD = (f"20240101-00000000{n}.parquet" for n in (1, 2, 3))


def land(lake: Lake, name: str, key: int, n: object, kind: str = "int64") -> None:
    row = {"Op": "I", "transact_seq": f"{key:035d}", "id": key, "n": n}
    write(Path(lake.layout(SPEC).landing), name, to_table([row], list(row), {"id": "int64", "n": kind}))


def run(lake: Lake, engine: LocalPort, options: JobOptions | None = None, spec: TableSpec = SPEC) -> JobResult:
    return lake.results(engine, lake.job([spec], options))[SPEC.table]


def rows(lake: Lake) -> dict[object, object]:
    return {row["id"]: row["n"] for row in read(lake.layout(SPEC).replica)}


def refused(lake: Lake, engine: LocalPort, code: str, spec: TableSpec = SPEC, options: JobOptions = REFRESH) -> None:
    result = run(lake, engine, options, spec)
    assert result.error is not None
    assert result.error.code == code
    assert list(Path(lake.layout(SPEC).state).rglob("refresh/**/*.parquet")) == []


def test_changes_of_removed_files_are_kept(engine: LocalPort, tmp_path: Path) -> None:
    """By a rebuild; a reload that would drop them is refused."""
    lake = Lake(tmp_path)
    land(lake, FIRST, 1, 10)
    land(lake, SECOND, 2, 20)
    assert run(lake, engine).status == "succeeded"
    Path(lake.layout(SPEC).landing, FIRST).unlink()
    refused(lake, engine, "RELOAD_UNCONFIRMED", options=JobOptions(action=Reload()))
    assert run(lake, engine, REFRESH).status == "succeeded"
    assert rows(lake) == {1: 10, 2: 20}
    land(lake, THIRD, 3, 30)
    result = run(lake, engine)
    assert (result.status, result.mode) == ("succeeded", "incremental")
    assert rows(lake) == {1: 10, 2: 20, 3: 30}
    result = run(lake, engine, JobOptions(action=Reload(confirmed=True)))
    assert (result.status, rows(lake)) == ("succeeded", {2: 20, 3: 30})
    assert run(lake, engine, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_reload_is_refused_until_files_are_fixed(engine: LocalPort, tmp_path: Path) -> None:
    lake, strict = Lake(tmp_path), replace(SPEC, on_bad_row="fail")
    land(lake, FIRST, 1, 10)
    land(lake, SECOND, 2, "no number", "string")
    assert run(lake, engine, spec=replace(SPEC, options={"types": {"n": "bigint"}})).quarantined == 1
    strict = replace(strict, options={"types": {"n": "bigint"}})
    refused(lake, engine, "BAD_ROWS", strict, JobOptions(action=Reload(confirmed=True)))
    assert rows(lake) == {1: 10}
    land(lake, THIRD, 3, 30)
    result = run(lake, engine)
    assert (result.status, result.mode) == ("succeeded", "incremental")
    assert rows(lake) == {1: 10, 3: 30}


def test_started_swap_resumes_despite_a_changed_row(engine: LocalPort, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, FIRST, 1, 10)
    assert run(lake, engine).status == "succeeded"
    broken = lake.results(engine, lake.job([SPEC], REFRESH), Breaker({SPEC.table: Break("append")}))
    assert broken[SPEC.table].status == "failed"
    assert run(lake, engine, spec=replace(SPEC, keys=("nothing",))).error is not None
    result = run(lake, engine)
    assert (result.status, result.mode) == ("succeeded", "refresh")
    assert rows(lake) == {1: 10}
