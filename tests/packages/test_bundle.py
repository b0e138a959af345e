"""`gddl bundle`: the same bytes twice, whole, and fit for what it is for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import airflow_gddl
from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.runners.databricks.job_files import JOB_FILES as DATABRICKS
from airflow_gddl.runners.emr_serverless.job_files import JOB_FILES as EMR_SERVERLESS
from airflow_gddl.runners.glue.job_files import JOB_FILES as GLUE
from airflow_gddl.tools import bundle
from airflow_gddl.tools.bundle import (
    DAGS,
    MWAA,
    PINS,
    SPARK,
    Bundle,
    Extra,
    JobFiles,
    Target,
    write_tar,
)
from tests.harness.lake import Lake, spec_of
from tests.unit.pages import ROOT

WHEEL = f"airflow_gddl-{airflow_gddl.__version__}-py3-none-any.whl"
PLATFORMS: dict[str, tuple[JobFiles, set[str]]] = {
    "mwaa": (MWAA, {"requirements.txt", "plugins.zip", "configuration.json", *(f"dags/{name}" for name in DAGS)}),
    "databricks": (DATABRICKS, {"requirements.txt"}),
    "emr_serverless": (EMR_SERVERLESS, {"gddl_task.py"}),
    "glue": (GLUE, {"gddl_glue.py"}),
    "spark": (SPARK, {"gddl_job.py", "gddl-job-code.zip", "requirements.txt"}),
}


_BUILD = bundle.build_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _BUILD(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(autouse=True)
def _one_wheel(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "build_wheel", lambda folder, _epoch: Path(shutil.copy(wheel, folder)))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_equal_code_gives_equal_bytes(platform: str, tmp_path: Path) -> None:
    job_files, names = PLATFORMS[platform]
    once, twice = (Bundle(out=tmp_path / name).write(job_files) for name in ("once", "twice"))
    assert {path.relative_to(tmp_path / "once").as_posix() for path in once} == {WHEEL, *names}
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in twice]


def test_the_wheel_of_a_tree_is_the_same_each_time(tmp_path: Path) -> None:
    made = [_BUILD(tmp_path / name, 1_700_000_000) for name in ("once", "twice")]
    assert made[0].read_bytes() == made[1].read_bytes()
    assert made[0].name == WHEEL
    assert {entry.date_time for entry in zipfile.ZipFile(made[0]).infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_a_job_runs_from_the_archive_of_the_code(tmp_path: Path) -> None:
    """With this Python's libraries, and nothing of this package but the archive."""
    Bundle(out=tmp_path / "dist").write(SPARK)
    lake = Lake(tmp_path)
    lake.load(spec_of("a"))
    lake.change(spec_of("a"), 1, [("U", 0, "first"), ("D", 1, None)])
    done = subprocess.run(
        [sys.executable, tmp_path / "dist" / "gddl_job.py", "--spec", to_json(lake.job([spec_of("a")]))],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "dist" / "gddl-job-code.zip")},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows_read"] == 5
    assert lake.replica(spec_of("a")) == {0: "first", 2: "load 2"}


def test_what_mwaa_is_given_fits_together(tmp_path: Path) -> None:
    Bundle(out=tmp_path, airflow="3.1.0", airflow_python="3.13").write(MWAA)
    constraint, obstore, sqlglot, wheel = (tmp_path / "requirements.txt").read_text().splitlines()
    assert constraint.startswith('--constraint "https://')
    assert constraint.endswith('/constraints-3.1.0/constraints-3.13.txt"')
    assert obstore == f"obstore<={PINS['obstore']}"
    assert sqlglot == f"sqlglot<={PINS['sqlglot']}"
    assert wheel == f"/usr/local/airflow/plugins/{WHEEL}[cli]"
    assert zipfile.ZipFile(tmp_path / "plugins.zip").namelist() == [WHEEL]
    assert {path.name for path in (ROOT / "dags").glob("*.py")} == {n for n in DAGS if n.endswith(".py")}
    for path in (tmp_path / "dags").glob("*.py"):
        code = [line for line in path.read_text().splitlines() if not line.startswith('"""')]
        own = [line for line in (ROOT / "dags" / path.name).read_text().splitlines() if not line.startswith('"""')]
        assert [line.partition("  #")[0] for line in code] == [line.partition("  #")[0] for line in own]
    assert (tmp_path / "dags" / ".airflowignore").read_text().split() == ["metadata/"]


@pytest.mark.parametrize(
    ("runner", "more", "pins", "extras", "files"),
    [
        (DATABRICKS, (), ["databricks-sdk", "obstore", "sqlglot"], "cli,databricks", {WHEEL, "requirements.txt"}),
        (EMR_SERVERLESS, (), ["obstore", "sqlglot"], "cli,emr-serverless", {WHEEL, "gddl_task.py"}),
        (
            EMR_SERVERLESS,
            ("openlineage", "events", "events"),
            ["obstore", "sqlglot"],
            "cli,emr-serverless,events,openlineage",
            {WHEEL, "gddl_task.py"},
        ),
    ],
)
def test_mwaa_gets_what_its_runner_needs(
    runner: JobFiles, more: tuple[Extra, ...], pins: list[str], extras: str, files: set[str], tmp_path: Path
) -> None:
    Bundle(out=tmp_path, runner=runner, extras=more).write(MWAA)
    _, *pinned, wheel = (tmp_path / "requirements.txt").read_text().splitlines()
    assert pinned == [f"{name}<={({**PINS, **runner.pins})[name]}" for name in pins]
    assert wheel.endswith(f"{WHEEL}[{extras}]")
    assert {path.name for path in (tmp_path / "jobs").iterdir()} == files


def test_clusters_bring_spark_themselves() -> None:
    found = {line.split(">")[0].split("=")[0].split("<")[0] for line in bundle.requirements()}
    assert found == {"deltalake", "numpy", "obstore", "pandas", "psutil", "pyarrow", "pyroaring"}


def test_an_environment_is_a_link_to_the_nodes_python_and_libraries(tmp_path: Path) -> None:
    root = tmp_path / "environment"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to("/usr/bin/python3.11")
    (root / "library.so").write_bytes(b"x")
    (root / "library.so").chmod(0o755)
    made = [write_tar(tmp_path / name, root) for name in ("a.tar.gz", "b.tar.gz")]
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as archive:
        found = {entry.name: (entry.linkname, entry.mode & 0o111 != 0) for entry in archive if not entry.isdir()}
    assert found["bin/python"][0] == "/usr/bin/python3.11"
    assert found["library.so"] == ("", True)


@pytest.mark.parametrize(
    ("more", "environ", "status", "said"),
    [
        ([], {}, 0, WHEEL),
        (["--for", "spark", "--no-environment"], {"SOURCE_DATE_EPOCH": "1700000000"}, 0, "gddl-job-code.zip"),
        (["--for", "spark", "--python", "python3"], {}, 2, "[OPTION_INVALID]"),
        ([], {"SOURCE_DATE_EPOCH": "today"}, 2, "[OPTION_INVALID]"),
        (["--for", "mwaa", "--runner", "databricks"], {}, 0, "jobs"),
        (["--for", "spark", "--runner", "databricks"], {}, 2, "[OPTION_INVALID]"),
        (["--for", "mwaa", "--extra", "openlineage", "--extra", "s3"], {}, 0, "requirements.txt"),
        (["--for", "glue", "--extra", "openlineage"], {}, 2, "[OPTION_INVALID] --extra openlineage without --for mwaa"),
        (["--extra", "openlineage"], {}, 2, "[OPTION_INVALID]"),
        (["--for", "spark", "--offline"], {}, 2, "[OPTION_INVALID] --offline without --for mwaa"),
        (["--for", "mwaa", "--constraints", "c.txt"], {}, 2, "[OPTION_INVALID] --constraints without --offline"),
        (["--for", "mwaa", "--offline", "--constraints", "gone.txt"], {}, 2, "[ENVIRONMENT_FAILED] no constraints"),
        (
            ["--for", "mwaa", "--offline", "--constraints", __file__, "--airflow-python", "3.9"],
            {},
            2,
            "[OPTION_INVALID]",
        ),
    ],
)
def test_the_command_says_what_it_wrote_or_why_not(
    more: list[str], environ: dict[str, str], status: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cli = replace(context.real(), environ=environ)
    assert invoke(["bundle", "--out", str(tmp_path), *more], cli) == status
    out, err = capfd.readouterr()
    assert said in (err if status else out)


def test_an_environment_without_pip_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `uv venv` makes it: no package index would help."""
    monkeypatch.setattr(bundle, "module_command", lambda *_: [sys.executable, "-S", "-m", "pip"])
    with pytest.raises(FatalError, match=r"ENVIRONMENT_FAILED.*No module named pip. Remedy: install pip"):
        bundle._pip(["download"])


@pytest.mark.parametrize("python", ["python3.11", "/usr/bin/python", "/usr/bin/python3", ""])
def test_the_nodes_python_must_tell_its_version(python: str) -> None:
    with pytest.raises(MetadataError) as caught:
        _ = Target(python=python).version
    assert caught.value.code == "OPTION_INVALID"
    assert Target(python="/opt/x/bin/python3.12").version == "3.12"
