"""Where tables are worked on: in Spark's tasks, or in the process of a job without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.result import WITHOUT_SPARK
from airflow_gddl.contract.spec import DEFAULT_TIERS, Continuous, JobOptions, JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime
from spark_jobs.job.spread_spark import SparkSpread
from tests.conftest import SPARK, LocalPort
from tests.harness.background_job import BackgroundJob
from tests.harness.lake import Lake, spec_of
from tests.spark.children import job_child

pytestmark = pytest.mark.core

SPECS = [spec_of("a", trigger="1s"), spec_of("b", trigger="1s"), spec_of("alone", size="medium", trigger="1s")]
ALONE = LocalPort("one")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path, DEFAULT_TIERS["small"])
    for spec in SPECS:
        lake.load(spec)
    return lake


def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment without Java, in which a first import of pyspark is seen."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "pyspark.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nraise ImportError('pyspark')\n")
    return {n: v for n, v in os.environ.items() if n not in ("JAVA_HOME", "PATH")} | {"PYTHONPATH": str(site)}


def played(job: JobSpec, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Exit status, results by table, and standard error of `gddl-job`."""
    with job_child(job, env=env) as child:
        ended = child.end()
    results = [json.loads(line) for line in ended.out.splitlines()]
    return ended.status, {result["table"]: result for result in results}, ended.err


def test_tables_are_worked_on_by_spark(lake: Lake) -> None:
    status, results, said = played(lake.job(SPECS))
    assert (status, {result["status"] for result in results.values()}) == (0, {"succeeded"}), said
    application = said.partition("GDDL-APPLICATION ")[2].split()[0]
    assert {result["place"] for result in results.values()} == {f"Spark {application}"}
    (record,) = Path(lake.layout(SPECS[0]).runs).glob("*.json")
    assert json.loads(record.read_text())["place"] == f"Spark {application}"
    assert list(Path(lake.roots.lake, "_gddl").glob("jobs/*")) == []


def test_tables_without_work_start_no_spark(lake: Lake, tmp_path: Path) -> None:
    lake.results(ALONE, lake.job(SPECS, run_id="before"))
    status, results, said = played(lake.job(SPECS), without_java(tmp_path))
    assert (status, {result["status"] for result in results.values()}) == (0, {"skipped"}), said
    assert {result.get("place") for result in results.values()} == {""}
    assert not (tmp_path / "imported").exists(), "pyspark was imported"


def test_without_java_nothing_is_written_and_the_error_names_both_ways_out(lake: Lake, tmp_path: Path) -> None:
    nowhere = {**os.environ, "JAVA_HOME": "/nowhere"}
    status, results, said = played(lake.job(SPECS), nowhere)
    errors = {(result["error"]["code"], result["error"]["message"]) for result in results.values()}
    assert (status, len(results), {code for code, _ in errors}) == (2, 3, {"JAVA_MISSING"}), said
    ((_, message),) = errors
    assert "JRE 17 or newer" in message
    assert "set GDDL_WITHOUT_SPARK=1" in message
    assert not Path(lake.roots.lake).exists() or list(Path(lake.roots.lake).rglob("*.json")) == []
    status, results, _ = played(lake.job(SPECS), {**nowhere, "GDDL_WITHOUT_SPARK": "1"})
    assert (status, {result["place"] for result in results.values()}) == (0, {WITHOUT_SPARK})


def test_a_continuous_job_works_on_tables_by_spark(lake: Lake) -> None:
    runtime = Runtime(storage=Storage(), spark=SPARK, spread=SparkSpread(SPARK, Storage()))
    with BackgroundJob(lake.job(SPECS, JobOptions(continuous=Continuous())), runtime) as job:
        job.until(lambda: all(job.results_of(spec.table) for spec in SPECS))
        for spec in SPECS:
            lake.change(spec, 1, [("U", 1, "new"), ("D", 2, None)])
        job.until(lambda: all(lake.replica(spec) == {0: "load 0", 1: "new"} for spec in SPECS))
    done = [result for result in job.results if result.status == "succeeded"]
    assert {result.table for result in done if result.place == SPARK.place} == {spec.table for spec in SPECS}


def test_the_command_uses_spark_and_says_once_that_java_is_missing(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "metadata" / "tables").mkdir(parents=True)
    (tmp_path / "metadata" / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    (tmp_path / "metadata" / "tables" / "s.yaml").write_text(
        "tables:\n- {table: s.a, keys: [id], sequence_by: [seq]}\n- {table: s.b, keys: [id], sequence_by: [seq]}\n"
    )

    def gddl(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "airflow_gddl.cli.main", *arguments, "--metadata", str(tmp_path / "metadata")]
        return subprocess.run(
            command, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=600
        )

    refused = gddl("run", JAVA_HOME="/nowhere")
    assert (refused.returncode, refused.stderr.count("[JAVA_MISSING]")) == (2, 1), refused
    told = [json.loads(line) for line in gddl("run", "--json", JAVA_HOME="/nowhere").stdout.splitlines()]
    assert {one["mode"] for one in told if "mode" in one} == {"initial"}, told
    assert not Path(lake.layout(SPECS[0]).replica).exists()
    loaded = gddl("run")
    assert loaded.returncode == 0, loaded
    assert "worked on by Spark local-" in loaded.stdout
    places = [json.loads(line)["place"] for line in gddl("status", "--json").stdout.splitlines()]
    assert len(places) == 2
    assert all(place.startswith("Spark local-") for place in places)
