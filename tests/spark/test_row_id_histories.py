"""Row ids of random histories: a row keeps its id while it is changed, moved between files, and compacted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Maintain
from airflow_gddl.contract.spec import JobOptions
from spark_jobs.job.job_tables import run_job
from spark_jobs.rules.history import IDENTITY
from tests.conftest import LocalPort
from tests.harness.examples import drawn, examples
from tests.harness.lake import TIER, Lake
from tests.harness.strategies import Case, Traits, cases, dense
from tests.spark.change_feeds import FEED, differing_versions
from tests.spark.playing import Stage, named
from tests.spark.row_ids import wrong_row_ids

SORTS = {
    "whole": (Traits(), {}),
    "truncated": (Traits(truncates=True), {}),
    "partial": (Traits(partial=True, renames=True), {"cluster_by": ("v",)}),
    "rescued": (Traits(rescues=True, variants=True), {}),
    "keyless": (Traits(keyless=True, copies=False), {}),
    "iceberg": (Traits(truncates=True), {"iceberg": 3, "history": True}),
    "partitioned": (Traits(composite=True, renames=True), {"partition_by": ("n",)}),
}
FED = ("partial", "partitioned")


def with_row_ids(case: Case, sort: str, *, begun: bool) -> Case:
    properties = {**(FEED if sort in FED else {}), **({"delta.enableRowTracking": "true"} if begun else {})}
    return replace(case, spec=replace(case.spec, table_properties=properties, **SORTS[sort][1]))


def maintain(stage: Stage, active: Sequence[Case]) -> None:
    """Compact all tables, as if a day had gone by."""
    job = stage.lake.job([case.spec for case in active], JobOptions(action=Maintain()), "maintain")
    runtime = replace(stage.port.runtime, clock=lambda: datetime.now(UTC) + timedelta(days=1))
    results = {o.result.table: o.result for o in run_job(stage.port.tiered(job), runtime, lambda _: None)}
    stage.blame_failures("in maintenance", results)


@pytest.mark.deep_on_many
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_rows_keep_their_ids(sort: str, vectors: bool, spark: LocalPort, tmp_path: Path) -> None:
    """Half of the tables get row ids with their second run, when they have files without."""
    found = named(drawn(cases(dense(SORTS[sort][0])), examples(8 if spark.name == "one" else 3)))
    stage = Stage(spark, Lake(tmp_path, replace(TIER, deletion_vectors=vectors)), ())
    for number in range(max(len(case.runs) for case in found)):
        stage.cases = [with_row_ids(case, sort, begun=number > at % 2) for at, case in enumerate(found, 1)]
        play_run(stage, number)
    for case in stage.cases:
        path, keys = stage.lake.layout(case.spec).replica, case.spec.keys or ()
        stage.blame(case, "row ids", wrong_row_ids(path, keys)[:5])
        if case.spec.iceberg and case.spec.history:
            versions = wrong_row_ids(stage.lake.layout(case.spec).history, (*keys, *IDENTITY))
            stage.blame(case, "row ids of the history", versions[:5])
        if sort in FED and not vectors and spark.name == "one":
            stage.blame(case, "in the change data feed", differing_versions(path))
    assert not stage.wrong, "\n" + stage.report()


def play_run(stage: Stage, number: int) -> None:
    """A run of each case, judged; after every second one maintenance."""
    active = stage.land(number)
    results = stage.lake.results(stage.port, stage.lake.job([c.spec for c in active], run_id=f"run-{number}"))
    stage.blame_failures(f"in run {number}", results)
    if number % 2:
        maintain(stage, active)
    for case in active:
        if case.spec.table not in stage.wrong:
            stage.judge(case, number, results[case.spec.table])
