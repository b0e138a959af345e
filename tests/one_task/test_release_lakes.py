"""A lake that a release wrote is continued: unfinished batches are finished, later changes apply as the oracle says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl import __version__
from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.spec import JobOptions
from tests.harness.sharded import rows_of
from tests.one_task.release_lakes import FOLDER, SHARDS, UNFINISHED, BucketLake, Table, change, changes, restored
from tests.oracle import replay
from tests.spark.table_lines import by_engine, by_oracle, differences

LAKES = sorted(FOLDER.glob("*.tar.xz"))
LATER = changes(
    5, change("U", 15, 3, "late, of a deleted key"), change("I", 50, 8, "eight"), change("U", 51, 1, "later"),
    change("D", 52, 7, "7"), change("I", 53, 2, "again"),
)  # fmt: skip
APPENDED = changes(5, change("I", 50, 8, "eight"))


@pytest.mark.parametrize("path", LAKES, ids=lambda path: path.name.removesuffix(".tar.xz"))
@pytest.mark.parametrize("region", [None, "eu-west-1"])
def test_a_lake_is_continued(path: Path, region: str | None, tmp_path: Path) -> None:
    """Also by rows that name a region, which their change tables tell of new events."""
    lake, tables = restored(path, tmp_path)
    tables = [replace(table, spec=replace(table.spec, region=region)) for table in tables]
    assert {*UNFINISHED, "plain", "history", "soft", "masked", "keyless"} <= {table.spec.name for table in tables}
    with lake.served():
        for table in tables:
            _continued(lake, table)
        _shards_continued(lake)


def _continued(lake: BucketLake, table: Table) -> None:
    spec, layout = table.spec, lake.layout(table.spec)
    assert lake.raising(spec).batches == (1 if spec.name in UNFINISHED else 0), spec.table
    assert differences(by_oracle(replay(spec, table.runs), spec), by_engine(layout, lake.rows)) == [], spec.table
    later = LATER if spec.keys else APPENDED
    lake.land(spec, later)
    assert lake.raising(spec).batches == 1, spec.table
    wanted = by_oracle(replay(spec, (*table.runs, later)), spec)
    assert differences(wanted, by_engine(layout, lake.rows)) == [], spec.table
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"
    told = {one["_gddl"]["batch_id"]: one["_gddl"].get("region") for one in lake.rows(layout.changes)}
    assert told[max(told)] == spec.region, spec.table
    lake.done(spec, JobOptions(action=Rebuild()))
    assert differences(wanted, by_engine(layout, lake.rows)) == [], spec.table


def _shards_continued(lake: BucketLake) -> None:
    spec = lake.of_shards
    assert lake.raising(spec).batches == 0
    for shard in SHARDS:
        lake.sharded.change(shard, ("I", 9, f"{shard} later"), ("U", 1, f"{shard} again"))
    lake.put()
    lake.raising(spec)
    assert rows_of(lake.rows(lake.layout(spec).replica)) == lake.sharded.expected


def test_this_release_has_a_lake_that_is_small() -> None:
    assert f"{__version__}.tar.xz" in {path.name for path in LAKES}
    assert [path.name for path in LAKES if path.stat().st_size > 200_000] == []
