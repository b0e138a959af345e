"""Arguments of spark-submit, and what is refused before anything starts; jobs on a cluster are in `tests/cluster`."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError, MetadataError, RetriableError
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.metadata.settings import SettingsError
from airflow_gddl.runners.descriptor import RunnerSettings, make_runner
from airflow_gddl.runners.spark_submit import SparkSubmitRunner, SparkSubmitSettings, arguments, size_of
from airflow_gddl.tools.bundle import write_code
from tests.commands.test_runner_local import FAKE, Heard, errors, fake_java
from tests.unit.metadata_folder import SETTINGS, loaded

SMALL = TierSpec(cores=2, memory="4g", workers=3, task_memory="1g")
LARGE = TierSpec(tasks="many", cores=4, memory="2g", workers=5)


def spec_of(lake: Path, **tables: str) -> JobSpec:
    rows = tuple(TableSpec(table=f"s.{name}", keys=("id",), size=size) for name, size in tables.items())
    roots = Roots(landing=str(lake.parent / "landing"), lake=str(lake))
    return JobSpec(run_id="20240101T000000-aa", roots=roots, tables=rows, tiers={"small": SMALL, "large": LARGE})


def reported(arguments: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options, and Spark's settings."""
    pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
    conf = dict(value.split("=", 1) for name, value in pairs if name == "--conf")
    return {name: value for name, value in pairs if name != "--conf"}, conf


def test_standalone_cluster_gets_cores(tmp_path: Path) -> None:
    settings = SparkSubmitSettings(master="spark://h:7077", conf={"spark.x": True, "spark.y": 5})
    options, conf = reported(arguments(spec_of(tmp_path, a="small"), settings, ["/code.zip"]))
    assert options == {
        "--master": "spark://h:7077",
        "--deploy-mode": "client",
        "--name": "gddl-20240101T000000-aa",
        "--driver-memory": "2g",
        "--executor-cores": "2",
        "--executor-memory": "4g",
        "--py-files": "/code.zip",
    }
    given = {"spark.x": "true", "spark.y": "5"}
    assert conf == {"spark.ui.showConsoleProgress": "false", "spark.cores.max": "6", **given, **NO_SUBSTITUTION}


@pytest.mark.parametrize("master", ["yarn", "k8s://https://h:6443"])
def test_other_clusters_get_executors_and_memory_overhead(tmp_path: Path, master: str) -> None:
    settings = SparkSubmitSettings(
        master=master,
        driver_memory="3g",
        archive="s3://b/e.tar.gz",
        packages=("a:b:1", "c:d:2"),
        jars=("/own.jar",),
        ship_code=False,
    )
    options, conf = reported(arguments(spec_of(tmp_path, a="small", b="large"), settings, []))
    assert (options["--archives"], options["--packages"]) == ("s3://b/e.tar.gz#environment", "a:b:1,c:d:2")
    assert (options["--jars"], "--py-files" in options) == ("/own.jar", False)
    assert (options["--executor-cores"], options["--executor-memory"], options["--driver-memory"]) == ("4", "4g", "3g")
    assert (conf["spark.executor.instances"], conf["spark.executor.memoryOverhead"]) == ("5", "2048m")
    assert "spark.cores.max" not in conf


def test_a_job_is_as_large_as_the_largest_tier_of_its_own_tables(tmp_path: Path) -> None:
    assert size_of(spec_of(tmp_path, a="small")).workers == 3
    large = size_of(spec_of(tmp_path, a="large"))
    assert (large.workers, large.memory, large.overhead) == (5, "2g", None)


def test_user_settings_take_precedence(tmp_path: Path) -> None:
    settings = SparkSubmitSettings(master="spark://h:7077", conf={"spark.cores.max": 1})
    assert reported(arguments(spec_of(tmp_path, a="small"), settings, []))[1]["spark.cores.max"] == "1"


@pytest.mark.parametrize(
    ("own", "field", "message", "remedy"),
    [
        ({}, "master", "must be given", "add runners: {spark_submit: {master: ...}}"),
        ({"master": "local[2]"}, "master", "not a cluster", "spark://host:7077"),
        ({"mastr": "yarn", "master": "yarn"}, "mastr", "no such field", "did you mean master?"),
        ({"master": "yarn", "driver_memory": "4"}, "driver_memory", "amount of memory", "4g"),
        ({"master": "yarn", "start_timeout": "soon"}, "start_timeout", "duration", "30m"),
        ({"master": "yarn", "delta": "none"}, "delta", "must be", "'ship' or 'provided'"),
        ({"master": "yarn", "conf": {"spark.master": "x"}}, "conf.spark.master", "itself", "set `master`"),
        ({"master": "yarn", "conf": {"x": "y"}}, "conf.x", "not the name", "write e.g. spark."),
        ({"master": "yarn", "conf": {"spark.x": [1]}}, "conf.spark.x", "must be text", "one value"),
    ],
)
def test_wrong_settings_are_named_when_the_metadata_is_read(
    tmp_path: Path, own: dict[str, Any], field: str, message: str, remedy: str
) -> None:
    text = SETTINGS + f"runner: spark_submit\nrunners:\n  spark_submit: {json.dumps(own)}\n"
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, {"gddl.yaml": text})
    (problem,) = caught.value.problems
    assert (problem.field, problem.file) == (f"runners.spark_submit.{field}", "gddl.yaml")
    assert message in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize("name", ["spark.hadoop.fs.s3a.secret.key", "spark.authenticate.secret", "spark.x.password"])
def test_secrets_are_refused_and_not_shown(tmp_path: Path, name: str) -> None:
    text = SETTINGS + f"runners:\n  spark_submit: {{master: yarn, conf: {{{name}: hunter22}}}}\n"
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, {"gddl.yaml": text})
    assert [problem.code for problem in caught.value.problems] == ["SECRET_LIKE"]
    assert "hunter22" not in str(caught.value)


@pytest.fixture
def master() -> Any:
    """A port that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"spark://127.0.0.1:{server.getsockname()[1]}"


def runner_of(folder: Path, settings: dict[str, Any], orders: dict[str, Any]) -> SparkSubmitRunner:
    home = fake_java(folder / "java", 'openjdk version "17.0.15"')
    environ = {**os.environ, "JAVA_HOME": str(home), "FAKE_JOB": json.dumps(orders), "PYTHONPATH": "/mine"}
    made = make_runner(
        "spark_submit", RunnerSettings(command=(sys.executable, str(FAKE)), environ=environ, declared=settings)
    )
    assert isinstance(made, SparkSubmitRunner)
    return made


def test_wrong_settings_are_refused_as_those_of_platforms() -> None:
    """As where a task names this runner, and `gddl.yaml` another."""
    with pytest.raises(MetadataError, match=r"RUNNER_SETTINGS_INVALID.*'master' .gddl\.yaml, runners\.spark_submit"):
        make_runner("spark_submit", RunnerSettings(command=("job",), environ={}))


def test_the_job_gets_all_arguments_and_its_log_is_linked(tmp_path: Path, master: str) -> None:
    orders = {"results": {"s.a": {}}, "dump": str(tmp_path / "dump.json")}
    runner = runner_of(tmp_path, {"master": master, "archive": "/e.tar.gz"}, orders)
    outcome = runner.run(spec_of(tmp_path / "lake", a="small"), Heard())
    log = str(tmp_path / "lake" / "_gddl" / "logs" / "s.a" / "20240101T000000-aa.log")
    assert (errors(outcome), outcome.log) == ({"s.a": None}, log)
    environ = json.loads((tmp_path / "dump.json").read_text())["environ"]
    assert (environ["GDDL_SPARK_MASTER"], environ["GDDL_SPARK_DELTA"]) == (master, "ship")
    assert environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    submitted = shlex.split(environ["PYSPARK_SUBMIT_ARGS"])
    assert submitted[-1] == "pyspark-shell"
    code = Path(reported(submitted[:-1])[0]["--py-files"])
    assert code.suffix == ".zip"
    assert not code.exists(), "it goes with the job"


def test_a_job_that_refuses_its_order_is_quoted_with_its_code(tmp_path: Path, master: str) -> None:
    said = "[CONTRACT_VERSION] the spec has contract version 2, this job 1. Remedy: install the same on both sides"
    runner = runner_of(tmp_path, {"master": master}, {"log": ["a warning", said], "exit": 2})
    outcome = runner.run(spec_of(tmp_path / "lake", a="small", b="small"), Heard())
    assert [(r.error.code, r.error.message) for r in outcome.results if r.error] == [("CONTRACT_VERSION", said)] * 2


def test_another_spark_brings_its_python(tmp_path: Path, master: str) -> None:
    home = tmp_path / "spark"
    for name in ("bin/spark-submit", "python/lib/py4j-0.10.9-src.zip"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    orders = {"results": {"s.a": {}}, "dump": str(tmp_path / "dump.json")}
    runner = runner_of(tmp_path, {"master": master, "spark_home": str(home)}, orders)
    assert errors(runner.run(spec_of(tmp_path / "lake", a="small"), Heard())) == {"s.a": None}
    environ = json.loads((tmp_path / "dump.json").read_text())["environ"]
    assert environ["SPARK_HOME"] == str(home)
    assert environ["PYTHONPATH"] == f"{home}/python:{home}/python/lib/py4j-0.10.9-src.zip:/mine"
    with pytest.raises(FatalError) as caught:
        replace(runner, settings=replace(runner.settings, spark_home=str(tmp_path))).run(
            spec_of(tmp_path / "lake", a="small"), Heard()
        )
    assert caught.value.code == "SPARK_HOME_INVALID"


def test_an_unreachable_master_is_a_retriable_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    runner = runner_of(tmp_path, {"master": f"spark://127.0.0.1:{port},127.0.0.1:{port}"}, {"results": {"s.a": {}}})
    with pytest.raises(RetriableError) as caught:
        runner.run(spec_of(tmp_path / "lake", a="small"), Heard())
    assert caught.value.code == "MASTER_UNREACHABLE"
    assert not (tmp_path / "lake").exists()


def test_the_code_that_is_sent_holds_what_a_task_imports(tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(write_code(tmp_path / "a.zip")).namelist())
    assert {
        "airflow_gddl/__init__.py",
        "airflow_gddl/contract/spec.py",
        "airflow_gddl/stores/s3.py",
        "spark_jobs/job/spread_spark.py",
    } <= names
    assert not any(name.startswith(("airflow_gddl/cli", "airflow_gddl/runners")) for name in names)
    assert (tmp_path / "a.zip").read_bytes() == write_code(tmp_path / "b.zip").read_bytes()
