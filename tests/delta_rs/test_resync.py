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
from spark_jobs.table.outcome import TableOutcome
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


def test_resync_repairs_a_replica_and_reports_the_changes(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    replica = lake.layout(SPEC).replica
    right = lake.replica(SPEC)
    DeltaTable(replica).delete("id = 2")
    DeltaTable(replica).update(updates={"v": "'wrong'"}, predicate="id = 1")
    reported = lake.done(SPEC, RESYNC)
    assert (reported.mode, lake.replica(SPEC)) == ("refresh", right)
    assert reported.details["resync"] == {
        "rows": 4, "appear": 1, "vanish": 0, "change": 1, "far_before": None, "far_after": None
    }  # fmt: skip
    assert lake.done(SPEC, JobOptions(action="verify")).details["verdict"] == "equal"


def test_unreadable_file_prevents_the_swap(tmp_path: Path) -> None:
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


def test_rebuild_with_more_differences_is_refused(source: sa.Engine, tmp_path: Path) -> None:
    run(source, "DROP TABLE IF EXISTS s.t")
    lake = three(tmp_path, source)
    run(source, "UPDATE s.t SET v = 'only the replica has it' WHERE id = 1")
    DeltaTable(lake.layout(SPEC).replica).update(updates={"v": "'only the replica has it'"}, predicate="id = 1")
    environ = {"GDDL_SOURCE_SHOP": source.url.render_as_string(hide_password=False)}
    message = refused(lake, verified(lake, environ, WITH_SOURCE, RESYNC))
    assert "1 keys of the new table differ from the source, of the live one 0" in message
    assert lake.replica(SPEC)[1] == "only the replica has it"


def test_rebuild_with_fewer_differences_is_swapped(source: sa.Engine, tmp_path: Path) -> None:
    run(source, "DROP TABLE IF EXISTS s.t")
    lake = three(tmp_path, source)
    DeltaTable(lake.layout(SPEC).replica).delete("id < 2")
    environ = {"GDDL_SOURCE_SHOP": source.url.render_as_string(hide_password=False)}
    result = verified(lake, environ, WITH_SOURCE, RESYNC)
    assert result.error is None
    assert (result.details["resync"]["far_before"], result.details["resync"]["far_after"]) == (2, 0)


def test_resumed_resync_is_checked(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    DeltaTable(lake.layout(SPEC).replica).delete("id = 2")
    assert killed_child(lake.job([SPEC], RESYNC, run_id="dies"), "read").status == -9
    reported = lake.done(SPEC)
    assert (reported.mode, reported.details["resync"]["appear"]) == ("refresh", 1)


def test_missing_table_is_built(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.load(SPEC)
    assert lake.done(SPEC, RESYNC).details["resync"]["rows"] == 3
    assert len(lake.replica(SPEC)) == 3


def test_unreachable_source_delays_no_table(tmp_path: Path) -> None:
    """What can't be checked is not swapped; the table's next loads don't wait for the source either."""
    lake = filled(tmp_path)
    asked = replace(RESYNC, source_connection="GDDL_SOURCE_SHOP")
    environ = {"GDDL_SOURCE_SHOP": "postgresql://nobody@127.0.0.1:1/none"}
    version = DeltaTable(lake.layout(SPEC).replica).version()
    result = verified(lake, environ, SPEC, asked)
    assert result.status == "failed"
    assert DeltaTable(lake.layout(SPEC).replica).version() == version
    lake.change(SPEC, 2, [("I", 9, "after")])
    assert (lake.done(SPEC).mode, lake.replica(SPEC)[9]) == ("incremental", "after")


def test_resumed_resync_uses_the_named_source(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    asked = replace(RESYNC, source_connection="GDDL_SOURCE_SHOP")
    assert killed_child(lake.job([SPEC], asked, run_id="dies"), "read").status == -9
    found = lake.run(SPEC)  # of whose environment nobody has thought
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "SOURCE_CONNECTION_MISSING"
    assert lake.done(SPEC).status == "skipped"


def test_started_swap_is_only_resumed(tmp_path: Path) -> None:
    """Half of the tables are new: a check that failed now would leave them so."""
    lake = filled(tmp_path)
    right = lake.replica(SPEC)
    DeltaTable(lake.layout(SPEC).replica).delete("id = 2")
    assert killed_child(lake.job([SPEC], RESYNC, run_id="dies"), "swapping").status == -9
    load = Path(lake.layout(SPEC).landing, "LOAD00000001.parquet")
    load.write_bytes(load.read_bytes()[:50])
    reported = lake.done(SPEC, replace(RESYNC, source_connection="NOBODY_KNOWS"))
    assert (reported.mode, reported.details, lake.replica(SPEC)) == ("refresh", None, right)


def test_refresh_without_readable_files_is_dropped(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    landing = Path(lake.layout(SPEC).landing)
    kept = {path: path.read_bytes() for path in landing.iterdir()}
    for path in kept:
        path.unlink()
    found = lake.run(SPEC, JobOptions(full_refresh=True))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "NOTHING_TO_REFRESH"
    for path, content in kept.items():
        path.write_bytes(content)
    lake.change(SPEC, 2, [("I", 9, "after")])
    assert (lake.done(SPEC).mode, lake.replica(SPEC)[9]) == ("incremental", "after")
    assert lake.done(SPEC, JobOptions(full_refresh=True)).main.rows == 5


def test_readers_see_the_old_or_the_new_table(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    replica = lake.layout(SPEC).replica
    DeltaTable(replica).delete("id = 2")
    before = DeltaTable(replica)
    old = sorted(before.to_pyarrow_table().column("id").to_pylist())
    lake.done(SPEC, RESYNC)
    assert sorted(before.to_pyarrow_table().column("id").to_pylist()) == old == [0, 1, 3]
    assert sorted(lake.replica(SPEC)) == [0, 1, 2, 3]
    counts = {
        DeltaTable(replica, version=v).to_pyarrow_table().num_rows
        for v in range(before.version(), DeltaTable(replica).version() + 1)
    }
    assert counts == {3, 4}, "no version of the table is anything between"
