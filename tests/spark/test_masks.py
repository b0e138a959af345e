"""`mask: hmac`: values that nobody can find by trying without the key, which is nowhere in the lake."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.actions import Erase, Rebuild, Reload
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.spark import tasks
from tests.conftest import LocalPort
from tests.harness.lake import Lake, read, spec_of

KEY, OTHER = "0123456789abcdef-first-key", "0123456789abcdef-other-key"
MASKED = {"email": "hmac", "id": "hmac"}


def of(value: str, key: str = KEY) -> str:
    return hmac.new(key.encode(), value.encode(), hashlib.sha256).hexdigest()


def land(lake: Lake, spec: TableSpec, name: str, **columns: Any) -> None:
    path = Path(lake.layout(spec).landing) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def loaded(lake: Lake, spec: TableSpec) -> None:
    land(lake, spec, "LOAD00000001.parquet", id=pa.array([5, 6], pa.int32()), email=["a@x", None], n=[1, 2])


def run(port: LocalPort, lake: Lake, spec: TableSpec, options: JobOptions | None = None) -> JobResult:
    return lake.results(port, lake.job([spec], options))[spec.table]


def test_values_are_keyed_and_equal_across_tables(
    spark: LocalPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GDDL_MASK_KEY", f" {KEY}\n")
    lake, people = Lake(tmp_path), spec_of("people", settle="0s", mask=MASKED)
    orders = replace(people, table="s.orders", mask={"email": "hmac"})
    for spec in (people, orders):
        loaded(lake, spec)
        land(lake, spec, "20240101-000000001.parquet", Op=["U", "I"], seq=[1, 2], id=pa.array([5, None], pa.int32()),
             email=["b@x", "c@x"], n=[3, 4])  # fmt: skip
        assert run(spark, lake, spec).error is None
    rows = {row["id"]: row["email"] for row in read(lake.layout(people).replica)}
    assert rows == {of("5"): of("b@x"), of("6"): None}
    assert {row["id"]: row["email"] for row in read(lake.layout(orders).replica)} == {5: of("b@x"), 6: None}
    (bad,) = read(lake.layout(people).errors)
    assert of("c@x") in bad["record"]
    assert run(spark, lake, people, JobOptions(action=Erase(key={"id": "5"}))).error is None
    assert [row["id"] for row in read(lake.layout(people).replica)] == [of("6")]
    shown = "".join(capfd.readouterr())
    for text in (KEY, "b@x", "c@x"):
        assert [f for f in (tmp_path / "lake").rglob("*") if f.is_file() and text.encode() in f.read_bytes()] == []
        assert text not in shown


def test_another_key_needs_the_files(spark: LocalPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDDL_MASK_KEY", KEY)
    lake, spec = Lake(tmp_path), spec_of(settle="0s", mask={"email": "hmac"})
    loaded(lake, spec)
    assert run(spark, lake, spec).error is None
    assert run(spark, lake, spec).status == "skipped"
    (tmp_path / "key").write_text(f"{OTHER}\n")
    monkeypatch.delenv("GDDL_MASK_KEY")
    monkeypatch.setenv("GDDL_MASK_KEY_FILE", str(tmp_path / "key"))
    land(
        lake, spec, "20240101-000000001.parquet", Op=["U"], seq=[1], id=pa.array([5], pa.int32()), email=["b@x"], n=[3]
    )
    for options, code in ((None, "MASK_CHANGED"), (JobOptions(action=Rebuild()), "REBUILD_NEEDS_FILES")):
        error = run(spark, lake, spec, options).error
        assert error is not None
        assert error.code == code
    assert run(spark, lake, spec, JobOptions(action=Reload(confirmed=True))).error is None
    assert {row["id"]: row["email"] for row in read(lake.layout(spec).replica)} == {5: of("b@x", OTHER), 6: None}


@pytest.mark.parametrize("key", [None, "", "short", " " * 40])
def test_without_a_key_nothing_is_written(
    spark: LocalPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.delenv("GDDL_MASK_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("GDDL_MASK_KEY", key)
    lake, spec = Lake(tmp_path), spec_of(settle="0s", mask={"email": "hmac"})
    loaded(lake, spec)
    error = run(spark, lake, spec).error
    assert error is not None
    assert error.code == "MASK_KEY_MISSING"
    assert not Path(lake.layout(spec).replica).exists()


def test_tasks_on_other_machines_get_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose environment lacks it."""
    monkeypatch.setenv("GDDL_MASK_KEY", KEY)
    seen = tasks._carrying(lambda batches: batches)
    monkeypatch.delenv("GDDL_MASK_KEY")
    assert list(seen(iter([]))) == []
    assert tasks.os.environ["GDDL_MASK_KEY"] == KEY
