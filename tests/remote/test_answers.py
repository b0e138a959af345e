"""Orders and results through the lake, on disks and in S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join, result_name, results_folder, spec_path
from airflow_gddl.contract.result import ErrorInfo, JobResult, Status
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.runners.remote import ResultReader as Read
from airflow_gddl.runners.remote import pauses
from airflow_gddl.stores import Storage, open_store
from spark_jobs.job.run_results import ResultStore as Put
from spark_jobs.program import read_spec
from tests.harness.s3_server import Bucket, serving


@pytest.fixture(params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Root of a lake of either sort."""
    if request.param == "disk":
        yield str(tmp_path / "lake")
        return
    with serving(Bucket()) as url:
        settings = {"ENDPOINT_URL": url, "ALLOW_HTTP": "true", "REGION": "eu-west-1"}
        for name, value in {**settings, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield "s3://bucket/lake"


def spec_of(lake: str) -> JobSpec:
    return JobSpec(run_id="j-1", roots=Roots(landing="/l", lake=lake), tables=(TableSpec(table="s.a", keys=("id",)),))


def result(status: Status, rows: int = 0, table: str = "s.a") -> JobResult:
    error = ErrorInfo(code="X", message="x") if status == "failed" else None
    return JobResult(table=table, status=status, rows_read=rows, run_id="j-1", error=error)


def test_an_order_is_put_once_and_read_by_the_job(lake: str) -> None:
    store, spec = open_store(), spec_of(lake)
    path = spec_path(lake, spec.run_id)
    assert store.create(path, to_json(spec).encode()) is True
    assert store.create(path, b"another") is False
    assert read_spec(path) == spec
    assert [found.name for found in store.list(join(lake, "_gddl", "specs"))] == ["j-1.json"]


def test_an_order_of_another_contract_is_refused(lake: str) -> None:
    path = spec_path(lake, "j-1")
    open_store().create(path, json.dumps({**json.loads(to_json(spec_of(lake))), "contract_version": 99}).encode())
    with pytest.raises(FatalError, match=r"CONTRACT_VERSION.*version 99"):
        read_spec(path)


def test_a_missing_spec_is_reported(lake: str) -> None:
    with pytest.raises(FatalError, match=r"SPEC_INVALID"):
        read_spec(spec_path(lake, "nobody"))


def test_results_are_returned_once_as_they_arrive(lake: str) -> None:
    put, read = Put.of(spec_of(lake), Storage()), Read(open_store(), lake, "j-1")
    assert list(read.new()) == []
    put.put(result("succeeded", 3))
    assert [(r.table, r.rows_read) for r in read.new()] == [("s.a", 3)]
    assert list(read.new()) == []
    put.put(result("failed", table="s.b"))
    assert [r.table for r in read.new()] == ["s.b"]


def test_a_job_that_is_started_again_does_not_hide_what_it_had_loaded(lake: str) -> None:
    put = Put.of(spec_of(lake), Storage())
    for first, second, kept in (
        (result("succeeded", 3), result("skipped"), ("succeeded", 3)),
        (result("failed"), result("skipped"), ("skipped", 0)),
        (result("failed"), result("succeeded", 4), ("succeeded", 4)),
    ):
        put.storage.delete(join(put.folder, result_name("s.a")))
        put.put(first)
        put.put(second)
        (found,) = Read(open_store(), lake, "j-1").new()
        assert (found.status, found.rows_read) == kept


def test_an_idle_result_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Put.of(spec_of(str(tmp_path)), Storage())
    monkeypatch.setattr(Storage, "write", lambda *_: pytest.fail("it is there already"))
    put.put(result("skipped"))
    (found,) = Read(open_store(), str(tmp_path), "j-1").new()
    assert found.status == "skipped"


def test_what_is_no_result_is_passed_over(lake: str) -> None:
    store, folder = open_store(), results_folder(lake, "j-1")
    store.write(join(folder, "a.json"), b"{")
    store.write(join(folder, "b.json"), b'{"table": 5}')
    store.write(join(folder, "c.txt"), b"")
    assert list(Read(store, lake, "j-1").new()) == []


def test_a_lake_that_can_t_be_written_stops_no_job(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file where the lake should be")
    Put.of(spec_of(str(tmp_path / "lake")), Storage()).put(result("succeeded"))
    assert (tmp_path / "lake").is_file()


def test_pauses_grow_to_a_limit_and_differ_by_chance() -> None:
    middle = pauses(16, chance=lambda: 0.5)
    assert [next(middle) for _ in range(9)] == [16, 24, 36, 54, 81, 121.5, 182.25, 192, 192]
    least, most = pauses(10, chance=lambda: 0.0), pauses(10, chance=lambda: 1.0)
    assert (next(least), next(most)) == pytest.approx((8.0, 12.0))
