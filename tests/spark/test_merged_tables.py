"""Tables with features that only Spark's Delta writes: each batch and repair reaches them by its MERGE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, TableSpec, TierTasks
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.totals import TaskOutcome
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.table_job import run_guarded
from spark_jobs.tables.delta_tables import Write
from spark_jobs.tables.places import TaskBounds
from spark_jobs.tables.spark_merge import MergedTables
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.engine_port import EngineName
from tests.harness.lake import TIER, Lake, spec_of

SPEC = replace(spec_of(settle="0s"), history=True)
LARGE = TaskBounds(batch=-1)
"""Every batch is a large one."""
MAPPING = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
"""With the versions that Delta asks to be named."""
FEATURES: Mapping[str, Mapping[str, str]] = {
    "column mapping": MAPPING,
    "commit times": {"delta.enableInCommitTimestamps": "true"},
}


def run(port: LocalPort, lake: Lake, spec: TableSpec, **options: Any) -> JobResult:
    return lake.results(port, lake.job([spec], options_of(**options)))[spec.table]


@pytest.mark.deep
@pytest.mark.parametrize("feature", [*FEATURES, "check", "hidden commits"])
def test_changes_and_repairs_keep_a_table_with_features_equal(
    feature: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark, lake = LocalPort("many"), Lake(tmp_path)
    if feature == "hidden commits":
        monkeypatch.setattr("spark_jobs.tables.many_tasks.hides_commits", lambda: True)
    lake.load(SPEC, 4)
    assert run(spark, lake, SPEC).error is None
    layout = lake.layout(SPEC)
    equip(spark, layout, feature)
    lake.change(SPEC, 1, [("U", 3, "changed"), ("D", 0, None), ("I", 9, "new")])
    done = run(spark, lake, SPEC)
    assert done.error is None, done.error
    assert (done.main.inserted, done.main.updated, done.main.deleted) == (1, 1, 1)
    assert done.commit == "merge", "what the table needs is said"
    lake.change(SPEC, 2, [("U", 9, "newer"), ("D", 1, None)])
    assert run(spark, lake, SPEC).error is None
    truth = {2: "load 2", 3: "changed", 9: "newer"}
    assert rows(spark, layout.replica) == truth
    assert len(spark.read_by_spark(layout.history)) == 7
    verdict = run(spark, lake, SPEC, action="verify")
    assert (verdict.details or {}).get("verdict") == "equal", verdict
    rebuilt = run(spark, lake, SPEC, action="rebuild")
    assert rebuilt.error is None, rebuilt.error
    assert rows(spark, layout.replica) == truth
    assert len(spark.read_by_spark(layout.history)) == 7
    assert not [path for path in Path(layout.state).rglob("staged/**/*") if path.is_file()]


@pytest.mark.deep
@pytest.mark.parametrize("asked", ["one", "many"])
def test_a_shallow_clone_is_merged_into(asked: EngineName, tmp_path: Path) -> None:
    """Its log names files and vectors of another table by URI."""
    spark, lake = LocalPort("many"), Lake(tmp_path, replace(TIER, deletion_vectors=True))
    small, layout = Lake(tmp_path), lake.layout(SPEC)
    small.load(SPEC, 9)
    small.change(SPEC, 1, [("D", 7, None)])
    for _ in range(2):
        assert lake.results(spark, lake.job([SPEC]))[SPEC.table].error is None
    source = f"{layout.replica}_cloned"
    Path(layout.replica).rename(source)
    session = spark.spark.for_table()
    session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    session.sql(f"CREATE TABLE delta.`{layout.replica}` SHALLOW CLONE delta.`{source}`")
    assert '"storageType":"p"' in Path(layout.replica, f"_delta_log/{0:020d}.json").read_text()
    truth = {number: f"load {number}" for number in range(9) if number != 7}
    for number in (2, 3):
        small.change(SPEC, number, [("U", number, "changed"), ("D", number + 2, None)])
        done = lake.results(LocalPort(asked), lake.job([SPEC]))[SPEC.table]
        assert done.error is None, done.error
        truth[number] = "changed"
        truth.pop(number + 2)
        assert rows(spark, layout.replica) == truth


def test_logs_that_an_interrupted_writer_began(tmp_path: Path) -> None:
    """Spark leaves temporary files of the first commit where the disk was full; the next run creates the table."""
    spark, lake = LocalPort("many"), Lake(tmp_path)
    layout, file = lake.layout(SPEC), f".{0:020d}.json.82b3ece5-bbd4-4f8e-8851-3943f808d87b.tmp"
    for path in (layout.replica, layout.changes, layout.history, layout.tombstones, layout.errors):
        log = Path(path, "_delta_log")
        log.mkdir(parents=True)
        (log / file).write_bytes(b"")
        (log / f".{file}.crc").write_bytes(b"crc")
    Lake(tmp_path).load(SPEC, 2)
    Lake(tmp_path).change(SPEC, 1, [("D", 0, None), ("U", 1, "new"), ("U", None, "x")])
    job = lake.job([SPEC])
    tiers = {size: replace(tier, commit="merge") for size, tier in job.tiers.items()}
    found = lake.results(spark, replace(job, tiers=tiers))[SPEC.table]
    assert (found.error, found.quarantined, found.commit) == (None, 1, "merge")
    assert rows(spark, layout.replica) == {1: "new"}


@pytest.mark.deep
def test_large_batch_that_repeats_changes(tmp_path: Path) -> None:
    """A copied table's changes are compared with those of a batch in tasks; what came before is not written again."""
    spark, lake = LocalPort("many"), Lake(tmp_path)
    lake.load(SPEC, 3)
    assert run(spark, lake, SPEC).error is None
    layout = lake.layout(SPEC)
    equip(spark, layout, "column mapping")
    spark = LocalPort("many", LARGE)
    lake.change(SPEC, 1, [("U", 2, "changed"), ("D", 0, None)])
    assert run(spark, lake, SPEC).error is None
    changes = Path(layout.landing)
    (first,) = changes.glob("2*.parquet")
    (changes / first.name.replace("001.parquet", "002.parquet")).write_bytes(first.read_bytes())
    again = run(spark, lake, SPEC)
    assert again.error is None, again.error
    assert (again.redelivered, again.changes_written) == (2, 0)
    assert rows(spark, layout.replica) == {1: "load 1", 2: "changed"}
    assert len(spark.read_by_spark(layout.changes)) == 5


def test_large_batch_of_a_table_without_keys(tmp_path: Path) -> None:
    """Rows that came before are known by all their columns; no key is shared, so that none is tied."""
    spark, lake, spec = LocalPort("many"), Lake(tmp_path), replace(SPEC, keys=(), history=False)
    lake.load(spec, 2)
    assert run(spark, lake, spec).error is None
    spark = LocalPort("many", LARGE)
    for rows_of_file in ([("I", 5, "new")], [("I", 5, "new"), ("I", 6, "newer")]):
        lake.change(spec, 1, rows_of_file)
        result = run(spark, lake, spec)
        assert result.error is None, result.error
    assert (result.redelivered, result.changes_written) == (1, 1)
    assert sorted(lake.replica(spec).items()) == [(0, "load 0"), (1, "load 1"), (5, "new"), (6, "newer")]


def equip(port: LocalPort, layout: Layout, feature: str) -> None:
    session = port.spark.for_table()
    if feature == "check":
        session.sql(f"ALTER TABLE delta.`{layout.replica}` ADD CONSTRAINT short CHECK (length(v) < 10)")
    for path in (layout.replica, layout.changes, layout.history) if feature in FEATURES else ():
        settings = ", ".join(f"'{name}' = '{value}'" for name, value in FEATURES[feature].items())
        session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({settings})")


def test_another_writer_between_read_and_merge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A commit that the batch has not read is no part of what it decides: it stops, and the next run merges."""
    spark, lake = LocalPort("many"), Lake(tmp_path)
    monkeypatch.setattr("spark_jobs.tables.many_tasks.hides_commits", lambda: True)
    lake.load(SPEC, 3)
    assert run(spark, lake, SPEC).error is None
    path, commit, met = lake.layout(SPEC).replica, MergedTables.commit, []

    def late(self: MergedTables, to: str, write: Write) -> None:
        if to == path and not met:
            met.append(path)
            spark.spark.for_table().sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('a' = 'b')")
        commit(self, to, write)

    monkeypatch.setattr(MergedTables, "commit", late)
    lake.change(SPEC, 1, [("U", 2, "changed")])
    failed = run(spark, lake, SPEC).error
    assert failed is not None
    assert failed.code == "DELTA_CONFLICT"
    assert run(spark, lake, SPEC).error is None
    assert rows(spark, path) == {0: "load 0", 1: "load 1", 2: "changed"}


@dataclass
class RecordingSpread:
    """Runs each table in this process, without Spark; remembers which it was given."""

    given: list[str] = field(default_factory=list)

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TaskOutcome]:
        runtime = Runtime(storage=Storage(), spark=NoSpark())
        for spec in specs:
            self.given.append(spec.table)
            yield run_guarded(job, spec, runtime)


@pytest.mark.parametrize("tasks", get_args(TierTasks))
def test_any_tasks_with_commits_by_merge(tasks: TierTasks, tmp_path: Path) -> None:
    """The driver works on such tables, side by side; no task or process gets them, or declines them first.

    A row's own `commit` goes before that of its tier, and the tables are equal.
    """
    spark, lake, spread = (
        LocalPort("many"),
        Lake(tmp_path, replace(TIER, tasks=tasks, commit="merge")),
        RecordingSpread(),
    )
    ours = "direct"
    specs = [replace(SPEC, table=f"s.{name}", commit=ours if name == ours else None) for name in ("a", "b", ours)]
    for spec in specs:
        lake.load(spec, 4)
    runtime = replace(spark.runtime, spread=spread)
    for number in range(3):
        for spec in specs if number else ():
            lake.change(spec, number, [("U", number, f"changed {number}"), ("D", 0, None), ("I", 9, "new")])
        found = [outcome.result for outcome in run_job(lake.job(specs), runtime, lambda _: None)]
        assert [(one.error, one.warnings) for one in found] == [(None, ())] * 3
        assert [one.commit for one in found] == ["merge", "merge", "direct"]
        assert [one.tasks for one in found] == ["many", "many", "many" if tasks == "many" else "one"]
    assert spread.given == ([] if tasks == "many" else [specs[2].table] * 3)
    idle = [outcome.result for outcome in run_job(lake.job(specs), runtime, lambda _: None)]
    assert [(one.status, one.commit) for one in idle] == [("skipped", one.commit) for one in found]
    for spec in specs:
        assert rows(spark, lake.layout(spec).replica) == {1: "changed 1", 2: "changed 2", 3: "load 3", 9: "new"}
        assert len(spark.read_by_spark(lake.layout(spec).history)) == 7


def rows(port: LocalPort, path: str) -> dict[int, str]:
    return {row["id"]: row["v"] for row in port.read_by_spark(path)}
