"""`gddl simulate` and the course of `gddl demo`; the job is a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.init import DemoFolder
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.metadata.loading import load
from airflow_gddl.tools.simulate import simulation
from tests.harness.s3_server import Bucket, serving

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("fake_job.py")
DEMO_TABLES = ["nyc.airlines", "nyc.airports", "nyc.flights", "nyc.planes", "nyc.weather"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    rows = "\n".join(f"{n},name {n},{n * 10}" for n in range(40))
    (folder / "people.csv").write_text(f"id,name,points\n{rows}\n")
    (folder / "pets.csv").write_text("name,owner\nRex,1\nRex,2\n")
    return folder


def cli(tmp_path: Path, **job: Any) -> CliContext:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path / "java"), "FAKE_JOB": json.dumps(job)}
    return CliContext(
        environ={**environ, "GDDL_LAKE": str(tmp_path / "production")},
        now=lambda: datetime(2024, 1, 2, 12, tzinfo=UTC),
        new_id=lambda: "aa",
        job_command=(sys.executable, str(FAKE)),
    )


def test_a_bucket_gets_the_same_bytes(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, local = Bucket(), tmp_path / "landing"
    with serving(bucket) as url:
        settings = {"ENDPOINT_URL": url, "REGION": "eu-west-1", "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}
        for name, value in settings.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        more = ["--schema", "src", "--rounds", "2", "--repeated", "1", "--table", "people"]
        for landing in (str(local), "s3://bucket/landing"):
            assert invoke(["simulate", str(source), "--landing", landing, *more], cli(tmp_path)) == 0
        assert invoke(["simulate", str(source), "--landing", "s3://bucket/landing", *more], cli(tmp_path)) == 2
    assert "SIMULATE_INVALID" in capsys.readouterr().err
    landed = {f"landing/{path.relative_to(local)}": path.read_bytes() for path in local.rglob("*") if path.is_file()}
    assert len(landed) > 2
    assert bucket.objects == landed


def test_a_simulation_writes_files_and_the_truth(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landing, truth = tmp_path / "landing", tmp_path / "truth"
    arguments = ["simulate", str(source), "--landing", str(landing), "--schema", "src", "--rounds", "2", "--json"]
    arguments += ["--changes", "10", "--repeated", "1", "--table", "people", "--table", "pets=name,owner"]
    arguments += ["--truth", str(truth)]
    assert invoke(arguments, cli(tmp_path)) == 0
    shown = {record["table"]: record for record in map(json.loads, capsys.readouterr().out.splitlines())}
    assert shown.keys() == {"people", "pets"}
    changes = shown["people"]["changes"]
    assert sum(changes.values()) == 20
    assert shown["people"]["expected_redelivered"] > 0
    assert shown["people"]["rounds"] == 2
    files = [path.name for path in (landing / "src" / "people").iterdir()]
    assert len(files) == shown["people"]["load_files"] + shown["people"]["change_files"]
    right = pq.read_table(truth / "people.parquet")
    assert right.num_rows == shown["people"]["truth_rows"] == 40 + changes["I"] - changes["D"]
    assert (right.schema.names, shown["pets"]["keys"]) == (["id", "name", "points"], ["name", "owner"])


def test_the_last_change_is_just_before_now(source: Path, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    assert invoke(["simulate", str(source), "--landing", str(landing), "--table", "people"], cli(tmp_path)) == 0
    changes = sorted((landing / "source" / "people").glob("2*.parquet"))
    assert len(changes) >= 3
    last = pq.read_table(changes[-1])["dms_timestamp"].to_pylist()[-1]
    now = cli(tmp_path).now()
    assert now - timedelta(minutes=1) < last <= now


@pytest.mark.parametrize(
    ("extra", "code", "shown"),
    [
        (["--table", "people=nothing"], "SIMULATE_INVALID", "nothing"),
        (["--table", "nobody"], "SIMULATE_INVALID", "nobody"),
    ],
)
def test_refused_arguments_write_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], code: str, shown: str
) -> None:
    assert invoke(["simulate", str(source), "--landing", str(tmp_path / "landing"), *extra], cli(tmp_path)) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err.startswith(f"[{code}]")
    assert shown in answer.err
    assert not (tmp_path / "landing").exists()


def test_a_truth_inside_landing_is_refused_before_files_are_written(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landing = tmp_path / "landing"
    arguments = ["--landing", str(landing), "--truth", str(landing / "truth")]
    assert invoke(["simulate", str(source), *arguments], cli(tmp_path)) == 2
    assert "[SIMULATE_INVALID] truth folder" in capsys.readouterr().err
    assert not landing.exists()


NAME_REMEDY = "schema and name are ASCII letters, digits, _ $ # @ - or inner blanks, 1 to 128 each, one dot between"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--schema", "a/b", "--table", "pets=name"],
            f"[SIMULATE_INVALID] no table can be called 'a/b.pets'. Remedy: {NAME_REMEDY}",
        ),
    ],
)
def test_a_refusal_says_what_to_write(
    source: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    landing = tmp_path / "landing"
    assert invoke(["simulate", str(source), "--landing", str(landing), *arguments], cli(tmp_path)) == 2
    assert (" ".join(capsys.readouterr().err.split()), landing.exists()) == (message, False)


def test_the_samples_of_the_repository_are_those_of_the_demo(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path / "demo")
    folder.begin()
    folder.write_project()
    here, there = load(ROOT / "metadata", {}), load(folder.metadata, {})
    assert (here.problems, there.problems) == ((), ())
    assert here.tables == there.tables
    assert [table.table for table in here.tables] == DEMO_TABLES
    assert (here.tiers, here.runner) == (there.tiers, there.runner)
    assert (here.roots.landing, here.roots.lake) == (str(ROOT / "demo" / "landing"), str(ROOT / "demo" / "lake"))
    assert (there.roots.landing, there.roots.lake) == (str(folder.landing), str(folder.lake))


def test_the_demo_spares_what_it_did_not_make(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path / "demo")
    folder.begin()
    (folder.landing / "old").mkdir(parents=True)
    folder.begin()
    assert not folder.landing.exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "landing").mkdir()
    with pytest.raises(MetadataError) as caught:
        DemoFolder(tmp_path / "mine").begin()
    assert caught.value.code == "FOLDER_TAKEN"
    assert (tmp_path / "mine" / "landing").is_dir()


def run_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], **job: Any) -> tuple[int, str, str]:
    arguments = ["demo", "--dir", str(tmp_path / "demo"), "--scale", "0.001", "--rounds", "1"]
    status = invoke(arguments, cli(tmp_path, **job))
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_the_demo_stops_at_a_failed_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = {table: {} for table in DEMO_TABLES[1:]}
    status, out, err = run_demo(tmp_path, capsys, results=results, log=["the reason"], exit=1)
    assert status == 1
    assert "the reason" in err
    assert "JOB_DIED" in err
    assert "round 1" not in out
    assert not (tmp_path / "production").exists(), "GDDL_LAKE must not lead it elsewhere"
    assert (tmp_path / "demo" / "lake" / "_gddl" / "logs" / "jobs" / "20240102T120000-aa.log").exists()


def test_the_demo_does_not_praise_a_replica_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    details = {"verdict": "equal", "rows": 1, "expected_rows": 1}
    results = {table: {"changes_written": 1000, "details": details} for table in DEMO_TABLES}
    status, out, _ = run_demo(tmp_path, capsys, results=results)
    assert status == 1
    last = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith("nyc.")}
    assert last.keys() == set(DEMO_TABLES)
    for words in last.values():
        assert words[2:4] == ["1", "2,000"]
        assert words[-1] == "different"


@pytest.mark.parametrize("state", ["failed", "skipped"])
def test_a_replica_that_was_not_compared_is_not_called_different(state: Any) -> None:
    """A demonstration that was stopped while it verified said so of all."""
    verified = JobResult(table="nyc.planes", status=state, action="verify", run_id="r")
    ending = simulation.Ending(verified=verified, runs=(), truth_rows=3)
    assert not ending.is_right
    assert str(getattr(ending.line()[-1], "text", ending.line()[-1])) == state


@pytest.mark.parametrize("on_path", [True, False])
def test_the_demo_ends_with_commands_that_can_be_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, on_path: bool
) -> None:
    """By the name of the program or, where it is not on PATH, by its path from the working directory."""
    results = {table: {"changes_written": 1000, "details": {"verdict": "equal", "rows": 1}} for table in DEMO_TABLES}
    own = cli(tmp_path, results=results)
    (tmp_path / "env").mkdir()
    for name in ("gddl", "python"):
        (tmp_path / "env" / name).write_text("#!/bin/sh\n")
        (tmp_path / "env" / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path / "env") if on_path else "/nowhere")
    monkeypatch.setattr(simulation.Ending, "is_right", True)
    status = invoke(["demo", "--scale", "0.001", "--rounds", "1"], own)
    out, err = capsys.readouterr()
    assert status == 0, err
    shown = out.partition("Every replica equals its source. You have now, in demo:\n")[2].splitlines()
    paths = [line.split()[0] for line in shown[: shown.index("Try next:")]]
    assert {path.partition("/")[0] for path in paths} == {"lake", "metadata"}
    assert (tmp_path / "demo" / paths[-1]).is_file()
    folder = "" if on_path else "env/"
    *commands, python = [line.strip() for line in shown[shown.index("Try next:") + 1 :]]
    assert commands == [f"{folder}gddl {command} --metadata demo/metadata" for command in ("status", "errors list")]
    assert python.startswith(f"{folder}python -c 'from deltalake import DeltaTable; ")
    assert 'DeltaTable("demo/lake/nyc/airlines")' in python


def test_equal_specs_write_equal_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from airflow_gddl.tools.simulate.simulator import simulate\n"
        "from airflow_gddl.tools.simulate.spec import *\n"
        "from tests.unit.test_simulate_truth import TABLES, SHAPES\n"
        "trouble = Troubles(late=0.3, repeated=0.5, out_of_order=True, ties=2, unknown_op=1)\n"
        "simulate(SimulateSpec(input=TABLES, landing=Path(sys.argv[1]), schema='s', tables=SHAPES, changes=0.5,\n"
        "    troubles=trouble))\n"
    )
    found = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed)], check=True, env=env)
        written = (path for path in (tmp_path / seed).rglob("*") if path.is_file())
        found.append({path.relative_to(tmp_path / seed): path.read_bytes() for path in written})
    assert found[0] == found[1]
    assert len(found[0]) > 20
