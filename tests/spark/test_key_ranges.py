"""Whole tables in tasks by ranges of keys: rebuild, reload and verify, with tables that need care."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Rebuild, Reload, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.tables.many_tasks import SparkTasks
from spark_jobs.tables.places import TaskBounds
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.spark.change_feeds import FEED, differing_versions, readers_of
from tests.spark.test_maintenance import TIER, done

REBUILD, VERIFY = JobOptions(action=Rebuild()), JobOptions(action=Verify())
RELOAD = JobOptions(action=Reload(confirmed=True))
BOUNDS = TaskBounds(files=-1, key_range=3_000)
"""Every file is large and a range has few rows."""
PORT = LocalPort("many", BOUNDS)


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of ranges of each run in tasks."""
    seen: list[int] = []
    run = SparkTasks.run_by_key

    def watched(self: SparkTasks, work: Any, parts: Any, count: int) -> list[bytes]:
        seen.append(count)
        return run(self, work, parts, count)

    monkeypatch.setattr(SparkTasks, "run_by_key", watched)
    return seen


def job(lake: Lake, spec: TableSpec, options: JobOptions | None = None, port: LocalPort = PORT) -> JobResult:
    result = done(lake, spec, options or JobOptions(), port)
    assert (result.details or {}).get("verdict", "equal") == "equal"
    return result


def filled(root: Path, spec: TableSpec) -> Lake:
    """100 rows, some changed, and what must be left of them."""
    lake = Lake(root, TIER)
    lake.load(spec, 100)
    job(lake, spec)
    lake.change(spec, 1, [("U", 3, "three"), ("D", 4, None), ("I", 200, "new")])
    job(lake, spec)
    return lake


LEFT = {i: f"load {i}" for i in range(100) if i not in (3, 4)} | {3: "three", 200: "new"}


def test_files_of_a_rebuilt_replica_have_ranges_of_keys(ranges: list[int], tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec)
    job(lake, spec, REBUILD)
    assert lake.replica(spec) == LEFT
    job(lake, spec, VERIFY)
    assert min(ranges) > 2
    actions = pa.table(DeltaTable(lake.layout(spec).replica).get_add_actions(flatten=True)).to_pylist()
    ends = sorted((one["min.id"], one["max.id"]) for one in actions)
    assert len(ends) > 2
    assert all(first[1] < second[0] for first, second in pairwise(ends))


def test_ranges_of_a_batch_grow_with_its_changes(ranges: list[int], tmp_path: Path) -> None:
    """Stored rows of other keys stay where they are, so that a larger table has no more ranges, and no more files."""
    spec, large = spec_of(), LocalPort("many", TaskBounds(files=-1, batch=-1, key_range=3_000))
    lake = Lake(tmp_path, replace(TIER, deletion_vectors=True))
    lake.load(spec, 20_000)
    job(lake, spec, port=large)
    before = len(DeltaTable(lake.layout(spec).replica).file_uris())
    size = sum(Path(path).stat().st_size for path in DeltaTable(lake.layout(spec).replica).file_uris())
    assert size > 20 * 3_000
    ranges.clear()
    changes: list[tuple[str, int, str | None]] = [("U", 10 * n, "new") for n in range(50)]
    lake.change(spec, 1, [*changes, ("D", 7, None), ("I", 30_000, "new")])
    job(lake, spec, port=large)
    assert ranges
    assert max(ranges) <= 10
    assert len(DeltaTable(lake.layout(spec).replica).file_uris()) - before <= max(ranges)
    rows = {row["id"]: row["v"] for row in LocalPort("many").read_by_spark(lake.layout(spec).replica)}
    expected = {n: f"load {n}" for n in range(20_000) if n != 7} | {10 * n: "new" for n in range(50)}
    assert rows == expected | {30_000: "new"}


@pytest.mark.deep
def test_feed_of_a_rebuild_has_what_it_changes(ranges: list[int], tmp_path: Path) -> None:
    spec = spec_of(table_properties=FEED)
    lake = filled(tmp_path, spec)
    path = lake.layout(spec).replica
    first = DeltaTable(path).version()
    job(lake, spec, REBUILD)  # changes nothing
    assert LocalPort("many").spark.for_table().sql(f"DELETE FROM delta.`{path}` WHERE id BETWEEN 10 AND 60")
    job(lake, spec, REBUILD)
    assert ranges
    assert lake.replica(spec) == LEFT
    readers = readers_of(LocalPort("many").spark.for_table())
    assert differing_versions(path, readers=readers, since=first) == []
    feeds = readers[1](path, range(first + 1, DeltaTable(path).version() + 1))
    assert sorted(len(rows) for rows in feeds.values() if rows) == [51, 51]


@pytest.mark.parametrize("vectors", [False, True])
def test_tables_without_keys_and_with_partitions(vectors: bool, ranges: list[int], tmp_path: Path) -> None:
    keyless = TableSpec(table="s.keyless", keys=(), sequence_by=("seq",))
    parted = spec_of("parted", partition_by=("v",))
    tier = replace(TIER, deletion_vectors=vectors)
    for spec in (keyless, parted):
        lake = Lake(tmp_path, tier)
        lake.load(spec, 6)
        lake.change(spec, 1, [("I", 7, "load 1"), ("I", 8, "load 1")])
        job(lake, spec)
        job(lake, spec, REBUILD)
        job(lake, spec, VERIFY)
        found = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist() if not vectors else None
        rows = found or LocalPort("many").read_by_spark(lake.layout(spec).replica)
        left = {(i, f"load {i}") for i in range(6)} | {(7, "load 1"), (8, "load 1")}
        assert sorted((row["id"], row["v"]) for row in rows) == sorted(left)
    assert ranges


@pytest.mark.parametrize("kinds", [(pa.int32(), pa.int64()), (pa.string(), pa.int64()), (pa.int32(), pa.string())])
def test_reload_compares_tables_of_other_types(
    kinds: tuple[pa.DataType, pa.DataType], ranges: list[int], tmp_path: Path
) -> None:
    """Text of the live table that is no number of the new one counts as a change, or a key that vanishes."""
    spec, lake = spec_of(), Lake(tmp_path, TIER)
    for number, kind in enumerate(kinds):
        ids = ["1", "2", "x"] if pa.types.is_string(kind) else [1, 2, 3]
        rows = pa.table({"id": pa.array(ids, kind), "v": ["a", "b", "c"]})
        write(Path(lake.layout(spec).landing), f"LOAD0000000{number + 1}.parquet", rows)
        if number:
            Path(lake.layout(spec).landing, "LOAD00000001.parquet").unlink()
        result = job(lake, spec, RELOAD if number else JobOptions())
    assert ranges
    assert result.details["reload"]["rows"] == 3
    assert len(lake.replica(spec)) == 3
    assert list(Path(lake.layout(spec).state).rglob("*.arrow")) == []
    job(lake, spec, VERIFY)


def test_reload_counts_by_ranges(ranges: list[int], tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec)
    for path in Path(lake.layout(spec).landing).rglob("*.parquet"):
        path.unlink()
    table = pa.table({"id": pa.array(range(50, 150), pa.int64()), "v": [f"load {i % 90}" for i in range(50, 150)]})
    write(Path(lake.layout(spec).landing), "LOAD00000009.parquet", table)
    found = job(lake, spec, RELOAD).details["reload"]
    names = ("rows", "rows_before", "appear", "vanish", "change", "archived")
    assert [found[name] for name in names] == [100, 100, 50, 50, 10, 103]  # a generation of its own: all files are gone
    assert lake.replica(spec) == {i: f"load {i % 90}" for i in range(50, 150)}
    assert max(ranges) > 2
    job(lake, spec, VERIFY)


def test_a_range_has_rows_of_few_keys(ranges: list[int], tmp_path: Path) -> None:
    """One key with most changes is a range of its own; its changes are together."""
    spec, lake = spec_of(), Lake(tmp_path, TIER)
    lake.load(spec, 20)
    job(lake, spec)
    lake.change(spec, 1, [("U", 7, f"v{n}") for n in range(300)])
    job(lake, spec)
    job(lake, spec, REBUILD, LocalPort("many", replace(BOUNDS, key_range=100)))
    assert lake.replica(spec) == {i: f"load {i}" for i in range(20)} | {7: "v299"}
    assert ranges
    job(lake, spec, VERIFY)
