"""Batches that the engine without Spark writes into tables with deletion vectors, which Spark made and maintains."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from airflow_gddl.contract.actions import Maintain
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, TableSpec
from spark_jobs.tables.batch_by_ranges import LargeBatch
from spark_jobs.tables.batch_in_memory import BatchInMemory
from spark_jobs.tables.many_tasks import VACUUMING, ManyTasksEngine
from spark_jobs.tables.places import TaskBounds
from spark_jobs.tables.spark_merge import MergedTables
from tests.conftest import LocalPort
from tests.harness import exact_bounds
from tests.harness.examples import drawn, examples
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.harness.replayed_files import files_at
from tests.harness.strategies import EVERYTHING, Traits, cases, dense
from tests.spark.change_feeds import FEED, differing_versions, readers_of
from tests.spark.playing import Stage, named, play, verify
from tests.spark.test_maintenance import TIER, done

HARD = Traits(variants=False, deletes=("hard",), reloads=False)
SORTS = {
    "composite": (replace(HARD, composite=True, numbered=True, steps=True), True),
    "bad_rows": (replace(HARD, bad_rows=True, declared=True, variants=True), False),
    "reloads": (replace(HARD, reloads=True), True),
    "partial": (replace(HARD, partial=True, ties=False, steps=True), False),
    "conditions": (replace(HARD, conditions=True, renames=True, reloads=True), True),
    "everything": (EVERYTHING, True),
    "everything, files written again": (EVERYTHING, False),
}
"""Traits of the histories, and whether the tables have deletion vectors."""
IN_TASKS = TaskBounds(files=-1, load=-1, key_range=2_000)
"""However few bytes there are, Spark's tasks read them."""


@dataclass
class Taken:
    """Batches that were taken from Spark, and left to it."""

    taken: int = 0
    left: int = 0
    large: int = 0
    found: list[str] = field(default_factory=list)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Taken:
    seen, decode = Taken(), ManyTasksEngine.decode_files

    def watched(self: ManyTasksEngine, *args: Any) -> Any:
        found = decode(self, *args)
        if isinstance(found[0], LargeBatch | BatchInMemory):
            merged = isinstance(found[0].batch_context.tables, MergedTables)
            seen.taken, seen.left = seen.taken + (not merged), seen.left + merged
            seen.large += isinstance(found[0], LargeBatch)
        return found

    monkeypatch.setattr(ManyTasksEngine, "decode_files", watched)
    return seen


@pytest.mark.parametrize(
    "sort",  # in each change, that with everything that a history may have at once
    [pytest.param(sort, marks=() if sort == "everything" else pytest.mark.deep) for sort in SORTS],
)
def test_engine_and_oracle_agree(sort: str, beside: Taken, tmp_path: Path) -> None:
    """Of every second table the batches are large."""
    traits, vectors = SORTS[sort]
    found = named(drawn(cases(dense(traits)), examples(3)))
    large, port = {case.spec.table for case in found[::2]}, LocalPort("many", IN_TASKS)
    bounds_of = lambda table: replace(IN_TASKS, batch=-1) if table in large else IN_TASKS  # noqa: E731 - once
    port.runtime = replace(port.runtime, bounds_of=bounds_of)
    stage = Stage(port, Lake(tmp_path, replace(DEFAULT_TIERS["small"], deletion_vectors=vectors)), found)
    play(stage)
    verify(stage)
    assert not stage.wrong, "\n" + stage.report()
    assert 0 < beside.large < beside.taken


@pytest.mark.deep
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_spark_maintains_the_tables_between(policy: str, beside: Taken, tmp_path: Path) -> None:
    """OPTIMIZE, REORG PURGE, VACUUM, RESTORE and DELETE of Spark between batches; every reader, filtered and not.

    Spark writes checkpoints between, too: of version 2 with sidecars, where the table says so.
    """
    port, lake, spec = LocalPort("many", IN_TASKS), Lake(tmp_path, TIER), spec_of()
    lake.load(spec, 500)
    done(lake, spec, JobOptions(), port)
    truth = {i: f"load {i}" for i in range(500)}
    spark = port.spark.for_table()
    for setting, value in VACUUMING.items():
        spark.conf.set(setting, value)
    table = f"delta.`{lake.layout(spec).replica}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointPolicy' = '{policy}')")
    statements = ["", f"OPTIMIZE {table}", f"REORG TABLE {table} APPLY (PURGE)", f"VACUUM {table} RETAIN 0 HOURS",
                  f"DELETE FROM {table} WHERE id = 7", "RESTORE"][:6 if policy == "classic" else 2]  # fmt: skip
    for number, statement in enumerate(statements, start=1):
        if statement == "RESTORE":  # undoes the delete
            version = DeltaTable(lake.layout(spec).replica).version()
            spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {version}")
        elif statement:
            spark.sql(statement)
        checkpoint(spark, lake.layout(spec).replica)
        if "DELETE" in statement:
            truth.pop(7)
        changed, gone, new = 20 + number, 40 + number, 1000 + number
        lake.change(
            spec, number, [("U", changed, f"v{number}"), ("D", gone, None), ("I", new, "new"), ("U", 3, f"{number}")]
        )
        done(lake, spec, JobOptions(), port)
        truth |= {changed: f"v{number}", new: "new", 3: str(number)}
        truth.pop(gone)
        assert_read_alike(port, lake, spec, truth, polars=policy == "classic")
    assert (beside.taken, beside.left) == (len(statements), 0)
    assert list(Path(lake.layout(spec).replica).glob("deletion_vector_*.bin"))
    assert any(Path(lake.layout(spec).replica, "_delta_log").glob("_sidecars/*.parquet")) == (policy == "v2")
    lake.change(spec, 50, [("U", 9, "last")])
    truth[9] = "last"
    done(lake, spec, JobOptions(action=Maintain()), port)
    done(lake, spec, JobOptions(), port)
    assert_read_alike(port, lake, spec, truth, polars=policy == "classic")


def checkpoint(spark: SparkSession, path: str) -> None:
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).checkpoint()


def assert_read_alike(
    port: LocalPort, lake: Lake, spec: TableSpec, truth: dict[int, str], *, polars: bool = True
) -> None:
    """
    Args:
        polars: false: Polars refuses tables with the feature `v2Checkpoint`.
    """
    path, some = lake.layout(spec).replica, {key: value for key, value in truth.items() if key >= 450}
    whole = port.spark.for_table().read.format("delta").load(path).select("id", "v")  # one query: each takes a second
    by_spark = (
        whole.withColumn("some", lit(False)).union(whole.where("id >= 450").withColumn("some", lit(True))).collect()
    )
    assert {row["id"]: row["v"] for row in by_spark if not row["some"]} == truth
    assert {row["id"]: row["v"] for row in by_spark if row["some"]} == some
    assert {row["id"]: row["v"] for row in pa.table(DeltaTable(path).scan()).to_pylist()} == truth
    if polars:
        frame = pl.scan_delta(path).select("id", "v")
        assert dict(frame.collect().iter_rows()) == truth
        assert dict(frame.filter(pl.col("id") >= 450).collect().iter_rows()) == some


def test_tables_change_between(beside: Taken, tmp_path: Path) -> None:
    """New columns, wider types and changed settings of the row are brought by commits of ours."""
    port, lake, spec = LocalPort("many", IN_TASKS), Lake(tmp_path, replace(TIER, deletion_vectors=True)), spec_of()
    lake.load(spec, 5)
    done(lake, spec, JobOptions(), port)
    loaded = {path: set(files_at(path, 1)) for path in (lake.layout(spec).changes, lake.layout(spec).replica)}
    lake.change(spec, 1, [("U", 4, "narrow"), ("D", 0, None)])
    done(lake, spec, JobOptions(), port)
    for path, files in loaded.items():  # the sequence gets its type, and no row of the load is written for it
        assert files <= set(files_at(path, DeltaTable(path).version()))
    folder = Path(lake.layout(spec).landing)
    wider = {"Op": ["U"], "seq": [200], "id": pa.array([2**40], pa.int64()), "v": ["wide"], "new": ["x"]}
    write(folder, "20240102-000000001.parquet", pa.table(wider))
    done(lake, spec, JobOptions(), port)
    assert (beside.taken, beside.left) == (2, 0)
    feed = replace(spec, table_properties=FEED)
    for number, row in enumerate((spec, feed, feed), start=3):
        ids = pa.array([number, 0], pa.int64())
        columns = {"v": ["late"] * 2, "new": ["y"] * 2}
        changes = {"Op": ["U", "I"], "seq": [100 * number, 100 * number], "id": ids, **columns}
        write(folder, f"2024010{number}-000000001.parquet", pa.table(changes))
        done(lake, row, JobOptions(), port)
    truth = {0: "late", 1: "load 1", 2: "load 2", 3: "late", 4: "late", 5: "late", 2**40: "wide"}
    assert {row["id"]: row["v"] for row in port.read_by_spark(lake.layout(spec).replica)} == truth
    assert (beside.taken, beside.left) == (5, 0)


def test_a_batch_of_repeated_values_is_large_by_its_rows_in_memory(beside: Taken, tmp_path: Path) -> None:
    """Its files are small; in the driver its rows would take many times as much."""
    port, lake, spec = LocalPort("many", IN_TASKS), Lake(tmp_path, replace(TIER, memory="20m")), spec_of()
    lake.load(spec, 5)
    done(lake, spec, JobOptions(), port)
    truth = {}
    for number, long in enumerate(("short", "long " * 200), start=1):
        ids = list(range(number * 1000, number * 1000 + 2500))
        columns = {"Op": ["I"] * 2500, "seq": [1000 * number] * 2500, "id": pa.array(ids, pa.int32())}
        folder = Path(lake.layout(spec).landing)
        write(folder, f"2024010{number}-000000001.parquet", pa.table({**columns, "v": [long] * 2500}))
        assert sum(path.stat().st_size for path in folder.iterdir()) < 100_000
        done(lake, spec, JobOptions(), port)
        assert beside.large == number - 1
        truth |= dict.fromkeys(ids, long)
    found = {row["id"]: row["v"] for row in port.read_by_spark(lake.layout(spec).replica)}
    assert {key: value for key, value in found.items() if key >= 1000} == truth


def test_bounds_beside_a_vector_are_those_of_the_file(beside: Taken, tmp_path: Path) -> None:
    port, lake, spec = LocalPort("many", IN_TASKS), Lake(tmp_path, TIER), spec_of()
    for _ in exact_bounds.landings(Path(lake.layout(spec).landing)):
        done(lake, spec, JobOptions(), port)
    assert beside.left == 0
    assert exact_bounds.wrong(lake.layout(spec).replica) == []


@pytest.mark.parametrize("vectors", [pytest.param(False, marks=pytest.mark.deep), True])
def test_feed_has_what_changed(vectors: bool, beside: Taken, tmp_path: Path) -> None:
    """Files with more than half of their rows gone are written again, whether or not the table has vectors."""
    port, lake = LocalPort("many", IN_TASKS), Lake(tmp_path, replace(TIER, deletion_vectors=vectors))
    spec = spec_of(table_properties=FEED)
    lake.load(spec, 20)
    done(lake, spec, JobOptions(), port)
    batches = [
        [("U", 0, "load 0")],
        [("U", 1, "new"), ("D", 2, None), ("I", 30, "come")],
        [("D", number, None) for number in range(3, 15)],
        [("U", 1, "new")],
        [("I", 40, "alone")],
        [("D", 40, None)],
    ]
    path, first = lake.layout(spec).replica, 0
    for number, rows in enumerate(batches, start=1):
        lake.change(spec, number, rows)
        done(lake, spec, JobOptions(), port)
        first = first or DeltaTable(path).version()
    assert (beside.taken, beside.left) == (len(batches), 0)
    assert DeltaTable(path).version() >= first + 5
    assert differing_versions(path, readers=readers_of(port.spark.for_table()), since=first) == []
    left = {0: "load 0", 1: "new", 30: "come"} | {i: f"load {i}" for i in range(15, 20)}
    assert_read_alike(port, lake, spec, left)
