"""docs/extending.md's claim: a module and an entry point make a runner, for metadata, plans, checks and jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.extensions import forget_entry_points
from airflow_gddl.metadata.loading import load
from airflow_gddl.metadata.settings import SettingsError
from airflow_gddl.runners.descriptor import RunnerSettings, SubmissionContext, make_runner
from airflow_gddl.runners.remote import TaskKey
from tests.harness.lake import Lake, spec_of
from tests.harness.third_package import installed
from tests.remote.heard import Heard

FOLDER = {"queue": "/queue", "local_roots": True}


@pytest.fixture
def entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with installed(tmp_path / "site", "A runner", monkeypatch) as points:
        yield points


def project(tmp_path: Path, own: str) -> str:
    folder = tmp_path / "metadata"
    (folder / "tables").mkdir(parents=True)
    roots = "\n".join(f"{name}: {tmp_path}/{name}" for name in ("landing", "lake"))
    (folder / "gddl.yaml").write_text(f"{roots}\nrunner: folder\nrunners: {{folder: {own}}}\n")
    (folder / "tables" / "s.yaml").write_text("source: s\ntables: [{table: s.a, keys: [id]}]\n")
    return str(folder)


@pytest.mark.usefixtures("entry_points")
@pytest.mark.parametrize(
    ("own", "codes"),
    [
        ("{queue: /queue, local_roots: true}", []),
        ("{queue: /queue}", ["RUNNER_NEEDS_S3", "RUNNER_NEEDS_S3"]),
        ("{queu: /queue, local_roots: true}", ["FIELD_UNKNOWN", "FIELD_MISSING"]),
        ("{queue: queue, local_roots: true}", ["FIELD_VALUE"]),
        ("{queue: 5, local_roots: true}", ["FIELD_TYPE"]),
    ],
)
def test_metadata_validates_its_settings(own: str, codes: list[str], tmp_path: Path) -> None:
    folder = project(tmp_path, own)
    if not codes:
        assert load(folder, {}).runner == "folder"
        return
    with pytest.raises(SettingsError) as error:
        load(folder, {})
    assert sorted(problem.code for problem in error.value.problems) == sorted(codes)


def test_runner_is_unknown_without_its_package(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such runner") as error:
        load(project(tmp_path, "{queue: /queue}"), {})
    (problem,) = error.value.problems
    assert (problem.code, problem.place) == ("RUNNER_UNKNOWN", "gddl.yaml:3")
    assert "local, databricks, emr_serverless, glue, spark_submit" in problem.remedy
    with pytest.raises(MetadataError, match=r"RUNNER_UNKNOWN.*there are local, databricks"):
        make_runner("folder", RunnerSettings(command=("job",), environ={}))


def test_unloadable_package_is_reported(entry_points: Path, tmp_path: Path) -> None:
    for broken, why in (("our_folder.gone:DESCRIPTOR", "our_folder.gone"), ("our_folder.runner:make", "function")):
        entry_points.write_text(f"[airflow_gddl.runners]\nfolder = {broken}\n")
        forget_entry_points()
        with pytest.raises(SettingsError) as error:
            load(project(tmp_path / why, "{queue: /queue}"), {})
        (problem,) = error.value.problems
        assert problem.code == "RUNNER_BROKEN"
        assert why in problem.message


@pytest.mark.usefixtures("entry_points")
def test_check_lists_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "landing").mkdir()
    folder = project(tmp_path, f"{{queue: {tmp_path}, local_roots: true}}")
    invoke(["check", "--metadata", folder, "--json"], context.real())
    checked = {one["subject"]: one["message"] for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert checked["installed runner folder"] == "from our_folder 1.0"
    assert checked["runner folder"] == "its package and settings are complete"
    assert checked["queue"] == f"0 jobs in {tmp_path}"


@pytest.mark.usefixtures("entry_points")
def test_bundle_knows_which_runners_have_files(capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (("folder", "there are no files for it"), ("moon", "there are local, databricks")):
        assert invoke(["bundle", "--for", name], context.real()) == context.BAD_METADATA
        error = capsys.readouterr().err
        assert "OPTION_INVALID" in error
        assert message in " ".join(error.split())


def serve(queue: Path, ended: threading.Event) -> None:
    """The machine that watches the folder."""
    while not ended.wait(0.05):
        for order in queue.glob("*.json"):
            state = order.with_suffix(".state")
            if not state.exists():
                state.write_text("running")
                spec = json.loads(order.read_text())["spec"]
                job = [sys.executable, "-P", "-m", "spark_jobs.main", "--spec", spec, "--results"]
                done = subprocess.run(job, capture_output=True, check=False)
                state.write_text("succeeded" if done.returncode == 0 else "failed")


@pytest.mark.usefixtures("entry_points")
def test_jobs_run_there(tmp_path: Path) -> None:
    queue, ended = tmp_path / "queue", threading.Event()
    queue.mkdir()
    lake = Lake(tmp_path)
    lake.load(spec_of("a"))
    lake.change(spec_of("a"), 1, [("U", 0, "first"), ("D", 1, None)])
    watcher = threading.Thread(target=serve, args=(queue, ended), daemon=True)
    watcher.start()
    try:
        submission = SubmissionContext(task=TaskKey(pipeline="p", run="r", task="t"), roots=lake.roots)
        own = {"queue": str(queue), "local_roots": True}
        settings = RunnerSettings(command=("job",), environ=os.environ, declared=own, submission=submission)
        outcome = make_runner("folder", settings).run(lake.job([spec_of("a")]), Heard())
    finally:
        ended.set()
        watcher.join()
    assert [result.status for result in outcome.results] == ["succeeded"], outcome
    assert lake.replica(spec_of("a")) == {0: "first", 2: "load 2"}
    assert len(list(queue.glob("*.json"))) == 1
