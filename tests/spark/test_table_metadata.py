"""Metadata of a table from Delta's snapshot is what `DESCRIBE DETAIL` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import utc_now
from spark_jobs.plan.table_schema import Column
from spark_jobs.tables import whole_tables
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.places import InProcess
from spark_jobs.tables.spark_merge import MaintainedTables, MergedTables, SparkTables
from spark_jobs.tables.table_definition import TableDefinition
from tests.conftest import SPARK

COLUMNS = (
    Column("id", parse_type("int")),
    Column("day", parse_type("date")),
    Column("at", parse_type("timestamp_ntz")),
)


@pytest.mark.parametrize("layout", [{"partition_by": ("day",)}, {"cluster_by": ("id",)}, {}], ids=str)
def test_snapshot_and_detail_agree(
    layout: dict[str, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    tables = SparkTables(SPARK.for_table(), DeltaCommits(Storage()))
    tables.create(TableDefinition(path=path, columns=COLUMNS, properties={"user.team": "shop"}, **layout))
    tables.alter(path, "SET TBLPROPERTIES ('comment' = 'Orders')")

    def metadata() -> dict[str, object]:
        return {
            "properties": tables.properties(path),
            "description": tables.description(path),
            "clustering": tables.clustering(path),
            "features": sorted(tables.metadata(path)["features"]),
            "partitions": tuple(tables.metadata(path)["partitionColumns"]),
        }

    by_snapshot = metadata()
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert metadata() == by_snapshot
    assert by_snapshot["description"] == "Orders"
    assert (by_snapshot["partitions"], by_snapshot["clustering"]) == (
        layout.get("partition_by", ()), layout.get("cluster_by", ())
    )  # fmt: skip


@pytest.mark.parametrize("merged", [False, True], ids=["ours", "Delta's"])
def test_new_columns_come_in_one_commit_and_new_fields_in_another(merged: bool, tmp_path: Path) -> None:
    path, storage = str(tmp_path / "t"), Storage()
    layout = Layout.of(Roots(landing="", lake=str(tmp_path)), TableSpec(table="s.t", keys=("id",)))
    spark = SparkTables(SPARK.for_table(), DeltaCommits(storage))
    known: MaintainedTables = MaintainedTables(spark, utc_now, InProcess(storage))
    if merged:
        known = MergedTables(spark, utc_now, layout, InProcess(storage))
    one = (Column("id", parse_type("int")), Column("s", parse_type("struct<a:int,l:array<struct<x:int>>>")))
    whole_tables.ensure(known, TableDefinition(path=path, columns=one))
    before = spark.version(path)
    nested = Column("s", parse_type("struct<a:int,l:array<struct<x:int,y:string>>,`b-c`:bigint,d:date>"))
    more = (one[0], nested, *(Column(f"n-{n}", parse_type("decimal(10,2)")) for n in range(50)))
    definition = TableDefinition(path=path, columns=more)
    whole_tables.ensure(known, definition)
    assert before is not None
    assert spark.version(path) == before + 2
    assert spark.columns(path) == more
    whole_tables.ensure(known, definition)
    assert spark.version(path) == before + 2
