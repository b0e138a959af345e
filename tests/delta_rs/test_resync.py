"""Resync: built beside, checked, swapped; what is worse than what there is never takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from spark_jobs.table_job import TableOutcome
from tests.delta_rs.postgres import postgres
from tests.delta_rs.small_lake import SmallLake
from tests.delta_rs.test_verify_source import SPEC as WITH_SOURCE
from tests.delta_rs.test_verify_source import run, three, verified
from tests.spark.children import killed_child

RESYNC = JobOptions(full_refresh=True, resync=True)
SPEC = replace(WITH_SOURCE, options={})


@pytest.fixture(scope="module")
def source() -> Iterator[sa.Engine]:
    with postgres() as engine:
        run(engine, "CREATE SCHEMA s")
        yield engine


def filled(root: Path) -> SmallLake:
    lake = SmallLake(root)
    lake.load(SPEC, 5)
    lake.change(SPEC, 1, [("U", 0, "new"), ("D", 4, None)])
    lake.done(SPEC)
    return lake


def refused(lake: SmallLake, result: JobResult | None = None) -> str:
    if result is None:
        found = lake.run(SPEC, RESYNC)
        assert isinstance(found, TableOutcome)
        result = found.result
    assert result.error is not None
    assert result.error.code == "RESYNC_REFUSED"
    return result.error.message


def test_a_damaged_replica_is_mended_and_what_changes_is_told(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    replica = lake.layout(SPEC).replica
    right = lake.replica(SPEC)
    DeltaTable(replica).delete("id = 2")
    DeltaTable(replica).update(updates={"v": "'wrong'"}, predicate="id = 1")
    told = lake.done(SPEC, RESYNC)
    assert (told.mode, lake.replica(SPEC)) == ("refresh", right)
    assert told.details["resync"] == {
        "rows": 4, "appear": 1, "vanish": 0, "change": 1, "far_before": None, "far_after": None
    }  # fmt: skip
    assert lake.done(SPEC, JobOptions(action="verify")).details["verdict"] == "equal"


def test_with_a_file_that_can_t_be_read_nothing_is_swapped_and_nothing_is_left(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    before, version = lake.replica(SPEC), DeltaTable(lake.layout(SPEC).replica).version()
    load = Path(lake.layout(SPEC).landing, "LOAD00000001.parquet")
    load.write_bytes(load.read_bytes()[:50])
    assert "LOAD00000001.parquet" in refused(lake)
    assert (lake.replica(SPEC), DeltaTable(lake.layout(SPEC).replica).version()) == (before, version)
    assert list(Path(lake.layout(SPEC).state).rglob("refresh/**/*.parquet")) == []
    lake.change(SPEC, 2, [("I", 9, "after")])
    assert lake.done(SPEC).mode == "incremental"
    assert lake.replica(SPEC)[9] == "after"


def test_a_rebuild_that_is_further_from_the_source_is_refused(source: sa.Engine, tmp_path: Path) -> None:
    run(source, "DROP TABLE IF EXISTS s.t")
    lake = three(tmp_path, source)
    run(source, "UPDATE s.t SET v = 'only the replica has it' WHERE id = 1")
    DeltaTable(lake.layout(SPEC).replica).update(updates={"v": "'only the replica has it'"}, predicate="id = 1")
    environ = {"SHOP_DB": source.url.render_as_string(hide_password=False)}
    message = refused(lake, verified(lake, environ, WITH_SOURCE, RESYNC))
    assert "1 keys of the new table differ from the source, of the living one 0" in message
    assert lake.replica(SPEC)[1] == "only the replica has it"


def test_one_that_is_nearer_is_taken(source: sa.Engine, tmp_path: Path) -> None:
    run(source, "DROP TABLE IF EXISTS s.t")
    lake = three(tmp_path, source)
    DeltaTable(lake.layout(SPEC).replica).delete("id < 2")
    environ = {"SHOP_DB": source.url.render_as_string(hide_password=False)}
    result = verified(lake, environ, WITH_SOURCE, RESYNC)
    assert result.error is None
    assert (result.details["resync"]["far_before"], result.details["resync"]["far_after"]) == (2, 0)


def test_whoever_carries_on_a_resync_checks_it_too(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    DeltaTable(lake.layout(SPEC).replica).delete("id = 2")
    assert killed_child(lake.job([SPEC], RESYNC, run_id="dies"), "read").status == -9
    told = lake.done(SPEC)
    assert (told.mode, told.details["resync"]["appear"]) == ("refresh", 1)


def test_a_table_that_has_none_yet_is_built(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.load(SPEC)
    assert lake.done(SPEC, RESYNC).details["resync"]["rows"] == 3
    assert len(lake.replica(SPEC)) == 3
