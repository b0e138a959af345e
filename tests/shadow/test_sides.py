"""Spark's side before its MERGE: a short log is copied over the table's data files, a long one is cloned by Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_gddl.stores import Storage
from spark_jobs.features.shadow.sides import Sides
from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.tables.delta_log import COMMITS_PER_CHECKPOINT, MERGE, lines
from spark_jobs.tables.engine import ProposedCommit
from spark_jobs.tables.replayed_log import commit_path, replayed
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.spark.change_feeds import FEED

STORAGE = Storage()
VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40,
          "cardinality": 6}  # fmt: skip


def sides_of(table: str, folder: Path, spark: SparkSession | None = None) -> Sides:
    """Of a commit without actions; `spark`: null where none may be asked."""
    log = replayed(STORAGE, table)
    assert log is not None
    plan, schema = cast("BatchPlan", None), cast("TableSchema", None)
    proposed = ProposedCommit(path=table, step=MERGE, log=log, actions=[], plan=plan, table_schema=schema)
    return Sides(cast("SparkSession", spark), STORAGE, str(folder), proposed)


def kinds(table: str) -> list[str]:
    """Each action's kind."""
    logs = sorted(Path(table, "_delta_log").glob("*.json"))
    return [next(iter(json.loads(line))) for log in logs for line in log.read_text().splitlines()]


def test_short_log_is_copied_over_the_data_files(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    lake.done(spec)
    for number in range(1, 4):
        lake.change(spec, number, [("U", 0, f"new {number}"), ("D", number - 1, None), ("I", 10 + number, "added")])
        lake.done(spec)
    table = lake.layout(spec).replica
    sides = sides_of(table, tmp_path / "sides")
    sides.clone()
    assert kinds(sides.theirs) == kinds(table)
    files = {uri.removeprefix("file://") for uri in DeltaTable(table).file_uris()}
    assert {path.removeprefix("file:") for path, *_ in sides._files(sides.theirs)} == files
    assert not list(Path(sides.theirs).rglob("*.parquet"))
    sides.propose()
    assert sides._files(sides.ours) == sides._files(sides.theirs)


def test_paths_of_a_copied_log_are_absolute(tmp_path: Path) -> None:
    """Escaped ones stay so; those that are absolute already, and vectors in the log, stay as they are."""
    table, kept = (
        str(tmp_path / "a table"),
        {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0"},
    )
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "1", "schemaString": json.dumps({"type": "struct", "fields": []}), "partitionColumns": []}},
        {"add": {"path": "n=1%252/part.parquet", "size": 1, "deletionVector": VECTOR}},
        {"add": {"path": "file:/elsewhere/part.parquet", "size": 1, "deletionVector": kept}},
        {"cdc": {"path": "_change_data/c.parquet", "size": 1}},
        {"remove": {"path": "old.parquet", "deletionTimestamp": 1}},
    ]
    STORAGE.write(commit_path(table, 0), lines(actions))
    sides = sides_of(table, tmp_path / "sides")
    sides.clone()
    copied = [json.loads(line) for line in STORAGE.read(commit_path(sides.theirs, 0)).splitlines()]
    root = f"file:{tmp_path}/a%20table"
    assert copied[:2] == actions[:2]
    vector = {**VECTOR, "storageType": "p",
              "pathOrInlineDv": f"{root}/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"}  # fmt: skip
    assert copied[2:] == [
        {"add": {"path": f"{root}/n=1%252/part.parquet", "size": 1, "deletionVector": vector}},
        actions[3],
        {"cdc": {"path": f"{root}/_change_data/c.parquet", "size": 1}},
        {"remove": {"path": f"{root}/old.parquet", "deletionTimestamp": 1}},
    ]


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_log_with_a_checkpoint_is_cloned_by_spark_and_compared(tmp_path: Path) -> None:
    port, lake, spec = LocalPort("many"), Lake(tmp_path), spec_of()
    lake.load(spec)
    lake.done(spec)
    for number in range(1, COMMITS_PER_CHECKPOINT + 2):
        lake.change(spec, number, [("U", 0, f"new {number}"), ("I", 10 + number, "added")])
        lake.done(spec)
    table = lake.layout(spec).replica
    assert list(Path(table, "_delta_log").glob("*.checkpoint.parquet"))
    sides = sides_of(table, tmp_path / "sides", port.spark.for_table())
    sides.clone()
    assert sides.commits == 1
    by_spark = {row["id"]: row["v"] for row in port.read_by_spark(sides.theirs)}
    assert by_spark == lake.replica(spec)
    assert len(by_spark) == 3 + COMMITS_PER_CHECKPOINT + 1
    lake.change(spec, 99, [("U", 0, "last"), ("D", 11, None)])
    result = lake.results(port, lake.job([replace(spec, shadow=True)]))[spec.table]
    assert (result.features["shadow.compared"], result.features["shadow.differences"]) == (1, 0)
    assert lake.replica(spec)[0] == "last"


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_history_of_a_batch_of_truncates_alone_is_compared(tmp_path: Path) -> None:
    """A truncate ends versions of keys of which the batch has no change."""
    port, lake = LocalPort("many"), Lake(tmp_path)
    spec = spec_of(history=True, truncate="apply", shadow=True)
    lake.load(spec)
    lake.done(replace(spec, shadow=False))
    for number, rows in ((1, [("U", 0, "new")]), (2, [("T", 0, None)]), (3, [("I", 5, "after")])):
        lake.change(spec, number, rows)
        result = lake.results(port, lake.job([spec], run_id=f"run-{number}"))[spec.table]
        assert result.status == "succeeded", result.error
        assert result.features.get("shadow.differences", 0) == 0
    assert lake.replica(spec) == {5: "after"}
    ended = [row["id"] for row in lake.rows(lake.layout(spec).history) if row["__end_at"] is not None]
    assert sorted(ended) == [0, 0, 1, 2]


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_feed_of_a_batch_without_effect_is_compared_after_the_columns_grew(tmp_path: Path) -> None:
    """Spark makes no commit for such a batch, and refuses to read a feed from before its columns."""
    port, lake = LocalPort("many"), Lake(tmp_path)
    spec = spec_of(table_properties=FEED, shadow=True)
    lake.load(spec)
    lake.done(replace(spec, shadow=False))
    lake.change(spec, 5, [("U", 0, "new")])
    lake.done(replace(spec, shadow=False))
    lake.change(spec, 2, [("U", 0, "old")], day=2)
    result = lake.results(port, lake.job([spec]))[spec.table]
    assert (result.features["shadow.compared"], result.features["shadow.differences"]) == (1, 0)
    assert lake.replica(spec)[0] == "new"
