"""Descriptions of rows as comments of Delta tables, on each engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.rooms.catalogs.registrar import read_info
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of


def test_comments_follow_the_metadata_row(spark: LocalPort, tmp_path: Path) -> None:
    def run(spec: TableSpec) -> tuple[str, dict[str, str]]:
        result = lake.results(spark, lake.job([spec]))[spec.table]
        assert result.status == "succeeded", result.error
        info = read_info(Storage(), lake.layout(spec).replica)
        assert info is not None
        return info.comment, {column.name: column.comment for column in info.columns if column.comment}

    lake, files = Lake(tmp_path), Lake(tmp_path)
    spec = spec_of(settle="0s", description="All 'orders'", column_descriptions={"ID": 'it\'s the "key"\nof \\ all'})
    files.load(spec)
    assert run(spec) == ("All 'orders'", {"id": 'it\'s the "key"\nof \\ all'})
    changed = replace(spec, description=None, column_descriptions={"v": "the value"})
    files.change(changed, 1, [("U", 0, "new")])
    assert run(changed) == ("All 'orders'", {"id": 'it\'s the "key"\nof \\ all', "v": "the value"})
