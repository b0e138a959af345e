"""Change files that are written again, and files that are still written."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake, read
from tests.harness.landing import to_table, write

pytestmark = pytest.mark.deep_on_many

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))
NAME = "20240101-000000001.parquet"


def land(lake: Lake, value: str, name: str = NAME) -> Path:
    row = {"Op": "I", "seq": 1, "id": 1, "v": value}
    return write(Path(lake.layout(SPEC).landing), name, to_table([row], list(row), {"seq": "int64"}))


def run(lake: Lake, engine: LocalPort, spec: TableSpec = SPEC) -> JobResult:
    return lake.results(engine, lake.job([spec]))[SPEC.table]


def values(lake: Lake) -> list[object]:
    return [row["v"] for row in read(lake.layout(SPEC).replica)]


def test_rewritten_file_replaces_its_changes(engine: LocalPort, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, "wrong")
    assert run(lake, engine).warnings == ()
    path = land(lake, "right")
    warnings = {warning.code: warning for warning in run(lake, engine).warnings}
    assert warnings["FILE_REWRITTEN"].sample == (str(path),)
    assert values(lake) == ["right"]


def test_future_file_is_awaited_and_growing_file_is_skipped(engine: LocalPort, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(SPEC, settle="1s")
    ahead = land(lake, "whole")
    os.utime(ahead, (time.time() + 3600,) * 2)
    result = run(lake, engine, spec)
    assert (result.status, result.warnings, result.revisit) == ("succeeded", (), False)
    assert values(lake) == ["whole"]
    old = land(lake, "old", "20240102-000000001.parquet")
    os.utime(old, (time.time() - 60,) * 2)
    young = land(lake, "young", "20240103-000000001.parquet")
    os.utime(young, (time.time() + 3600,) * 2)
    result = run(lake, engine, spec)
    assert (result.files, result.revisit) == (1, True)
    assert [w.sample for w in result.warnings if w.code == "FILES_UNSETTLED"] == [(str(young),)]
    result = run(lake, engine, spec)
    assert (result.files, result.revisit) == (1, False)
