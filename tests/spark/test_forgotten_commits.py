"""A batch that died half-way is gone on with, though its table's log has forgotten what it did."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Erase, Maintain, Verify
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import utc_now
from spark_jobs.tables.delta_tables import Tables, Write
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.spark.breaking import Break, Breaker
from tests.spark.maintenance_world import age

SPEC = spec_of()


def done(port: LocalPort, lake: Lake, options: JobOptions | None = None) -> dict[str, object]:
    (result,) = lake.results(port, lake.job([SPEC], options)).values()
    assert result.error is None, result.error
    return {"written": result.changes_written, "details": result.details}


@pytest.mark.deep_on_many
def test_resume_after_log_cut(engine: LocalPort, tmp_path: Path) -> None:
    """Of a table with erased keys old commits go, those of a batch under way too."""
    lake, small = Lake(tmp_path), Lake(tmp_path)
    small.load(SPEC, 20)
    done(engine, lake)
    done(engine, lake, JobOptions(action=Erase(key={"id": "3"})))
    small.change(SPEC, 1, [("U", 0, "x"), ("I", 100, "new"), ("D", 1, None)])
    lake.results(engine, lake.job([SPEC]), Breaker({SPEC.table: Break("append")}))
    version = DeltaTable(lake.layout(SPEC).changes).version()
    for days in (8, 1):
        age(lake, days)
        done(engine, lake, JobOptions(action=Maintain()))
    log = Path(lake.layout(SPEC).changes, "_delta_log")
    assert not (log / f"{version:020d}.json").exists(), "its commit is forgotten"
    assert done(engine, lake)["written"] == 3
    assert small.replica(SPEC) == {n: f"load {n}" for n in range(2, 20) if n != 3} | {0: "x", 100: "new"}
    done(engine, lake, JobOptions(action=Verify()))
    assert done(engine, lake)["written"] == 0


def test_resume_after_many_commits(tmp_path: Path) -> None:
    """Counts are looked for in the newest commits only; joining the files of a large table makes as many."""
    port, lake, small = LocalPort("one"), Lake(tmp_path), Lake(tmp_path)
    small.load(SPEC, 20)
    done(port, lake)
    small.change(SPEC, 1, [("U", 0, "x"), ("I", 100, "new")])
    lake.results(port, lake.job([SPEC]), Breaker({SPEC.table: Break("append")}))
    tables = Tables(Storage(), utc_now)
    for _ in range(51):
        tables.commit(lake.layout(SPEC).changes, Write(rearranged=True))
    assert done(port, lake)["written"] == 2
    done(port, lake, JobOptions(action=Verify()))
