"""What a result says of the replica's columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.result import JobResult, ResultColumn
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch import totals
from tests.harness.lake import Lake
from tests.harness.landing import write

SPEC = TableSpec(
    table="s.t", keys=("id",), sequence_by=("seq",), mask={"E Mail": "hash", "phone": "null"}, exclude_columns=("pin",)
)
ALL = {"Op": ["I"], "seq": [1], "id": [1], "E Mail": ["a@b.c"], "phone": ["1"], "__v": [1.5], "pin": ["1234"]}


def loaded(lake: Lake, number: int, rows: dict[str, list[object]]) -> JobResult:
    write(Path(lake.layout(SPEC).landing), f"20240101-{number:09d}.parquet", pa.table(rows))
    return lake.raising(SPEC)


def test_columns_have_their_type_source_and_mask(tmp_path: Path) -> None:
    result = loaded(Lake(tmp_path), 1, ALL)
    columns = {column.name: column for column in result.columns}
    assert [*columns] == ["seq", "id", "E_Mail", "phone", "__v_source", "_gddl"]
    assert columns["id"] == ResultColumn(name="id", type="bigint", sources=("id",))
    assert columns["E_Mail"] == ResultColumn(name="E_Mail", type="string", sources=("E Mail",), masked=True)
    assert columns["phone"] == ResultColumn(name="phone", type="string", sources=("phone",), masked=True)
    assert columns["__v_source"] == ResultColumn(name="__v_source", type="double", sources=("__v",))
    assert columns["_gddl"].sources == ()
    assert columns["_gddl"].type.startswith("struct<sequence:bigint")
    assert result.columns_left_out == 0


def test_missing_column_is_kept_and_masked(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    before = loaded(lake, 1, ALL)
    after = loaded(lake, 2, {"Op": ["U"], "seq": [2], "id": [1]})
    assert [column.name for column in after.columns] == [column.name for column in before.columns]
    phone = next(column for column in after.columns if column.name == "phone")
    assert phone == ResultColumn(name="phone", type="string", sources=("phone",), masked=True)


def test_idle_run_lists_no_columns(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    loaded(lake, 1, ALL)
    idle = lake.raising(SPEC)
    assert (idle.status, idle.columns) == ("skipped", ())


def test_column_list_is_bounded_and_the_rest_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MOST_COLUMNS", 2)
    result = loaded(Lake(tmp_path), 1, ALL)
    assert [column.name for column in result.columns] == ["seq", "id"]
    assert result.columns_left_out == 4
