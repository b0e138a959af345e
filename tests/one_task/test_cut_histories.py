"""Random histories whose superseded changes are cut after every run: the replica is the oracle's all the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Maintain
from airflow_gddl.contract.spec import JobOptions
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.harness.examples import drawn, examples
from tests.harness.lake import Lake
from tests.harness.strategies import Case, Traits, cases, dense
from tests.oracle import replay
from tests.spark.playing import Stage, named, verify
from tests.spark.table_lines import by_engine, by_oracle, differences

# A change that was cut and is delivered again counts as new (docs/repair.md): no copies, no change of a file again.
SORTS = {
    "whole": Traits(copies=False, variants=False),
    "partial": Traits(copies=False, partial=True, renames=True),
    "keyless": Traits(copies=False, keyless=True),
}


def cutting(case: Case) -> Case:
    """The case with a row that lets maintenance cut all that is superseded, and nothing else."""
    kept = {"history": False, "changes_retention": "1s", "tombstone_retention": "9999d"}
    return replace(case, spec=replace(case.spec, **kept))


def delivers_again(case: Case) -> bool:
    """Whether a change file that is written again has a change that it had before."""
    files = [file for run in case.runs for file in run.files if file.kind == "change"]
    pairs = ((one, other) for at, one in enumerate(files) for other in files[:at] if other.name == one.name)
    return any(row in other.rows for one, other in pairs for row in one.rows)


@pytest.mark.wide
@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", SORTS)
def test_replica_is_independent_of_cut_changes(sort: str, count: int, tmp_path: Path) -> None:
    cases_drawn = drawn(cases(dense(SORTS[sort])), 2 * examples(count))
    found = [cutting(case) for case in cases_drawn if not delivers_again(case)]
    stage = Stage(LocalPort("one"), Lake(tmp_path), named(found))
    cut = 0
    for number in range(max(len(case.runs) for case in stage.cases)):
        active = stage.land(number)
        stage.blame_failures(
            f"in run {number}", stage.lake.results(stage.port, stage.lake.job([c.spec for c in active]))
        )
        cut += maintained(stage)
        for case in active:
            wanted = by_oracle(replay(case.spec, case.runs[: number + 1]), case.spec)["replica"]
            there = by_engine(stage.lake.layout(case.spec))["replica"]
            stage.blame(case, f"after run {number}", differences({"replica": wanted}, {"replica": there}))
    verify(stage)
    assert not stage.wrong, "\n" + stage.report()
    assert cut > 20, "hardly anything was cut"


def maintained(stage: Stage) -> int:
    """Maintain all tables as if years had gone by; how many changes that has cut."""
    runtime = replace(stage.port.runtime, clock=lambda: datetime.now(UTC) + timedelta(days=1000))
    job = stage.lake.job([case.spec for case in stage.cases], JobOptions(action=Maintain()), "maintain")
    results = {o.result.table: o.result for o in run_job(stage.port.tiered(job), runtime, lambda _: None)}
    stage.blame_failures("in maintenance", results)
    return sum(r.details["changes_cut"] for r in results.values() if r.details)
