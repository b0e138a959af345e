"""The job as a process: what it prints, and what it says when there is no Java."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from airflow_gddl.contract.spec import JobSpec
from tests.harness.lake import Lake, on_spark
from tests.oracle import Run
from tests.spark.children import job_child
from tests.spark.crash_tables import BEFORE, TYPES, spec_of

SPECS = (spec_of("quiet"), spec_of("silent"))
JVM = "WARNING: Using incubator modules: jdk.incubator.vector"
"""Said by the JVM itself, before any setting of ours counts: Spark's launcher asks for the module."""
LAUNCHER = "JAVA_HOME is not set"
"""Said by the launcher, a shell script."""


def landed(root: Path) -> JobSpec:
    lake = Lake(root)
    for spec, run in zip(SPECS, (BEFORE, Run(BEFORE.files[:1])), strict=True):
        lake.land(spec, run, TYPES)
    return on_spark(lake.job(SPECS))


def test_stdout_has_results_and_stderr_names_the_application(tmp_path: Path) -> None:
    with job_child(landed(tmp_path)) as child:
        ended = child.end()
    assert ended.status == 0, ended
    results = [json.loads(line) for line in ended.out.splitlines()]
    assert {result["table"]: result["status"] for result in results} == {s.table: "succeeded" for s in SPECS}
    (said,) = (line for line in ended.err.splitlines() if line != JVM)
    assert said.startswith("GDDL-APPLICATION local-")


def test_without_java_each_table_fails_with_a_message(tmp_path: Path) -> None:
    with job_child(landed(tmp_path), env=_without_java(tmp_path / "bin")) as child:
        ended = child.end()
    assert ended.status == 2, ended
    results = [json.loads(line) for line in ended.out.splitlines()]
    assert [result["error"]["code"] for result in results] == ["JAVA_MISSING"] * len(SPECS)
    assert all("JAVA_HOME" in result["error"]["message"] for result in results)
    own = [line for line in ended.err.splitlines() if line != LAUNCHER]
    assert ["JAVA_MISSING" in line for line in own] == [True] * len(SPECS), ended.err


def test_a_java_that_ends_at_its_start_is_not_called_missing(tmp_path: Path) -> None:
    """As where the tier asks for more memory than the machine has."""
    job = landed(tmp_path)
    tiers = {name: replace(tier, memory="900000g") for name, tier in job.tiers.items()}
    with job_child(replace(job, tiers=tiers)) as child:
        ended = child.end()
    errors = [json.loads(line)["error"] for line in ended.out.splitlines()]
    assert [error["code"] for error in errors] == ["CLUSTER_UNUSABLE"] * len(SPECS)
    assert all("900000g" in error["message"] and "JAVA_HOME" not in error["message"] for error in errors)


def _without_java(folder: Path) -> Mapping[str, str]:
    """The environment with all programs of the path but Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if not program.name.startswith("java") and not link.exists():
                link.symlink_to(program)
    return {**{n: v for n, v in os.environ.items() if n != "JAVA_HOME"}, "PATH": str(folder)}
