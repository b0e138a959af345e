"""Random histories of tables with change data feeds and partitions: tables and feeds are as the oracle says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Maintain, Rebuild
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.examples import examples, rich
from tests.harness.lake import Lake
from tests.harness.strategies import Case, Traits, cases, dense
from tests.spark.change_feeds import FEED, differing_versions
from tests.spark.playing import Stage, named, play, verify

SORTS = {
    "whole": (Traits(bad_rows=True), {}),
    "partial": (Traits(partial=True, renames=True, ties=False), {"cluster_by": ("v",)}),
    "keyless": (Traits(keyless=True), {}),
    "soft": (Traits(deletes=("soft",)), {}),
    "partitioned": (Traits(composite=True, renames=True), {"partition_by": ("n",)}),
    "partitioned by a key": (Traits(variants=False), {"partition_by": ("ID",)}),
}
ON_SPARK = ("whole", "partitioned")


def fed(case: Case, fields: dict[str, tuple[str, ...]]) -> Case:
    return replace(case, spec=replace(case.spec, table_properties=FEED, **fields))


@pytest.mark.deep_on_many
@pytest.mark.parametrize("count", [5, pytest.param(15, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", SORTS)
def test_tables_and_change_feeds_match_the_oracle(sort: str, count: int, spark: LocalPort, tmp_path: Path) -> None:
    """After loads, changes, reloads, a rebuild and maintenance.

    `deltalake`, which reads the feeds here, can't read one of Spark's with a null partition.
    """
    if spark.name == "many" and (sort not in ON_SPARK or count == 5):
        pytest.skip("minutes on this engine")
    traits, fields = SORTS[sort]
    drawn_cases = rich(cases(dense(traits)), examples(count if spark.name == "one" else 2))
    stage = Stage(spark, Lake(tmp_path), named([fed(case, fields) for case in drawn_cases]))
    play(stage)
    for options in (JobOptions(action=Rebuild()), JobOptions(action=Maintain())):
        job = stage.lake.job([case.spec for case in stage.cases], options)
        stage.blame_failures(str(options), stage.lake.results(stage.port, job))
    verify(stage)
    versions = 0
    for case in stage.cases:
        path = stage.lake.layout(case.spec).replica
        versions += DeltaTable(path).version()
        if spark.name == "one" or not case.spec.partition_by:
            stage.blame(case, "in the change data feed", differing_versions(path, net=spark.name == "many"))
        assert DeltaTable(path).metadata().partition_columns == [c.lower() for c in case.spec.partition_by]
    assert not stage.wrong, "\n" + stage.report()
    assert versions > 2 * len(stage.cases), "hardly anything happened"
