"""`docs/tasks/upgrade.md`, played in its order: jobs first, then Airflow's side, and back again.

The environment of jobs is made as `gddl init --airflow` makes it, but fetches nothing: it has the packages of this
Python beside an airflow-gddl of its own. Saved jobs of Databricks and Glue are those of `tests/remote/test_deploy.py`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import airflow_gddl
from airflow_gddl.cli import airflow_home
from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.spec import CONTRACT_VERSION
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.tools import bundle
from tests.harness.landing import write
from tests.unit.pages import ROOT, page

PAGE = page("tasks/upgrade.md")
HERE = airflow_gddl.__version__
LATER = "99.0.0"
LINES = {cells[1].strip(): cells[2].strip() for cells in (line.split("|") for line in PAGE.splitlines() if "|" in line)}
JOBS = "environment of local jobs (`gddl-jobs`)"


def codes_of(text: str, begin: str) -> list[str]:
    """Commands of the page that begin so."""
    return [code for code in re.findall(r"`([^`]+)`", text) if code.startswith(begin)]


def test_jobs_come_before_airflow() -> None:
    order = list(LINES)
    sides = [order.index(name) for name in (JOBS, "Databricks", "Glue", "EMR Serverless", "`spark_submit`")]
    assert max(sides) < order.index("Airflow's environment") < order.index("MWAA")


def test_extras_of_the_page_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(re.findall(r"airflow-gddl\[(\w+)\]", PAGE))
    assert named == {"airflow", "spark"}
    assert named <= set(extras)


@pytest.mark.parametrize("command", sorted(set(codes_of(PAGE, "gddl bundle"))))
def test_bundles_of_the_page_are_made(command: str, tmp_path: Path) -> None:
    """Libraries are not fetched, which the page says of no command."""
    runners = [name for name in RUNNERS.names() if RUNNERS.get(name).remote and RUNNERS.get(name).bundle]
    for runner in runners if "RUNNER" in command else [""]:
        words = [*shlex.split(command.replace("RUNNER", runner))[1:], "--no-environment"]
        if "--out" not in words:
            words += ["--out", "dist"]
        words[words.index("--out") + 1] = str(tmp_path)
        assert invoke(words, real()) == 0, words
        assert list(tmp_path.glob(f"airflow_gddl-{HERE}-py3-none-any.whl"))


def wheel_of(folder: Path, version: str = HERE, contract: int = CONTRACT_VERSION) -> Path:
    """The wheel of this tree, as another version of the package or of the contract."""
    folder.mkdir(parents=True, exist_ok=True)
    made = bundle.build_wheel(folder)
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    made.unlink()
    places = {
        "airflow_gddl/__init__.py": (f'__version__ = "{HERE}"', f'__version__ = "{version}"'),
        "airflow_gddl/contract/basics.py": (f"CONTRACT_VERSION = {CONTRACT_VERSION}", f"CONTRACT_VERSION = {contract}"),
        f"airflow_gddl-{HERE}.dist-info/METADATA": (f"\nVersion: {HERE}\n", f"\nVersion: {version}\n"),
    }
    for name, (before, after) in places.items():
        assert before.encode() in files[name], name
        files[name] = files[name].replace(before.encode(), after.encode())
    files = {name.replace(f"-{HERE}.dist-info", f"-{version}.dist-info"): data for name, data in files.items()}
    record = f"airflow_gddl-{version}.dist-info/RECORD"
    lines = "".join(f"{name},,\n" for name in [*files, record])
    wheel = folder / f"airflow_gddl-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in {**files, record: lines.encode()}.items():
            archive.writestr(name, data)
    return wheel


@dataclass(frozen=True)
class Site:
    """A project whose jobs have an environment of their own, `gddl-jobs`, and an Airflow of this Python."""

    folder: Path
    environ: Mapping[str, str]

    def gddl(self, *words: str, status: int = 0) -> list[dict[str, Any]]:
        """Lines of `--json` of the command on Airflow's side."""
        return [json.loads(line) for line in self.said(*words, status=status).splitlines() if line.startswith("{")]

    def said(self, *words: str, status: int = 0) -> str:
        """Both streams of the same."""
        command = [sys.executable, "-m", "airflow_gddl.cli.main", *words, "--metadata", str(self.folder / "metadata")]
        done = subprocess.run(
            [*command, "--json"], env=self.environ, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def install(self, wheel: Path) -> None:
        """The page's command for `gddl-jobs`, with this wheel; nothing is fetched."""
        (command,) = codes_of(LINES[JOBS], "gddl-jobs/")
        program, *words = shlex.split(command)
        words[words.index("airflow-gddl[spark]==VERSION")] = f"airflow-gddl[spark] @ {wheel.as_uri()}"
        words += ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
        subprocess.run([self.folder / program, *words], check=True, cwd=self.folder, timeout=300)

    def checked(self, status: int = 0) -> str:
        """What `gddl check` says of the command of jobs."""
        found = {line["subject"]: line["message"] for line in self.gddl("check", status=status)}
        return str(found["runner local"])

    def run(self, number: int) -> list[tuple[int, str]]:
        """A change lands and is loaded; rows of the replica."""
        changes = pa.table({"Op": ["U"], "seq": [number], "id": [1], "v": [f"change {number}"]})
        write(self.folder / "landing/shop/orders", f"20240101-00000000{number}.parquet", changes)
        (result,) = self.gddl("run")
        assert result["status"] == "succeeded", result
        return self.rows()

    def rows(self) -> list[tuple[int, str]]:
        table = pa.table(DeltaTable(self.folder / "lake/shop/orders").scan())
        return sorted((row["id"], row["v"]) for row in table.to_pylist())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "metadata/tables").mkdir(parents=True)
    settings = "landing: ../landing\nlake: ../lake\n"
    (tmp_path / "metadata/gddl.yaml").write_text(settings)
    (tmp_path / "metadata/tables/shop.yaml").write_text(
        "tables: [{table: shop.orders, keys: [id], sequence_by: [seq]}]\n"
    )
    write(tmp_path / "landing/shop/orders", "LOAD00000001.parquet", pa.table({"id": [1, 2], "v": ["a", "b"]}))
    venv.create(tmp_path / "gddl-jobs", with_pip=True)
    (packages,) = (tmp_path / "gddl-jobs/lib").glob("python*/site-packages")
    (packages / "packages_of_this_python.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    monkeypatch.setenv(airflow_home.VARIABLE, json.dumps([str(tmp_path / "gddl-jobs/bin/gddl-job")]))
    return Site(tmp_path, {name: value for name, value in os.environ.items() if name != "PYTHONPATH"})


def test_jobs_first_then_airflow_and_back(site: Site, tmp_path: Path) -> None:
    """Airflow's side is of this version all the time: jobs are newer, equal, and newer again before they go back."""
    site.install(wheel_of(tmp_path / "now"))
    assert f"gddl-job: airflow-gddl {HERE}, pyspark " in site.checked()
    assert site.run(1) == [(1, "change 1"), (2, "b")]
    site.install(wheel_of(tmp_path / "later", LATER))
    assert f"gddl-job: airflow-gddl {LATER}, pyspark " in site.checked()
    assert site.run(2) == [(1, "change 2"), (2, "b")]
    site.install(wheel_of(tmp_path / "now"))
    assert f"gddl-job: airflow-gddl {HERE}, pyspark " in site.checked()
    assert site.run(3) == [(1, "change 3"), (2, "b")]
    (verified,) = site.gddl("verify")
    assert verified["details"]["verdict"] == "equal"


def test_another_contract_writes_nothing(site: Site, tmp_path: Path) -> None:
    """Whoever didn't read the release notes; both sides of one version then go on."""
    site.install(wheel_of(tmp_path / "now"))
    before = site.run(1)
    site.install(wheel_of(tmp_path / "later", LATER, CONTRACT_VERSION + 1))
    said = site.checked(status=1)
    assert said.startswith("[CONTRACT_VERSION]")
    assert f"(airflow-gddl {LATER}), this Python {CONTRACT_VERSION} (airflow-gddl {HERE})" in said
    files = {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")}
    assert "CONTRACT_VERSION" in site.said("rebuild", "--table", "shop.orders", status=2)
    assert {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")} == files
    assert site.rows() == before
    site.install(wheel_of(tmp_path / "now"))
    assert site.run(2) == [(1, "change 2"), (2, "b")]
