"""What is built is what runs: the wheel, unpacked alone, outside the working tree."""

from __future__ import annotations

import email
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import airflow_gddl

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(site or "")}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # With hatchling at hand nothing has to be fetched to build.
    at_hand = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", *at_hand, "-w", str(folder), str(ROOT), cwd=folder)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("airflow_gddl-*.whl"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    installed = run(*command, cwd=folder)
    assert installed.returncode == 0, installed.stderr
    return folder


def test_the_wheel_holds_both_sides_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {
        str(path.relative_to(ROOT))
        for package in ("airflow_gddl", "spark_jobs")
        for path in (ROOT / package).rglob("*.py")
    }
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "airflow_gddl" / "tools" / "page" / "static").iterdir()}
    assert source | page <= names
    assert any(name.endswith("page.js") for name in page)
    tops = {name.split("/")[0] for name in names}
    assert tops == {"airflow_gddl", "spark_jobs", f"airflow_gddl-{airflow_gddl.__version__}.dist-info"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_metadata_tells_strangers_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    said = email.message_from_bytes(archive.read(name))
    assert tuple(map(int, str(said["Metadata-Version"]).split("."))) >= (2, 4)
    assert (said["License-Expression"], said["Author"]) == ("Apache-2.0", "The airflow-gddl maintainers")
    assert {url.partition(",")[0] for url in said.get_all("Project-URL", [])} >= {"Homepage", "Documentation", "Issues"}
    assert "Programming Language :: Python :: 3.13" in said.get_all("Classifier", [])
    assert {"airflow_gddl/py.typed", "spark_jobs/py.typed"} <= set(archive.namelist())


def test_the_command_runs_from_the_wheel(site: Path, tmp_path: Path) -> None:
    where = run(sys.executable, "-c", "import airflow_gddl; print(airflow_gddl.__file__)", cwd=tmp_path, site=site)
    assert where.stdout.strip() == str(site / "airflow_gddl" / "__init__.py")
    version = run(site / "bin" / "gddl", "--version", cwd=tmp_path, site=site)
    assert (version.returncode, version.stdout) == (0, f"gddl {airflow_gddl.__version__}\n"), version.stderr
    checked = run(site / "bin" / "gddl", "validate", "--metadata", str(ROOT / "metadata"), cwd=tmp_path, site=site)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "no problems" in checked.stdout


def test_the_job_runs_from_the_wheel(site: Path, tmp_path: Path) -> None:
    refused = run(site / "bin" / "gddl-job", "--spec", '{"unknown": 1}', cwd=tmp_path, site=site)
    assert refused.returncode == 2, refused.stderr
    assert refused.stdout == ""
    assert "SPEC_INVALID" in refused.stderr
