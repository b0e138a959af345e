"""`gddl init --airflow`, and the command of jobs that an Airflow's configuration names."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gddl import __version__
from airflow_gddl.cli import airflow_home, job_environment
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract import python_command
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.spec import CONTRACT_VERSION
from airflow_gddl.metadata.loading import load

ROOT = Path(__file__).parents[2]
OTHER = ["/opt/jobs/bin/gddl-job"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gddl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line with an Airflow in `tmp_path`."""
    environ = {"AIRFLOW_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(ROOT)}
    real = CliContext(
        environ=environ, now=lambda: datetime(2024, 1, 2, tzinfo=UTC), new_id=lambda: "aa", job_command=()
    )

    def run(*arguments: str, **given: str) -> tuple[int, str, str]:
        environ_now = {**environ, **given}
        cli = replace(real, environ=environ_now, job_command=airflow_home.job_command(environ_now))
        status = invoke(arguments, cli)
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment as `create` makes it, without packages of its own: its program runs this Python."""
    folder = tmp_path / "gddl-jobs"

    def made(*command: str) -> None:
        if "venv" in command:
            program = folder / "bin" / "gddl-job"
            program.parent.mkdir(parents=True)
            program.write_text(f'#!/bin/sh\nexec {shlex.join(python_command.JOB)} "$@"\n')
            program.chmod(0o755)

    monkeypatch.setattr(job_environment, "run_command", made)
    return folder


@pytest.mark.parametrize(
    "written",
    ["", "[core]\nparallelism = 2\n", "[gddl]\n# job_command =\njob_command =\nretries = 3\n\n[core]\nx = 100%\n"],
)
def test_init_sets_up_an_existing_airflow(tmp_path: Path, gddl: Run, jobs: Path, written: str) -> None:
    (tmp_path / "airflow.cfg").write_text(written)
    dags = tmp_path / "dags"
    status, out, err = gddl("init", "--airflow", str(dags))
    assert (status, err) == (0, "")
    assert f"wrote [gddl] job_command to {tmp_path}/airflow.cfg" in out
    assert {path.name for path in dags.iterdir()} >= {"gddl.py", "gddl_upkeep.py", "metadata", ".airflowignore"}
    roots = load(dags / "metadata", {}).roots
    assert (roots.landing, roots.lake) == (str(tmp_path / "landing"), str(tmp_path / "lake"))
    command = airflow_home.job_command({"AIRFLOW_HOME": str(tmp_path)})
    assert command == (str(jobs / "bin" / "gddl-job"),)
    kept = [line for line in written.splitlines() if line and line != "job_command ="]
    assert set(kept) <= set((tmp_path / "airflow.cfg").read_text().splitlines())


def test_a_setting_that_is_there_is_kept_and_the_variable_is_shown(tmp_path: Path, gddl: Run, jobs: Path) -> None:
    (tmp_path / "airflow.cfg").write_text(f"[gddl]\njob_command = {json.dumps(OTHER)}\n")
    _, out, _ = gddl("init", "--airflow", str(tmp_path / "dags"))
    assert f"export {airflow_home.VARIABLE}='[\"{jobs}/bin/gddl-job\"]'" in out
    assert airflow_home.job_command({"AIRFLOW_HOME": str(tmp_path)}) == tuple(OTHER)


def test_check_runs_the_command_of_jobs(tmp_path: Path, gddl: Run, jobs: Path) -> None:
    (tmp_path / "airflow.cfg").write_text("")
    (tmp_path / "landing").mkdir()
    gddl("init", "--airflow", str(tmp_path / "dags"))
    place = str(tmp_path / "dags" / "metadata")
    _, out, _ = gddl("check", "--metadata", place)
    assert f"ok      runner local: {jobs}/bin/gddl-job: airflow-gddl {__version__}, pyspark " in out


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (None, "JOB_NOT_STARTED"),
        ("exit 1", "JOB_NOT_STARTED"),
        ("echo '[PACKAGE_MISSING] a job needs the package pyspark' >&2; exit 2", "PACKAGE_MISSING"),
        (
            f"echo '{json.dumps({'contract_version': CONTRACT_VERSION + 1, 'version': '9', 'packages': ''})}'",
            "CONTRACT_VERSION",
        ),
    ],
)
def test_check_says_what_is_wrong_with_the_command(tmp_path: Path, gddl: Run, script: str | None, code: str) -> None:
    program = tmp_path / "job"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    gddl("init", str(tmp_path / "project"))
    variable = {airflow_home.VARIABLE: json.dumps([str(program)])}
    status, out, _ = gddl("check", "--metadata", str(tmp_path / "project" / "metadata"), "--json", **variable)
    found = {one["subject"]: one["message"] for one in map(json.loads, out.splitlines())}
    assert status == 1
    assert found["runner local"].startswith(f"[{code}]")
    assert str(program) in found["runner local"]


def test_an_unusable_command_is_reported() -> None:
    with pytest.raises(MetadataError, match=r"OPTION_INVALID.*not a JSON list.*job_command"):
        airflow_home.job_command({airflow_home.VARIABLE: "rm -rf"})


def test_without_a_setting_jobs_run_in_this_python(tmp_path: Path) -> None:
    assert airflow_home.job_command({"AIRFLOW_HOME": str(tmp_path)}) == python_command.JOB
    assert python_command.JOB[0] == sys.executable


def test_an_environment_that_cannot_be_made_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FatalError, match=r"ENVIRONMENT_FAILED.*no wheel"):
        job_environment.run_command(sys.executable, "-c", "import sys; sys.exit('no wheel')")


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("given", "says"),
    [({}, True), ({"AIRFLOW__GDDL__PAUSED_UPON_CREATION": "False"}, False),
     ({"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False"}, False),
     ({"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False", "AIRFLOW__GDDL__PAUSED_UPON_CREATION": "True"}, True)],
)  # fmt: skip
def test_init_says_that_new_dags_start_paused(given: dict[str, str], says: bool, tmp_path: Path, gddl: Run) -> None:
    _, out, _ = gddl("init", "--airflow", str(tmp_path / "dags"), **given)
    assert ("airflow dags unpause --treat-dag-id-as-regex -y '^gddl[._]'" in out) is says
    assert ("paused_upon_creation = False" in out) is says
    matching = re.compile("^gddl[._]")
    assert all(matching.match(dag_id) for dag_id in ("gddl_pack.shop.small.1", "gddl.shop.big", "gddl_maintenance"))
