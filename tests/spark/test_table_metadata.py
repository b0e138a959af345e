"""Metadata of a table from Delta's snapshot is what `DESCRIBE DETAIL` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_commits import DeltaCommits
from spark_jobs.engines.spark import evolve
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.plan.columns import Column
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
    tables = Tables(SPARK.for_table(), DeltaCommits(Storage()))
    tables.create(TableDefinition(path=path, columns=COLUMNS, properties={"user.team": "shop"}, **layout))
    tables.sql(path, "ALTER TABLE {table} SET TBLPROPERTIES ('comment' = 'Orders')")

    def metadata() -> dict[str, object]:
        return {
            "properties": tables.properties(path),
            "description": tables.description(path),
            "clustering": tables.clustering(path),
            "features": sorted(tables._metadata(path)["features"]),
            "partitions": tuple(tables._metadata(path)["partitionColumns"]),
        }

    by_snapshot = metadata()
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert metadata() == by_snapshot
    assert by_snapshot["description"] == "Orders"
    assert (by_snapshot["partitions"], by_snapshot["clustering"]) == (
        layout.get("partition_by", ()), layout.get("cluster_by", ())
    )  # fmt: skip


def test_new_columns_and_fields_come_in_one_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    tables = Tables(SPARK.for_table(), DeltaCommits(Storage()))
    one = (Column("id", parse_type("int")), Column("s", parse_type("struct<a:int,l:array<struct<x:int>>>")))
    evolve.ensure(tables, TableDefinition(path=path, columns=one), rewrite=True)
    before = tables.version(path)
    nested = Column("s", parse_type("struct<a:int,l:array<struct<x:int,y:string>>,`b-c`:bigint,d:date>"))
    more = (one[0], nested, *(Column(f"n-{n}", parse_type("decimal(10,2)")) for n in range(50)))
    definition = TableDefinition(path=path, columns=more)
    evolve.ensure(tables, definition, rewrite=True)
    assert before is not None
    assert tables.version(path) == before + 1
    assert tables.columns(path) == more
    evolve.ensure(tables, definition, rewrite=True)
    assert tables.version(path) == before + 1
