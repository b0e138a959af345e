"""SIGKILL after each step of a batch, then a rerun: the tables of an undisturbed run (design, rule 4)."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from airflow_gddl.contract.result import JobResult
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.places import Way, table_of
from tests.oracle import replay
from tests.spark.children import Ended, killed_at
from tests.spark.crash_tables import BEFORE, BROKEN, RUNS, TYPES, spec_of
from tests.spark.table_lines import TableLines, by_engine, by_oracle, differences, everything

# All steps are killed when the first test asks for them.
pytestmark = pytest.mark.timeout(1500)

STEPS = ("plan", "quarantine", "append", "decide", "tombstones", "replica", "history", "commit", "committed")
WAYS = {"merged": Way(merged=True), "small": Way(), "large": Way(in_tasks=True, large=True)}
STEPS_OF = {"merged": STEPS[1:-1], "small": ("plan", "replica", "committed"), "large": STEPS}
"""Small batches have the code of one task, which `tests/tables` breaks off at each step; MERGE has no own plan."""
PLACES = [(step, way) for way in WAYS for step in STEPS_OF[way]]
UNDISTURBED = spec_of("undisturbed")


@dataclass(frozen=True)
class Played:
    """By table.

    Attributes:
        ended: how the child ended in which each table stood after its step.
        between: the tables after the crash, before the rerun.
    """

    ended: Ended
    between: Mapping[str, TableLines]
    rerun: Mapping[str, JobResult]
    held: Mapping[str, TableLines]


@pytest.fixture(scope="module")
def played(spark: LocalPort, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A table for each step and way, killed there in its second run; then one job reruns them all, in this process.

    The runs before are not what is tested: the engine without Spark makes them, but for the undisturbed table's.
    """
    lake = Lake(tmp_path_factory.mktemp("crash"))
    broken = {table(step, way): step for step, way in PLACES}
    killed = [spec_of(name.removeprefix("crash.")) for name in broken]
    specs = [UNDISTURBED, *killed]
    for spec in specs:
        lake.land(spec, BEFORE, TYPES)
    first = lake.results(spark, lake.job([UNDISTURBED], run_id="before"))
    first |= lake.results(LocalPort("one"), lake.job(killed, run_id="before"))
    assert {result.status for result in first.values()} == {"succeeded"}, first
    for spec in specs:
        lake.land(spec, BROKEN, TYPES)
    job = spark.tiered(lake.job(killed, run_id="dies"))
    ended = killed_at(job, broken)
    between = {s.table: everything(lake.layout(s)) for s in killed}
    rerun = lake.results(spark.everywhere(), lake.job(specs, run_id="rerun"))
    return Played(ended, between, rerun, {s.table: everything(lake.layout(s)) for s in specs} | {
        "by_engine": by_engine(lake.layout(UNDISTURBED))})  # fmt: skip


def table(step: str, way: str) -> str:
    """One that is written in this way."""
    return table_of(WAYS[way], spec_of(f"after_{step}").table)


def test_uninterrupted_run_is_correct(played: Played) -> None:
    wanted = by_oracle(replay(UNDISTURBED, RUNS), UNDISTURBED)
    assert differences(wanted, played.held["by_engine"]) == []
    assert {name: len(lines) > 0 for name, lines in played.held[UNDISTURBED.table].items()} == dict.fromkeys(
        ("replica", "changes", "history", "tombstones", "errors"), True
    )


def test_child_is_killed_at_the_step(played: Played) -> None:
    assert played.ended.status == -signal.SIGKILL, played.ended
    assert played.ended.out == ""


@pytest.mark.parametrize(("step", "way"), PLACES)
def test_immediate_rerun_resumes(step: str, way: str, played: Played) -> None:
    result = played.rerun[table(step, way)]
    wanted = ("skipped", 0) if step == "committed" else ("succeeded", 1)
    assert (result.status, result.batches) == wanted, result.error


@pytest.mark.parametrize(("step", "way"), PLACES)
def test_tables_equal_those_of_an_uninterrupted_run(step: str, way: str, played: Played) -> None:
    assert differences(played.held[UNDISTURBED.table], played.held[table(step, way)]) == []


@pytest.mark.parametrize(("step", "way"), [place for place in PLACES if not place[0].startswith("commit")])
def test_reported_step_is_durable(step: str, way: str, played: Played) -> None:
    """So that the steps above are the steps that they are called."""
    final, between = played.held[UNDISTURBED.table], played.between[table(step, way)]
    done = sum(one != "decide" for one in STEPS[: STEPS.index(step) + 1]) - 1  # which writes nothing
    written = ("errors", "changes", "tombstones", "replica", "history")[:done]
    assert {name for name in final if between[name] == final[name]} == set(written)
