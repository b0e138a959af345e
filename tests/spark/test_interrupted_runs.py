"""Runs of random histories broken off after random steps, then rerun: the tables that the oracle says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.spec import JobOptions, TieBreak
from tests.conftest import LocalPort
from tests.harness.examples import drawn, examples
from tests.harness.lake import Lake
from tests.harness.strategies import Case, Traits, cases, dense
from tests.spark.breaking import Break, Breaker
from tests.spark.playing import Stage, named, verify
from tests.spark.table_lines import by_engine, differences

STEPS = ("plan", "quarantine", "append", "decide", "tombstones", "replica", "history", "commit", "committed")
REFRESH_STEPS = ("plan", "staged", "append", "tombstones", "replica", "history", "quarantine", "commit", "committed")
# Runs that are really killed, at each step, are in test_crash.py; these break off many more, in this process.
pytestmark = pytest.mark.deep
TRAITS = dense(Traits(renames=True, bad_rows=True, partial=True))


@dataclass(frozen=True)
class BrokenCase:
    """A case and where each of its runs breaks off."""

    case: Case
    breaks: tuple[Break, ...]


@st.composite
def broken_cases(draw: st.DrawFn, tie_break: TieBreak) -> BrokenCase:
    case = draw(cases(replace(TRAITS, tie_breaks=(tie_break,))))
    points = st.builds(Break, st.sampled_from(STEPS), st.sampled_from([1, 1, 2]))
    return BrokenCase(case, tuple(draw(points) for _ in case.runs))


@pytest.mark.parametrize("tie_break", ["delete_wins", "last_arrival"])
def test_interrupted_run_resumes(tie_break: TieBreak, spark: LocalPort, tmp_path: Path) -> None:
    found = drawn(broken_cases(tie_break), examples(3))
    stage = Stage(spark, Lake(tmp_path), named([each.case for each in found]))
    breaks = {case.spec.table: each.breaks for case, each in zip(stage.cases, found, strict=True)}
    broken = sum(_round(stage, number, {t: b[number] for t, b in breaks.items() if number < len(b)})
                 for number in range(max(map(len, breaks.values()))))  # fmt: skip
    verify(stage)
    assert not stage.wrong, "\n" + stage.report()
    assert broken >= len(found), "hardly any run was broken off"


def _round(stage: Stage, number: int, breaks: dict[str, Break]) -> int:
    """A round broken off and gone on with at once; how many tables broke off."""
    active = stage.land(number)
    breaker = Breaker(breaks)
    job = stage.lake.job([case.spec for case in active], run_id=f"run-{number}")
    results = stage.lake.results(stage.port, job, breaker)
    failed = {table for table, result in results.items() if result.status == "failed"}
    assert failed == breaker.done, {t: results[t].error for t in failed ^ breaker.done}
    again = stage.lake.results(stage.port, replace(job, run_id=f"again-{number}"))
    stage.blame_failures(f"in the rerun of run {number}, broken off {breaks}", again)
    for case in active:
        if case.spec.table not in stage.wrong:
            stage.judge(case, number, None)
    return len(failed)


def test_interrupted_refresh_resumes(spark: LocalPort, tmp_path: Path) -> None:
    """After each of its steps, each on a history of its own."""
    histories = drawn(cases(replace(TRAITS, reloads=False, ties=False, copies=False)), len(REFRESH_STEPS))
    stage = Stage(spark, Lake(tmp_path), named([replace(c, runs=c.runs[:2]) for c in histories]))
    for number in range(2):
        _round(stage, number, {})
    before = {case.spec.table: by_engine(stage.lake.layout(case.spec)) for case in stage.cases}
    breaker = Breaker(dict(zip(before, map(Break, REFRESH_STEPS), strict=True)))
    job = stage.lake.job([case.spec for case in stage.cases], JobOptions(action=Rebuild()), "refresh")
    results = stage.lake.results(stage.port, job, breaker)
    assert {t for t, r in results.items() if r.status == "failed"} == breaker.done
    assert len(breaker.done) > len(REFRESH_STEPS) // 2, "hardly any refresh was broken off"
    again = stage.lake.results(stage.port, replace(job, options=JobOptions(), run_id="again"))
    stage.blame_failures("in the rerun of the refresh", again)
    for case in stage.cases:
        after = by_engine(stage.lake.layout(case.spec))
        stage.blame(case, f"after a refresh broken off {breaker.breaks[case.spec.table]}",
                    differences(before[case.spec.table], after))  # fmt: skip
    assert not stage.wrong, "\n" + stage.report()
