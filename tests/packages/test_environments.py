"""Clean environments, made as the guides say: a cluster's without Airflow runs a job, one without Spark parses DAGs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.layout import result_name, results_folder, spec_path
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import CONTRACT_VERSION
from airflow_gddl.runners.descriptor import DELTALAKE
from airflow_gddl.runners.emr_serverless.job_files import JOB_FILES as EMR_SERVERLESS
from airflow_gddl.runners.emr_serverless.platform import PYTHON
from airflow_gddl.tools.bundle import SPARK, Bundle, Target, here
from tests.harness.lake import Lake, spec_of

pytestmark = pytest.mark.deep

DAGS = 1000
PLATFORMS = (SPARK, EMR_SERVERLESS)
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
LACKS = "import importlib.util, sys; print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n)])"
PARSE = """
import json, sys, time
from airflow.dag_processing.dagbag import DagBag
began = time.monotonic()
bag = DagBag(sys.argv[1])
print(json.dumps({"dags": len(bag.dags), "errors": bag.import_errors, "seconds": time.monotonic() - began}))
"""


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    """Standard output of a command that knows nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, env={**kept, **environ}, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What clusters and EMR Serverless are given; the environment is the same for both."""
    out = tmp_path_factory.mktemp("dist")
    for platform in PLATFORMS:
        target = Target(python=here()) if platform is EMR_SERVERLESS else None
        Bundle(out=out, target=target).write(platform)
    return out


def landed(root: Path) -> Lake:
    lake = Lake(root)
    lake.load(spec_of("a"))
    lake.change(spec_of("a"), 1, [("U", 0, "first"), ("D", 1, None)])
    return lake


def answer(lake: Lake) -> JobResult:
    """What the job has put into the lake."""
    found = results_folder(lake.roots.lake, "run")
    return from_json(JobResult, Path(found, result_name("s.a")).read_text())


@pytest.mark.parametrize("script", ["gddl_job.py", "gddl_task.py"])
def test_a_job_runs_in_the_packed_environment(dist: Path, tmp_path: Path, script: str) -> None:
    """As EMR Serverless and clusters start it: the archive unpacked as `environment`, the order read from the lake."""
    with tarfile.open(dist / "environment.tar.gz") as packed:
        packed.extractall(tmp_path / "environment", filter="fully_trusted")  # noqa: S202 - of our own making
    lake = landed(tmp_path)
    order = Path(spec_path(lake.roots.lake, "run"))
    order.parent.mkdir(parents=True)
    order.write_text(to_json(lake.job([spec_of("a")])))
    python = PYTHON  # relative, as Spark is told
    assert run(python, "-c", LACKS, "airflow", "pyspark", "delta", "pydantic", cwd=tmp_path).split() == []
    said = run(python, dist / script, "--spec", order, "--results", cwd=tmp_path)
    assert json.loads(said)["rows_read"] == 5
    assert (answer(lake).status, lake.replica(spec_of("a"))) == ("succeeded", {0: "first", 2: "load 2"})


def test_a_job_runs_from_the_wheel_and_what_databricks_installs_beside_it(dist: Path, tmp_path: Path) -> None:
    """The runtime brings pyarrow and numpy. What the entry point names is called: editable installs may be older."""
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    binaries = tmp_path / "venv" / "bin"
    beside = [DELTALAKE, "pyarrow>=18", "numpy"]
    run(binaries / "python", *PIP, wheel, *beside, cwd=tmp_path)
    lake = landed(tmp_path)
    order = to_json(lake.job([spec_of("a")]))
    run(
        binaries / "python",
        "-c",
        "from spark_jobs.main import task; task()",
        "--spec",
        order,
        "--results",
        cwd=tmp_path,
    )
    assert (answer(lake).rows_read, lake.replica(spec_of("a"))) == (5, {0: "first", 2: "load 2"})


def test_a_wheel_of_another_contract_rejects_its_spec_before_any_write(dist: Path, tmp_path: Path) -> None:
    """The wheel on the platform was left as it was when Airflow's package was renewed."""
    with zipfile.ZipFile(dist / "gddl-job-code.zip") as code:
        code.extractall(tmp_path / "code")  # noqa: S202 - as above
    lake = landed(tmp_path)
    order = to_json(replace(lake.job([spec_of("a")]), contract_version=CONTRACT_VERSION + 1))
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", order, "--results"]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "code")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "[CONTRACT_VERSION]" in done.stderr
    assert "same airflow-gddl on both sides" in done.stderr
    assert not (tmp_path / "lake").exists()
