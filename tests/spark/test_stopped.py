"""SIGTERM to a batch job: tables end before their next step, are answered for, and release their claims."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.result import PROGRESS
from airflow_gddl.contract.spec import JobSpec, TableSpec, TierSpec
from spark_jobs.batch.runtime import Step
from spark_jobs.job.job_tables import run_job
from spark_jobs.ledger.claim import ClaimDocument
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.lake import spec_of as small_spec_of
from tests.oracle import replay
from tests.spark.children import Child, Ended, job_child
from tests.spark.crash_tables import BEFORE, BROKEN, RUNS, TYPES, spec_of
from tests.spark.table_lines import by_engine, by_oracle, differences

STEPS = ("discover", "plan", "read", "quarantine", "append", "decide", "tombstones", "replica", "history", "commit")
WITHOUT_SPARK = LocalPort("one")


def landed(root: Path, specs: Sequence[TableSpec]) -> Lake:
    """Tables with a run behind them, and files for another."""
    lake = Lake(root)
    for spec in specs:
        lake.land(spec, BEFORE, TYPES)
    lake.results(WITHOUT_SPARK, lake.job(specs, run_id="before"))
    for spec in specs:
        lake.land(spec, BROKEN, TYPES)
    return lake


def is_released(lake: Lake, spec: TableSpec) -> bool:
    """Whether the newest claim of the table was released, so that the next run anywhere has it at once."""
    newest = max(Path(lake.layout(spec).state, "claims").glob("*.json"))
    return from_json(ClaimDocument, newest.read_text()).released


def require_right(lake: Lake, specs: Sequence[TableSpec]) -> None:
    """The next run does what is left, and the tables are those of runs that nobody stopped."""
    rerun = lake.results(WITHOUT_SPARK, lake.job(specs, run_id="rerun"))
    assert {result.error for result in rerun.values()} == {None}, rerun
    for spec in specs:
        assert differences(by_oracle(replay(spec, RUNS), spec), by_engine(lake.layout(spec))) == []


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step in ("plan", "append") else pytest.mark.deep) for step in STEPS]
)
def test_table_ends_after_the_step(step: str, engine: LocalPort, tmp_path: Path) -> None:
    spec = spec_of("stopped")
    lake = landed(tmp_path, [spec])
    reported: list[str] = []

    def observe(at: Step) -> None:
        reported.append(at.step)

    def stopped_by() -> str:
        return "SIGTERM" if step in reported else ""

    job = engine.tiered(lake.job([spec], run_id="stopped"))
    (outcome,) = run_job(job, replace(engine.runtime, observe=observe, stopped_by=stopped_by), lambda _: None)
    assert outcome.result.error is not None
    assert (outcome.result.error.code, outcome.retriable, reported[-1]) == ("JOB_CANCELLED", True, step)
    assert is_released(lake, spec)
    require_right(lake, [spec])


def test_committed_batch_is_reported_as_done(engine: LocalPort, tmp_path: Path) -> None:
    spec = spec_of("done")
    lake = landed(tmp_path, [spec])
    reported: list[str] = []
    runtime = replace(
        engine.runtime,
        observe=lambda at: reported.append(at.step),
        stopped_by=lambda: "SIGTERM" if "committed" in reported else "",
    )
    (outcome,) = run_job(engine.tiered(lake.job([spec], run_id="done")), runtime, lambda _: None)
    assert (outcome.result.status, outcome.result.batches, outcome.result.error) == ("succeeded", 1, None)
    require_right(lake, [spec])


def ended(job: JobSpec, step: str, seconds: float = 0.0) -> Ended:
    with Child("tests.spark.stopped_child", [to_json(job), step, str(seconds)]) as child:
        return child.end()


def require_answers(found: Ended, specs: Sequence[TableSpec]) -> dict[str, str]:
    """Each table has one result, which says `done` or the code of its failure."""
    results = [json.loads(line) for line in found.out.splitlines()]
    codes = {result["table"]: (result.get("error") or {"code": "done"})["code"] for result in results}
    assert len(results) == len(specs), found
    assert codes.keys() == {spec.table for spec in specs}
    assert set(codes.values()) <= {"done", "JOB_CANCELLED"}, codes
    assert found.status == (128 + signal.SIGTERM if "JOB_CANCELLED" in codes.values() else 0), found
    return codes


def job_of(lake: Lake, specs: Sequence[TableSpec], tier: TierSpec) -> JobSpec:
    job = lake.job(specs, run_id="stopped")
    return replace(job, tiers=dict.fromkeys(job.tiers, tier))


def test_a_job_without_spark_ends_its_tables_and_no_other_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GDDL_WITHOUT_SPARK", "1")
    specs = [spec_of(name) for name in ("a", "b", "c")]
    lake = landed(tmp_path, specs)
    tier = TierSpec(cores=1, tables_per_job=50)
    codes = require_answers(ended(job_of(lake, specs, tier), "plan"), specs)
    assert sorted(codes.values())[:2] == ["JOB_CANCELLED"] * 2, "it works on one table at a time"
    assert all(is_released(lake, spec) for spec in specs)
    require_right(lake, specs)


@pytest.mark.parametrize(
    ("step", "seconds"),
    [("plan", 0.0), *(pytest.param(step, s, marks=pytest.mark.deep) for step in STEPS for s in (0.0, 0.4))],
)
def test_spark_jobs_are_cancelled_before_claims_are_released(step: str, seconds: float, tmp_path: Path) -> None:
    specs = [spec_of(name) for name in ("a", "b")]
    lake = landed(tmp_path, specs)
    tier = TierSpec(tasks="many", cores=2, memory="1g", tables_per_job=1)
    codes = require_answers(ended(job_of(lake, specs, tier), step, seconds), specs)
    if not seconds:
        assert "JOB_CANCELLED" in codes.values()
    assert all(is_released(lake, spec) for spec in specs)
    require_right(lake, specs)


def test_tasks_end_their_tables_and_no_other_starts(tmp_path: Path) -> None:
    """A table in a task ends before its next step, is answered for, and releases its claim."""
    tier = TierSpec(tasks="one", cores=1, memory="1g", tables_per_job=50)
    lake, specs = Lake(tmp_path, tier), [small_spec_of(name) for name in ("a", "b", "c")]
    for spec in specs:
        lake.load(spec, rows=300_000)
    with job_child(lake.job(specs, run_id="stopped"), "--progress") as child:
        begun = child.wait_for_error(lambda line: json.loads(line.removeprefix(PROGRESS))["step"] == "plan", PROGRESS)
        os.kill(child.pid, signal.SIGTERM)
        codes = require_answers(child.end(), specs)
    assert sorted(codes.values())[:2] == ["JOB_CANCELLED"] * 2, "one task works on one table at a time"
    assert is_released(
        lake, next(spec for spec in specs if spec.table == json.loads(begun.removeprefix(PROGRESS))["table"])
    )
    assert [result.error for result in lake.results(WITHOUT_SPARK, lake.job(specs, run_id="rerun")).values()] == [
        None
    ] * 3
    assert {len(lake.replica(spec)) for spec in specs} == {300_000}
