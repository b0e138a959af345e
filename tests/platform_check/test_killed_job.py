"""The action `die`: a job that kills itself, in a check's lake alone, and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Die, Run
from airflow_gddl.contract.layout import is_of_check
from airflow_gddl.contract.spec import JobOptions, JobSpec
from airflow_gddl.platform_check import job_checks
from airflow_gddl.platform_check.checks import CHECKS
from airflow_gddl.platform_check.job_checks import JobChecks
from tests.platform_check.ground import Ground, outcomes
from tests.platform_check.platforms import on_glue

TASKS = ["", pytest.param("one", marks=pytest.mark.deep), pytest.param("many", marks=pytest.mark.deep)]
"""Of tiers, on Spark; empty: without Spark."""


@pytest.fixture
def made(ground: Ground, tasks: str) -> Iterator[JobChecks]:
    tier = {"tasks": tasks or "one"}
    settings = {"runner": "local", "tiers": {"small": tier, "medium": tier}}
    environ = {**ground.environ, "GDDL_WITHOUT_SPARK": "" if tasks else "1"}
    checks = JobChecks(replace(ground, settings=settings, environ=environ).context())
    checks._land(0)
    yield checks
    assert checks.close() == []


def dying(made: JobChecks, lake: str = "lake") -> JobSpec:
    return made.job(JobOptions(action=Die()), lake=lake)


def codes(made: JobChecks, spec: JobSpec) -> set[str]:
    return {result.error.code if result.error else "" for result in made.outcome_of(spec).results}


@pytest.mark.parametrize("tasks", TASKS)
def test_a_job_that_dies_leaves_a_batch_that_the_next_one_finishes(made: JobChecks) -> None:
    assert codes(made, dying(made)) <= {"JOB_DIED", "WORKER_DIED"}
    lake = Path(made.context.place.roots().lake)
    begun = {path.parent.name for path in lake.glob("nyc/*__changes/_delta_log")}
    assert begun, "changes were appended"
    assert made.resume()
    assert made.rows()


@pytest.mark.parametrize("tasks", TASKS)
def test_a_job_of_another_lake_does_not_die(made: JobChecks, ground: Ground) -> None:
    spec = dying(made)
    mine = ground.root / "mine"
    assert codes(made, replace(spec, roots=replace(spec.roots, lake=str(mine)))) == {"SPEC_INVALID"}
    assert not list(mine.glob("nyc/*"))


@pytest.mark.parametrize(
    ("lake", "expected"),
    [
        ("s3://b/lake/_gddl_check/2024-x/lake-killed", True),
        ("/data/lake/_gddl_check/a/lake/", True),
        ("s3://b/lake", False),
        ("s3://b/lake/_gddl_check", False),
        ("s3://b/lake/_gddl_check/a", False),
        ("s3://b/lake/_gddl_check/a/b/c", False),
        ("s3://b/lake/_gddl_check/../lake", False),
        ("s3://b/lake/_gddl_check/a/..", False),
        ("s3://b/lake/_gddl_check/a/.", False),
        ("s3://b/lake/_gddl_check//lake", False),
        ("s3://b/lake/my_gddl_check/a/lake", False),
        ("", False),
    ],
)
def test_lakes_of_checks_are_known_by_their_place(lake: str, expected: bool) -> None:
    assert is_of_check(lake) == expected


def test_each_lake_of_a_check_is_one(ground: Ground) -> None:
    place = ground.context().place
    for name in ("lake", job_checks.KILLED, f"{job_checks.CATALOG}-my_glue"):
        assert is_of_check(place.roots(name).lake)


def test_a_run_elsewhere_that_did_not_die_is_found(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_checks, "Die", Run)
    with on_glue(ground, holds_jobs=False) as made:
        found = outcomes(made, "job.killed")["job.killed"]
    assert (found.state, found.code) == ("FAIL", CHECKS["job.killed"].code)
    assert found.finding == "a job that was killed ended with no error"


def test_a_run_elsewhere_that_fails_otherwise_is_found(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """As jobs of an older version do, which refuse the specification."""

    monkeypatch.setattr("airflow_gddl.runners.remote.to_document", lambda *_: "{}")
    with on_glue(ground, holds_jobs=False) as made:
        found = outcomes(made, "job.killed")["job.killed"]
    assert found.state == "FAIL"
    assert "the job ended before it loaded anything: " in found.finding
