"""Landing folder and lake in a bucket: the same, over HTTP."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Erase, Maintain, Verify
from airflow_gddl.contract.layout import Layout, table_url
from airflow_gddl.contract.spec import JobOptions, Roots
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.harness.lake import Lake, spec_of
from tests.harness.s3_server import Bucket, serving

pytestmark = pytest.mark.wide

SPEC = spec_of(history=True)
MAINTAIN, VERIFY = JobOptions(action=Maintain()), JobOptions(action=Verify())
ERASE = JobOptions(action=Erase(key={"id": "3"}))


def parquet(rows: dict[str, list[object]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink)
    return sink.getvalue()


def reach(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("folder", ["lake", "my lake", "la#ke", "la?ke", "100%", "la+ke&x=1"])
def test_each_table_has_its_own_objects_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """A `#` ends the path of a URL, and a blank is `%20` in one: one table could be taken for another."""
    bucket, names = Bucket(), ("EMP", "EMP#HIST", "EMP X", "EMP#", "E@MP$")
    with serving(bucket) as endpoint:
        reach(endpoint, monkeypatch)
        roots = Roots(landing=f"s3://bucket/in/{folder}", lake=f"s3://bucket/{folder}")
        specs = [spec_of(name, history=True) for name in names]
        job = replace(Lake(tmp_path).job(specs), roots=roots)
        for spec in (*specs, *specs):
            key = Layout.of(roots, spec).landing.removeprefix("s3://bucket/")
            seq = sum(name.startswith(f"{key}/") for name in bucket.objects)
            bucket.objects[f"{key}/20240101-00000000{seq}.parquet"] = parquet(
                {"Op": ["U"], "seq": [seq], "id": [1], "v": [f"{spec.table} {seq}"]}
            )
            run = TableRun(job=job, spec=spec, runtime=Runtime(storage=Storage(), spark=NoSpark()))
            done = attempt(run, totals_of(job))
            assert isinstance(done, TableOutcome)
            assert done.result.error is None, done.result.error
        for spec in specs:
            path = table_url(Layout.of(roots, spec).replica)
            assert [row["v"] for row in pa.table(DeltaTable(path).scan()).to_pylist()] == [f"{spec.table} 1"]
            assert any(name.startswith(f"{folder}/s/{spec.table[2:]}/_delta_log/") for name in bucket.objects)


def test_runs_repairs_and_another_target_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket()
    with serving(bucket) as endpoint:
        reach(endpoint, monkeypatch)
        roots = Roots(landing="s3://bucket/landing", lake="s3://bucket/lake")
        job = Lake(tmp_path).job([SPEC])
        job = type(job)(run_id="s3", roots=roots, tables=job.tables, tiers=job.tiers)
        bucket.objects["landing/s/t/LOAD00000001.parquet"] = parquet({"id": [1, 2, 3], "v": ["a", "b", "c"]})
        changes = {"Op": ["U", "D"], "seq": [1, 2], "id": [1, 2], "v": ["new", None]}
        bucket.objects["landing/s/t/20240101-000000001.parquet"] = parquet(changes)
        run = TableRun(job=job, spec=SPEC, runtime=Runtime(storage=Storage(), spark=NoSpark()))
        done = attempt(run, totals_of(job))
        assert isinstance(done, TableOutcome)
        assert (done.result.status, done.result.batches) == ("succeeded", 2), done.result.error
        rows = pa.table(DeltaTable(Layout.of(roots, SPEC).replica).scan()).to_pylist()
        assert {r["id"]: r["v"] for r in rows} == {1: "new", 3: "c"}
        again = attempt(TableRun(job=job, spec=SPEC, runtime=run.runtime), totals_of(job))
        assert isinstance(again, TableOutcome)
        assert again.result.status == "skipped"
        for options in (MAINTAIN, ERASE, MAINTAIN, VERIFY):
            kept = attempt(TableRun(job=replace(job, options=options), spec=SPEC, runtime=run.runtime), totals_of(job))
            assert isinstance(kept, TableOutcome)
            assert kept.result.status == "succeeded", kept.result.error
        rows = pa.table(DeltaTable(Layout.of(roots, SPEC).replica).scan()).to_pylist()
        assert {r["id"]: r["v"] for r in rows} == {1: "new"}
        assert [name for name in bucket.objects if name.startswith("lake/_gddl/erased/s/t/")]
        new = replace(SPEC, table="own.name", source_table="s.t")
        done = attempt(TableRun(job=job, spec=new, runtime=run.runtime), totals_of(job))
        assert isinstance(done, TableOutcome)
        assert [one.code for one in done.result.warnings][:1] == ["TARGET_CHANGED"]
        rows = pa.table(DeltaTable(Layout.of(roots, new).replica).scan()).to_pylist()
        assert {r["id"]: r["v"] for r in rows} == {1: "new"}
        verified = attempt(TableRun(job=replace(job, options=VERIFY), spec=new, runtime=run.runtime), totals_of(job))
        assert isinstance(verified, TableOutcome)
        assert verified.result.status == "succeeded", verified.result.error
        again = attempt(TableRun(job=job, spec=new, runtime=run.runtime), totals_of(job))
        assert isinstance(again, TableOutcome)
        assert again.result.status == "skipped", again.result.error
