"""What a row keeps out of the lake is refused where it names nothing, before a value is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Rebuild, Reload
from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.result import ErrorInfo
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.contract.table_spec import TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.stores import Storage
from spark_jobs.ledger.load_progress import LoadProgress, write_progress
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

RELOAD, REBUILD = JobOptions(action=Reload(confirmed=True)), JobOptions(action=Rebuild())
ROW = spec_of(settle="0s")


def landed(lake: Lake, at: int, *, email: bool = True) -> None:
    """File number `at`; the first one is of the full load."""
    columns: dict[str, Any] = {"id": pa.array([at], pa.int32()), "v": [f"v{at}"]}
    columns |= {"email": [f"{at}@example.org"]} if email else {}
    columns = columns if at == 0 else {"Op": ["I"], "seq": [at], **columns}
    write(lake.landing(ROW), "LOAD00000001.parquet" if at == 0 else f"20240101-{at:09d}.parquet", pa.table(columns))


def refused(lake: Lake, spec: TableSpec, options: JobOptions | None = None) -> ErrorInfo:
    error = lake.result(spec, options).error
    assert error is not None
    return error


def columns_of(lake: Lake) -> set[str]:
    return {name for row in lake.rows(lake.layout(ROW).changes) for name in row} - {"_gddl"}


PROTECTING: list[dict[str, Any]] = [{"exclude_columns": ("emial",)}, {"mask": {"emial": "null"}}]


@pytest.mark.parametrize("fields", PROTECTING, ids=["exclude_columns", "mask"])
def test_a_first_load_is_refused_and_nothing_is_written(fields: dict[str, Any], tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    landed(lake, 0)
    for _ in range(2):
        error = refused(lake, replace(ROW, **fields))
        assert (error.code, error.fatal) == ("PROTECTED_COLUMN_MISSING", True)
        assert "'emial' (near: 'email')" in error.message
        assert not Path(lake.layout(ROW).changes).exists()
        assert not Path(lake.layout(ROW).replica).exists()
    assert lake.done(replace(ROW, exclude_columns=("Email",))).status == "succeeded"
    assert columns_of(lake) == {"id", "v"}


@pytest.mark.parametrize("fields", PROTECTING, ids=["exclude_columns", "mask"])
@pytest.mark.parametrize("options", [None, REBUILD, RELOAD], ids=["run", "rebuild", "reload"])
def test_a_loaded_table_is_refused_too(fields: dict[str, Any], options: JobOptions | None, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    landed(lake, 0, email=False)
    lake.done(ROW)
    landed(lake, 1)
    for _ in range(2):
        assert refused(lake, replace(ROW, **fields), options).code == "PROTECTED_COLUMN_MISSING"
        assert "email" not in columns_of(lake)
    absent = ("email",) if options is RELOAD else ()  # the full load, its first batch, lacks the column
    lake.done(replace(ROW, exclude_columns=("email",), absent_columns=absent), None if options is REBUILD else options)
    assert lake.replica(ROW) == {0: "v0", 1: "v1"}
    assert "email" not in columns_of(lake)


def test_columns_of_the_service_need_not_be_in_a_full_load(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(ROW, exclude_columns=("AR_H_CHANGE_SEQ",))
    landed(lake, 0)
    assert lake.done(spec).warnings == ()


def test_a_rebuild_before_the_first_change_asks_for_no_column_of_the_service(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(ROW, exclude_columns=("AR_H_CHANGE_SEQ",))
    landed(lake, 0)
    lake.done(ROW)
    assert lake.done(spec, REBUILD).status == "succeeded"


def test_columns_that_our_load_left_out_are_missing_beside_none_of_the_service(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(ROW, exclude_columns=("email", "AR_H_CHANGE_SEQ"))
    landed(lake, 0, email=False)
    progress = LoadProgress(began="2024-01-01T00:00:00+00:00", left_out=("email",))
    write_progress(Storage(), lake.layout(ROW).state, replace(progress, ended=progress.began))
    assert lake.done(spec).status == "succeeded"


def test_a_column_that_came_and_went_is_neither_refused_nor_named(tmp_path: Path) -> None:
    """Excluded, masked, or stored once and rebuilt; also by a reload of files that lack it."""
    lake, spec = Lake(tmp_path), replace(ROW, exclude_columns=("email",))
    landed(lake, 0)
    lake.done(spec)
    for at in (1, 2):
        landed(lake, at, email=False)
        assert lake.done(spec).warnings == ()
    landed(lake, 0, email=False)
    assert "PROTECTED_COLUMN_MISSING" not in str(lake.done(spec, RELOAD).warnings)
    landed(lake, 3, email=False)
    done = lake.done(spec)
    assert (done.rows_read, [w.code for w in done.warnings]) == (1, [])


def test_a_stored_column_that_is_gone_may_be_excluded(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(ROW, exclude_columns=("email",))
    landed(lake, 0)
    lake.done(ROW)
    landed(lake, 1, email=False)
    assert refused(lake, spec).code == "COLUMNS_CHANGED"
    lake.done(spec, REBUILD)
    landed(lake, 2, email=False)
    assert lake.done(spec).rows_read == 1
    assert columns_of(lake) == {"id", "v", "seq"}


def test_a_column_that_comes_later_is_announced(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    spec = replace(ROW, mask={"email": "hash"}, exclude_columns=("ssn",), absent_columns=("EMAIL", "ssn"))
    landed(lake, 0, email=False)
    assert lake.done(spec).warnings == ()
    landed(lake, 1)
    lake.done(spec)
    (mail,) = [row["email"] for row in lake.rows(lake.layout(ROW).changes) if row["email"]]
    assert len(mail) == 64
    landed(lake, 2, email=False)
    known = replace(spec, exclude_columns=(), absent_columns=())
    assert lake.done(known).rows_read == 1, "the column has come: nothing has to be announced any more"


def test_what_our_own_load_left_out_counts_as_found(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(ROW, exclude_columns=("email",))
    landed(lake, 0, email=False)
    progress = LoadProgress(began="2024-01-01T00:00:00Z", ended="2024-01-01T00:00:01Z", left_out=("email",))
    write_progress(lake.table_run(spec).runtime.storage, lake.layout(spec).state, progress)
    assert "left_out" in to_json(progress)
    assert lake.done(spec).warnings == ()
    landed(lake, 1, email=False)
    assert lake.done(spec).warnings == ()


def test_a_filter_of_no_column_is_refused(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), with_expressions(replace(ROW, where="emial is not null"))
    landed(lake, 0)
    assert refused(lake, spec).code == "EXPRESSION_INVALID"
    assert not Path(lake.layout(ROW).changes).exists()
