"""A table with `iceberg: 3`: readers of both formats find the same rows, after whatever happens to it."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_gddl.stores import Storage
from spark_jobs.rooms.features.iceberg.publishing import IcebergPublisher
from spark_jobs.tables.iceberg_metadata import MetadataVersions
from tests.conftest import LocalPort
from tests.readers import iceberg_v3
from tests.readers.reader_versions import in_environment
from tests.readers.row_lineage import Lineage, lineage
from tests.readers.tracked_lake import SPEC, STEPS, Change, TrackedTable, require_alike

StaticTable: Any = pytest.importorskip("pyiceberg.table").StaticTable
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def port(engine: LocalPort) -> LocalPort:
    return engine


def of_delta(path: str, port: LocalPort) -> Lineage:
    """Row ids and versions as Delta in Spark has them."""
    rows = port.spark.for_table().read.format("delta").load(path)
    found = rows.select("id", "_metadata.row_id", "_metadata.row_commit_version").collect()
    return {row[0]: (row[1], row[2]) for row in found}


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "hard": {}, "partitioned": {"partition_by": ("part",)}, "soft": {"delete": "soft"},
    "small": {"size": "small", "history": False},
}  # fmt: skip


@pytest.mark.deep_on_many
@pytest.mark.parametrize("variant", ["hard", *(pytest.param(one, marks=pytest.mark.deep) for one in (*VARIANTS,)[1:])])
def test_readers_of_both_formats_find_the_same_rows(tmp_path: Path, port: LocalPort, variant: str) -> None:
    table = TrackedTable(tmp_path, port, replace(SPEC, **VARIANTS[variant]))
    kinds = ("replica", "history") if table.spec.history else ("replica",)
    for step, result in table.play():
        behind = [warning.message for warning in result.warnings if warning.code == "ICEBERG_BEHIND"]
        assert behind == [], step
        for kind in kinds:
            rows = require_alike(table, kind)
            if kind == "replica":
                alive = {row["id"] for row in rows if not row["_gddl"].get("deleted")}
                assert alive == table.live, step
                assert lineage(table.versions()) == of_delta(table.layout.replica, port), step
    has_vectors = bool(list(Path(table.iceberg()).rglob("*.puffin")))
    assert has_vectors == (table.spec.size == "large")


def test_an_updated_row_keeps_its_id(tmp_path: Path, port: LocalPort) -> None:
    table = TrackedTable(tmp_path, port, replace(SPEC, history=False))
    table.load()
    table.land([Change("I", 50, 1, "new")])
    table.run()
    before = lineage(table.versions())
    table.land([Change("U", 5, 1, "changed"), Change("D", 6, 1, None), Change("I", 99, 1, "new")])
    table.run()
    after = lineage(table.versions())
    assert after.keys() == before.keys() - {6} | {99}
    kept = after.keys() & before.keys()
    assert {key: after[key][0] for key in kept} == {key: before[key][0] for key in kept}
    changed = {key for key in kept if after[key] != before[key]}
    assert changed == {5}
    assert after[5][1] > before[5][1]
    assert after[99][0] not in {row_id for row_id, _ in before.values()}


def test_versions_between_two_publications_are_as_if_expired(tmp_path: Path) -> None:
    """A batch makes several commits of Delta, and is published once."""
    port, draw, path = LocalPort("many"), random.Random(3), str(tmp_path / "t")  # noqa: S311 - a history, no secret
    publisher = IcebergPublisher(Storage(), path, MetadataVersions(Storage(), str(tmp_path / "iceberg")), 3)
    spark = port.spark.for_table()
    iceberg_v3.create(spark, path)
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, concat(id, ' of 1') FROM range(40)")
    names: list[set[str]] = []
    for number in range(1, 5):
        for _ in range(draw.randint(1, 3)):
            if draw.random() < 0.2:
                spark.sql(f"OPTIMIZE delta.`{path}`")
            if draw.random() < 0.3:
                at = DeltaTable(path).version() - draw.randint(1, 3)
                spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {max(1, at)}")
            held = draw.sample(range(60), 6)
            rows = [(key, f"{key} of {number}", "D" if n < 2 else "U") for n, key in enumerate(held)]
            spark.createDataFrame(rows, "id long, name string, op string").createOrReplaceTempView("changes")
            spark.sql(iceberg_v3.MERGE.format(path))
        assert publisher.publish()
        assert not publisher.publish()
        assert lineage(publisher.versions) == of_delta(path, port)
        names.append({file.name for file in Path(publisher.versions.folder).glob("*.puffin")})
    assert all(earlier <= later for earlier, later in pairwise(names))
    published = [json.loads(publisher.versions.read(n)) for n in range(1, publisher.versions.newest() + 1)]
    sequences = [metadata["last-sequence-number"] for metadata in published]
    assert sequences == sorted(set(sequences))
    assert max(b - a for a, b in pairwise(sequences)) > 1
    assert len({metadata["table-uuid"] for metadata in published}) == 1
    for a, b in pairwise(published):
        assert b["snapshots"][0]["first-row-id"] == a["next-row-id"] <= b["next-row-id"]


def test_a_table_of_version_2_becomes_one_of_version_3_with_its_next_batch(tmp_path: Path, port: LocalPort) -> None:
    table = TrackedTable(tmp_path, port, replace(SPEC, history=False, iceberg=True))
    table.load()
    table.batch()
    assert table.versions().written()[1] == 2
    table.spec = replace(table.spec, iceberg=3)
    (warning,) = table.run().warnings
    assert warning.code == "ICEBERG_BEHIND"
    assert "the Delta table has no row tracking" in warning.message
    assert table.versions().written()[1] == 2
    assert [warning.message for warning in table.batch().warnings] == []
    require_alike(table)
    assert lineage(table.versions()) == of_delta(table.layout.replica, port)
    held = [json.loads(table.versions().read(n)) for n in range(1, table.versions().newest() + 1)]
    assert [one["format-version"] for one in held][-2:] == [2, 3]
    assert len({one["table-uuid"] for one in held}) == 1
    table.spec = replace(table.spec, iceberg=True)
    assert table.run().warnings == ()
    assert table.versions().written() == (DeltaTable(table.layout.replica).version(), 2)
    found = StaticTable.from_metadata(table.iceberg()).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == sorted(table.live)


@pytest.mark.deep_on_many
@pytest.mark.parametrize("version", [True, 3])
def test_a_shallow_clone_is_refused_until_a_rebuild(tmp_path: Path, port: LocalPort, version: bool | int) -> None:
    """Its files are in the folder of another table, whose maintenance removes them."""
    table = TrackedTable(tmp_path, port, replace(SPEC, history=False, iceberg=version))
    table.load()
    table.batch()
    spark, path, origin = port.spark.for_table(), table.layout.replica, tmp_path / "origin"
    Path(path).rename(origin)
    spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{origin}`")
    behind = [warning.message for warning in table.run().warnings if warning.code == "ICEBERG_BEHIND"]
    assert len(behind) == 1
    assert "files outside of its folder" in behind[0]
    result = table.step("rebuild")
    assert "ICEBERG_BEHIND" not in {warning.code for warning in result.warnings}
    assert table.versions().written() == (DeltaTable(path).version(), 2 if version is True else 3)
    found = StaticTable.from_metadata(table.iceberg()).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == sorted(table.live)


def test_a_table_with_vectors_is_not_shown_as_version_2(tmp_path: Path, port: LocalPort) -> None:
    table = TrackedTable(tmp_path, port, replace(SPEC, history=False))
    table.load()
    table.batch()
    table.spec = replace(table.spec, iceberg=True)
    (warning,) = table.run().warnings
    assert warning.code == "ICEBERG_BEHIND"
    assert "the Delta table has deletionVectors" in warning.message
    assert table.versions().written()[1] == 3


_ENVIRONMENTS = {
    "duckdb": ["duckdb==1.5.5", "duckdb-extension-delta==1.5.5", "duckdb-extension-iceberg==1.5.5",
               "duckdb-extension-avro==1.5.5", "pytz"],
    "pyspark": ["pyspark==4.1.1"],
}  # fmt: skip


@pytest.mark.deep
def test_readers_of_other_environments_find_rows_and_row_ids(tmp_path: Path, port: LocalPort) -> None:
    """Each version that was published, by DuckDB, and by Spark with Iceberg, which show row ids, too."""
    table, folder = TrackedTable(tmp_path, port, replace(SPEC, partition_by=("part",))), tmp_path / "lake/s"
    versions, spark, known = table.versions(), port.spark.for_table(), set[int]()
    for step, _ in table.play([step for step in STEPS if step != "erase"]):  # which removes older versions
        version, _ = versions.written()
        assert version is not None, step
        copy = MetadataVersions(Storage(), f"{table.layout.replica}/iceberg-{version}")
        copy.create(1, versions.read(versions.newest()))
        known.add(version)
    iceberg_v3.expect(spark, table.layout.replica, folder / "t", known)
    for package, requirements in _ENVIRONMENTS.items():
        script = [str(Path(iceberg_v3.__file__).resolve()), "--ask", package, str(folder), "t"]
        with tempfile.TemporaryDirectory() as venv:
            output, failure = in_environment(requirements, Path(venv), sys.executable, script)
        assert failure == ""
        answers = json.loads(output)
        assert {name: said["t"] for name, said in answers.items()} == _ANSWERS[package]


_ANSWERS = {
    "duckdb": {"DuckDB, Delta": "reads", "DuckDB, Iceberg": "reads, with row ids"},
    "pyspark": {"Spark, Iceberg": "reads, with row ids"},
}
