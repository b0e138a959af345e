"""Clean environments, made as the guides say: a cluster's without Airflow runs a job, one without Spark parses DAGs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from airflow_gddl.bundle.environment import Target, here
from airflow_gddl.bundle.platforms import Bundle
from airflow_gddl.contract.codec import to_json
from tests.delta_rs.small_lake import SmallLake, spec_of

DAGS = 1000
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


def test_a_job_runs_in_the_packed_environment(tmp_path: Path) -> None:
    made = Bundle(out=tmp_path / "dist", target=Target(python=here())).write("spark")
    (archive,) = [path for path in made if path.name == "environment.tar.gz"]
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "somewhere", filter="fully_trusted")  # noqa: S202 - of our own making
    python = tmp_path / "somewhere" / "bin" / "python"
    assert run(python, "-c", LACKS, "airflow", "pyspark", "delta", "pydantic", cwd=tmp_path).split() == []
    lake = SmallLake(tmp_path)
    lake.load(spec_of("a"))
    lake.change(spec_of("a"), 1, [("U", 0, "first"), ("D", 1, None)])
    order = to_json(lake.job([spec_of("a")]))
    said = run(python, tmp_path / "dist" / "gddl_job.py", "--spec", order, cwd=tmp_path)
    assert json.loads(said)["rows_read"] == 5
    assert lake.replica(spec_of("a")) == {0: "first", 2: "load 2"}


@pytest.mark.timeout(1800)
def test_airflow_without_spark_parses_a_thousand_dags(tmp_path: Path) -> None:
    """Installed from MWAA's files, with the versions that the tests run with in the place of Airflow's constraints."""
    pytest.importorskip("airflow")
    Bundle(out=tmp_path / "dist").write("mwaa")
    plugins = tmp_path / "plugins"
    zipfile.ZipFile(tmp_path / "dist" / "plugins.zip").extractall(plugins)  # noqa: S202 - as above
    versions = {dist.name: dist.version for dist in importlib.metadata.distributions() if dist.name != "airflow-gddl"}
    (tmp_path / "constraints.txt").write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    _, wheel = (tmp_path / "dist" / "requirements.txt").read_text().splitlines()
    lines = [f"--constraint {tmp_path}/constraints.txt", wheel.replace("/usr/local/airflow/plugins", str(plugins))]
    (tmp_path / "requirements.txt").write_text("\n".join([*lines, "apache-airflow", ""]))
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(python, *pip, "-r", tmp_path / "requirements.txt", cwd=tmp_path)
    assert run(python, "-c", LACKS, "pyspark", "delta", "pyarrow", "deltalake", cwd=tmp_path).split() == []

    dags = tmp_path / "dist" / "dags"
    (dags / "metadata" / "tables").mkdir(parents=True)
    (dags / "metadata" / "gddl.yaml").write_text("landing: /landing\nlake: /lake\n")
    rows = [{"table": f"s.t{n}", "keys": ["id"], "size": "large"} for n in range(DAGS)]
    (dags / "metadata" / "tables" / "s.json").write_text(json.dumps({"source": "s", "tables": rows}))
    said = run(
        python, "-W", "ignore", "-c", PARSE, dags, cwd=tmp_path,
        AIRFLOW_HOME=str(tmp_path / "home"), AIRFLOW__CORE__LOAD_EXAMPLES="False",
    )  # fmt: skip
    found = json.loads(said.splitlines()[-1])
    print(found)
    assert (found["dags"], found["errors"]) == (DAGS, {})
