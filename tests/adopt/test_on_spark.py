"""Tables that a Spark job keeps by `MERGE`, as `benchmarks/handwritten.py` does, taken over by each way of commits."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.features import ROW_TRACKING
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.tables.delta_log import is_on
from tests.adopt.taking_over import AFTER, BEFORE, Landed, adopting, release, values
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.places import Way, table_of

WAYS = {"beside": Way(), "in tasks": Way(in_tasks=True, large=True), "merged": Way(merged=True)}
PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "change feed": {"delta.enableChangeDataFeed": "true"},
    "vectors and feed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    "partitioned": {},
    "row ids": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
}
OTHERS = {
    "vectors": "in tasks", "change feed": "beside", "vectors and feed": "merged", "partitioned": "beside",
    "row ids": "in tasks",
}  # fmt: skip
OTHERS_AT_NIGHT = [pytest.param(kind, way, marks=pytest.mark.deep) for kind, way in OTHERS.items()]
"""One of each way of commit is played in each change."""
REFUSED: Mapping[str, Mapping[str, str]] = {
    "column mapping": {
        "delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5",
    },
    "commit times": {"delta.enableInCommitTimestamps": "true"},
}  # fmt: skip


@dataclass(frozen=True)
class HandWritten:
    """The other job: per file the last change of each key, and a MERGE guarded by the sequence; schemas merge."""

    spark: SparkSession
    lake: Lake
    spec: TableSpec

    @property
    def replica(self) -> str:
        return self.lake.layout(self.spec).replica

    def load(self, properties: Mapping[str, str], partition_by: tuple[str, ...] = ()) -> None:
        self.spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
        rows = self.spark.read.parquet(str(self.lake.landing(self.spec) / "LOAD00000001.parquet"))
        writer = rows.write.format("delta").partitionBy(*partition_by)
        if Path(self.replica).exists():
            writer = writer.mode("append").option("mergeSchema", "true")
        for name, value in properties.items():
            writer = writer.option(name, value)
        writer.save(self.replica)

    def apply(self, number: int) -> None:
        file = str(self.lake.landing(self.spec) / f"20240101-{number:09d}.parquet")
        newest = Window.partitionBy("id").orderBy(F.col("seq").desc())
        ranked = self.spark.read.parquet(file).withColumn("rank", F.dense_rank().over(newest))
        changes = ranked.where("rank = 1").drop("rank")
        target = DeltaTable.forPath(self.spark, self.replica).alias("t")
        merge = target.merge(changes.alias("s"), "s.id = t.id")
        newer = "(t.seq IS NULL OR s.seq > t.seq)" if number > 1 else "true"
        merge = merge.whenMatchedUpdateAll(f"{newer} AND s.Op IN ('I', 'U')")
        merge.whenMatchedDelete(f"{newer} AND s.Op = 'D'").whenNotMatchedInsertAll("s.Op IN ('I', 'U')").execute()


def run(port: LocalPort, lake: Lake, spec: TableSpec, options: JobOptions | None = None) -> JobResult:
    done = lake.results(port.everywhere(), lake.job([spec], options))[spec.table]
    assert done.error is None, done.error
    return done


def rows(port: LocalPort, lake: Lake, spec: TableSpec) -> dict[int, str]:
    return {row["id"]: row["v"] for row in port.read_by_spark(lake.layout(spec).replica)}


def row_ids(job: HandWritten) -> dict[int, int]:
    """By key; empty: the table has none."""
    if not is_on(dict(job.spark.sql(f"SHOW TBLPROPERTIES delta.`{job.replica}`").collect()), ROW_TRACKING):
        return {}
    found = job.spark.read.format("delta").load(job.replica).select("id", "_metadata.row_id")
    return dict(found.collect())


def setting(kind: str, way: str, root: Path) -> tuple[LocalPort, Lake, TableSpec, Landed]:
    partition_by = ("v",) if kind == "partitioned" else ()
    spec = replace(spec_of(history=True, partition_by=partition_by), table=table_of(WAYS[way]))
    return LocalPort("many"), Lake(root), spec, Landed.of(f"{kind} {way}", files=5)


@pytest.mark.parametrize(("kind", "way"), [*(("plain", way) for way in WAYS), *OTHERS_AT_NIGHT])
def test_table_of_a_merge_job_is_taken_over(kind: str, way: str, tmp_path: Path) -> None:
    port, lake, spec, source = setting(kind, way, tmp_path)
    source.land(lake, spec, range(6), BEFORE)
    job = HandWritten(port.spark.for_table(), lake, spec)
    job.load(PROPERTIES[kind], spec.partition_by)
    for number in (1, 2, 3):
        job.apply(number)
    source.land(lake, spec, (3, 4, 5), AFTER)
    before, ids = set(Path(job.replica).rglob("*.parquet")), row_ids(job)
    run(port, lake, spec, adopting())
    assert set(Path(job.replica).rglob("*.parquet")) == before
    assert rows(port, lake, spec) == values(source.states[3])
    assert run(port, lake, spec, JobOptions(action=Verify())).details["verdict"] == "equal"
    run(port, lake, spec)
    assert rows(port, lake, spec) == values(source.states[-1])
    kept = set.intersection(*map(set, source.states[3:]))
    assert {key: ids[key] for key in kept & ids.keys()} == {key: row_ids(job)[key] for key in kept & ids.keys()}
    assert bool(ids) == (kind == "row ids")
    assert run(port, lake, spec, JobOptions(action=Verify())).details["verdict"] == "equal"
    run(port, lake, spec, JobOptions(action=Rebuild()))
    assert rows(port, lake, spec) == values(source.states[-1])


@pytest.mark.parametrize(
    ("kind", "way"), [("plain", "merged"), ("vectors and feed", "in tasks"), ("clustered", "beside"), *OTHERS_AT_NIGHT]
)
def test_a_copy_is_adopted_and_compared_with_the_table_of_the_merge_job(kind: str, way: str, tmp_path: Path) -> None:
    port, lake, spec, source = setting(kind, way, tmp_path)
    source.land(lake, spec, range(3), BEFORE)
    job = HandWritten(port.spark.for_table(), lake, spec)
    if kind == "clustered":
        job.spark.sql(f"CREATE TABLE delta.`{job.replica}` (id INT, v STRING) USING delta CLUSTER BY (id)")
    job.load(PROPERTIES.get(kind, {}), spec.partition_by)
    job.apply(1)
    job.apply(2)
    ours = replace(spec, table=f"{spec.table}_copy", source_table=spec.table)
    shutil.copytree(job.replica, lake.layout(ours).replica)
    run(port, lake, ours, adopting())
    source.land(lake, spec, (3, 4), AFTER)
    run(port, lake, ours)
    against = JobOptions(action=Verify(against=job.replica))
    assert rows(port, lake, spec) == values(source.states[2])
    assert rows(port, lake, ours) == values(source.states[4])
    job.apply(3)
    found = run(port, lake, ours, against).details["against"]
    moved = {key for key in {*source.states[3], *source.states[4]} if differ(source, key, 3, 4)}
    assert (found["behind"], found["ahead"], found["different"]) == (len(moved), 0, 0)
    job.apply(4)
    assert run(port, lake, ours, against).details["against"]["equal"] == len(source.states[4])


@pytest.mark.parametrize("way", ["in tasks", "merged"])
def test_columns_of_the_other_job_are_kept_where_files_come_once_more(way: str, tmp_path: Path) -> None:
    port, lake, spec, source = setting("own", way, tmp_path)
    source.land(lake, spec, range(6), BEFORE)
    job = HandWritten(port.spark.for_table(), lake, spec)
    job.load({})
    for number in (1, 2, 3):
        job.apply(number)
    job.spark.sql(f"ALTER TABLE delta.`{job.replica}` ADD COLUMNS (surrogate STRING)")
    job.spark.sql(f"UPDATE delta.`{job.replica}` SET surrogate = concat('key ', id)")
    source.land(lake, spec, (2, 3, 4, 5), AFTER)
    deleted = {row["id"] for number in (4, 5) for row in source.files[number].to_pylist() if row["Op"] == "D"}
    before = {row["id"] for row in port.read_by_spark(job.replica)}
    run(port, lake, spec, adopting())
    for options in (None, JobOptions(action=Rebuild())):
        run(port, lake, spec, options)
        assert rows(port, lake, spec) == values(source.states[-1])
        kept = {row["id"]: row["surrogate"] for row in port.read_by_spark(job.replica)}
        assert kept == {key: f"key {key}" if key in before - deleted else None for key in source.states[-1]}
        assert run(port, lake, spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def differ(source: Landed, key: int, before: int, after: int) -> bool:
    return source.states[before].get(key) != source.states[after].get(key)


@pytest.mark.parametrize("way", ["beside", pytest.param("merged", marks=pytest.mark.deep)])
def test_released_table_goes_on_with_the_merge_job(way: str, tmp_path: Path) -> None:
    port, lake = LocalPort("many"), Lake(tmp_path)
    spec = replace(spec_of(), table=table_of(WAYS[way]))
    source = Landed.of(way, files=4)
    source.land(lake, spec, range(3), BEFORE)
    job = HandWritten(port.spark.for_table(), lake, spec)
    job.load(PROPERTIES["row ids"])
    job.apply(1)
    job.apply(2)
    run(port, lake, spec, adopting())
    source.land(lake, spec, (3,), AFTER)
    run(port, lake, spec)
    run(port, lake, spec, release())
    source.land(lake, spec, (4,), AFTER)
    job.apply(4)
    assert rows(port, lake, spec) == values(source.states[-1])
    assert "_gddl" not in job.spark.read.format("delta").load(job.replica).columns


@pytest.mark.parametrize("kind", [*REFUSED, "not null", "check"])
def test_features_that_are_not_taken_over(kind: str, tmp_path: Path) -> None:
    port, lake, spec = LocalPort("many"), Lake(tmp_path), spec_of()
    source = Landed.of("1", files=2)
    source.land(lake, spec, range(2), BEFORE)
    job = HandWritten(port.spark.for_table(), lake, spec)
    if kind == "not null":
        job.spark.sql(f"CREATE TABLE delta.`{job.replica}` (id INT NOT NULL, v STRING) USING delta")
    else:
        job.load(REFUSED.get(kind, {}))
    if kind == "check":
        job.spark.sql(f"ALTER TABLE delta.`{job.replica}` ADD CONSTRAINT positive CHECK (id > -1)")
    version = job.spark.sql(f"DESCRIBE HISTORY delta.`{job.replica}`").count()
    done = lake.results(port.everywhere(), lake.job([spec], adopting()))[spec.table]
    assert done.error is not None
    assert done.error.code == "ADOPT_REFUSED", done.error
    assert job.spark.sql(f"DESCRIBE HISTORY delta.`{job.replica}`").count() == version
