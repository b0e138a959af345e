"""Which runs leave a record, under which name, and what of them stays in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_gddl.contract.layout import record_name, tells_of_load
from airflow_gddl.contract.result import JobResult, ResultColumn, RunWarning
from spark_jobs.job.run_results import for_record, is_recorded

IDLE = {"compacted": {}, "files_removed": 0, "dry_run": False}


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"status": "succeeded"}, True), ({"status": "failed"}, True), ({"status": "skipped"}, False),
        ({"status": "skipped", "warnings": (RunWarning(code="FOREIGN_COMMIT", message="m"),)}, True),
        ({"action": "errors_replay"}, True), ({"action": "plan"}, False), ({"action": "errors_list"}, False),
        ({"action": "verify"}, True), ({"action": "verify", "status": "skipped"}, False),
        ({"action": "erase"}, True), ({"action": "maintain", "details": IDLE}, False),
        ({"action": "maintain", "details": {**IDLE, "files_removed": 1}}, True),
        ({"action": "maintain", "status": "failed"}, True),
    ],
)  # fmt: skip
def test_only_results_of_work_are_recorded(fields: dict[str, Any], kept: bool) -> None:
    assert is_recorded(JobResult(**{"table": "s.t", "status": "succeeded", **fields})) is kept


def test_dry_run_leaves_no_record() -> None:
    assert not is_recorded(JobResult(table="s.t", status="failed", action="maintain"), dry_run=True)


@pytest.mark.parametrize(
    ("action", "load"), [("run", True), ("errors_replay", True), ("verify", False), ("erase", False)]
)
def test_record_names_show_loads_and_sort_by_time(action: str, load: bool) -> None:
    name = record_name(datetime(2024, 1, 1, tzinfo=UTC), "my.verify.run", action)
    assert name.startswith("20240101T000000000000-my.verify.run")
    assert tells_of_load(name) is load


def test_keys_of_rows_are_not_kept() -> None:
    details = {"rows": 3, "keys": [{"key": "7"}], "source": {"different": 1, "keys": [{"key": "7"}]}}
    kept = for_record(JobResult(table="s.t", status="failed", action="verify", details=details))
    assert kept.details == {"rows": 3, "source": {"different": 1}}


def test_columns_are_for_the_caller_not_for_the_record() -> None:
    result = JobResult(
        table="s.t", status="succeeded", columns=(ResultColumn(name="id", type="bigint"),), columns_left_out=3
    )
    assert for_record(result) == JobResult(table="s.t", status="succeeded")
