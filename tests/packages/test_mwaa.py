"""The bundle in environments with the versions of Amazon's own images of MWAA, on the Python that they have.

`mwaa/` holds what those images pin (aws/amazon-mwaa-docker-images, August 2026): `constraints-VERSION.txt` constrains
what users ask for, `essential-VERSION.txt` is what the image itself needs. GDDL_TEST_VENVS names a folder that keeps
the environments for the next time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.runners.databricks.job_files import JOB_FILES as DATABRICKS
from airflow_gddl.tools.bundle import MWAA, PINS, Bundle
from tests.unit.pages import ROOT

VERSIONS = ("3.0.6", "3.2.1", "3.3.1")
EXTRAS = "airflow,cli,databricks,emr-serverless,events,glue,openlineage,s3,source"
"""Of the Airflow side."""
FILES = Path(__file__).with_name("mwaa")
IMAGE_BRINGS = ("apache-airflow-providers-amazon", "apache-airflow-providers-standard")
PACK = "gddl_pack.s.small.1"
SETTINGS = """
landing: s3://bucket/landing
lake: s3://bucket/lake
runner: databricks
runners: {databricks: {databricks_conn_id: dbx, wheel: /Volumes/main/gddl/gddl.whl, node_type: i3.xlarge}}
"""
PARSE = """
import json, sys
from airflow.serialization import serialized_objects as so
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:
    from airflow.models.dagbag import DagBag
bag = DagBag(sys.argv[1])
codec = getattr(so, "DagSerialization", None) or so.SerializedDAG
kept = [dag_id for dag_id, dag in bag.dags.items() if codec.to_dict(dag)]
print(json.dumps({"dags": sorted(kept), "errors": bag.import_errors}))
"""
CONNECT = """
import json
from airflow_gddl.hooks.aws import FromAirflow
access, client = FromAirflow().login("databricks", "dbx"), FromAirflow().aws("prod", "emr-serverless", "eu-west-1")
keys = client._request_signer._credentials
runs = client.meta.service_model.operation_model("StartJobRun").input_shape.members
login, key = access.login["credentials_strategy"](None)(), keys.access_key
print(json.dumps({"host": access.host, "login": login, "key": key, "runs": sorted(runs)}))
"""
CONNECTIONS = {
    "AIRFLOW_CONN_DBX": json.dumps(
        {"conn_type": "databricks", "host": "adb-1.azuredatabricks.net", "password": "s3cr3t-token"}
    ),
    "AIRFLOW_CONN_PROD": json.dumps({"conn_type": "aws", "login": "AKIDEXAMPLE", "password": "s3cr3t-key"}),
}
pytestmark = [pytest.mark.deep, pytest.mark.timeout(3600)]


def python312() -> str:
    """MWAA's Python; a shim with nothing behind it is passed over."""
    found = [*Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.12*/bin/python3.12")]
    for candidate in (shutil.which("python3.12"), *map(str, found)):
        if (
            candidate
            and subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0
        ):
            return candidate
    raise FileNotFoundError("no Python 3.12, which MWAA has: install it, so that `python3.12` is found")


@dataclass(frozen=True)
class Image:
    """An environment as Amazon's image has it."""

    version: str
    root: Path
    home: Path

    @property
    def constraints(self) -> Path:
        return FILES / f"constraints-{self.version}.txt"

    def python(self, *arguments: str | Path, **environ: str) -> str:
        """Standard output of the environment's Python, which knows nothing of this checkout."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        own = {"AIRFLOW_HOME": str(self.home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            [self.root / "bin" / "python", *arguments],
            env={**kept, **own, **environ}, capture_output=True, text=True, check=False, cwd=self.home,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    def pip(self, *arguments: str | Path) -> str:
        return self.python("-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)

    def last_line(self, code: str, *arguments: str | Path, **environ: str) -> Any:
        return json.loads(self.python("-c", code, *arguments, **environ).splitlines()[-1])


@pytest.fixture(scope="module", params=VERSIONS)
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """With every extra of the Airflow side, from the files that `gddl bundle` makes."""
    home = tmp_path_factory.mktemp("mwaa")
    kept = os.environ.get("GDDL_TEST_VENVS")
    made = Image(request.param, (Path(kept) if kept else home) / request.param, home)
    if not (made.root / "bin" / "python").exists():
        subprocess.run([python312(), "-m", "venv", made.root], check=True)
    Bundle(out=home / "dist", airflow=request.param, runner=DATABRICKS, extras=("openlineage",)).write(MWAA)
    plugins = home / "plugins"
    zipfile.ZipFile(home / "dist" / "plugins.zip").extractall(plugins)
    lines = (home / "dist" / "requirements.txt").read_text().splitlines()
    assert lines[0].startswith("--constraint ")
    text = "\n".join([f"--constraint {made.constraints}", *lines[1:], ""])
    text = text.replace("/usr/local/airflow/plugins", str(plugins)).replace(
        "[cli,databricks,openlineage]", f"[{EXTRAS}]"
    )
    assert EXTRAS in text
    (home / "requirements.txt").write_text(text)
    made.pip("install", "-c", made.constraints, f"apache-airflow=={request.param}", *IMAGE_BRINGS)
    made.pip("install", "--force-reinstall", "--no-deps", *plugins.glob("*.whl"))
    made.pip("install", "-r", home / "requirements.txt")
    return made


def test_every_extra_installs_with_pinned_versions(image: Image) -> None:
    image.pip("check")
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.split(",")) <= set(extra)
    allowed = {line.partition("==")[0].lower() for line in image.constraints.read_text().splitlines() if "==" in line}
    listed = json.loads(image.python("-m", "pip", "--disable-pip-version-check", "list", "--format", "json"))
    have = {one["name"].lower().replace("_", "-"): one["version"] for one in listed}
    essential = (FILES / f"essential-{image.version}.txt").read_text()
    assert f"apache-airflow=={image.version}" in essential
    assert have["apache-airflow"] == image.version
    allowed = {name.replace("_", "-") for name in allowed} | {"pip", "setuptools", "airflow-gddl"}
    free = {name for name in have if name not in allowed and not name.startswith("apache-airflow")}
    pins = {**PINS, **DATABRICKS.pins}
    assert free == set(pins) - allowed, "neither Amazon's pins nor the bundle's own say which version it is"
    assert {name: have[name] for name in free} == {name: pins[name] for name in free}
    assert not {"pyspark", "delta-spark", "deltalake"} & set(have)


def test_it_parses_there(image: Image) -> None:
    dags = image.home / "dist" / "dags"
    (dags / "metadata" / "tables").mkdir(parents=True, exist_ok=True)
    (dags / "metadata" / "gddl.yaml").write_text(SETTINGS)
    rows = [{"table": f"s.t{n}", "keys": ["id"], "size": ("small", "large")[n % 2]} for n in range(20)]
    (dags / "metadata" / "tables" / "s.json").write_text(json.dumps({"source": "s", "tables": rows}))
    found = image.last_line(PARSE, dags)
    # There is no bucket here, and this is the only error.
    (problems, text), *more = found["errors"].items()
    assert not more
    assert Path(problems).name == "gddl_metadata_problems.py"
    assert re.findall(r"\[([A-Z0-9_]+)\]", text) == ["S3_CREDENTIALS_MISSING"]
    own = [dag_id for dag_id in found["dags"] if not dag_id.startswith("gddl.")]
    assert {PACK, "gddl_maintenance", "gddl_rerun", "gddl_verify"} <= set(own)
    assert [f"gddl.s.t{n}" for n in sorted(range(1, 20, 2), key=str)] == sorted(set(found["dags"]) - set(own))


def test_connections_give_credentials(image: Image) -> None:
    found = image.last_line(CONNECT, **CONNECTIONS)
    assert found["host"] == "https://adb-1.azuredatabricks.net"
    assert found["login"] == {"Authorization": "Bearer s3cr3t-token"}
    assert found["key"] == "AKIDEXAMPLE"
    assert {"applicationId", "clientToken", "executionRoleArn", "jobDriver", "retryPolicy"} <= set(found["runs"])


def test_a_bundle_for_an_environment_without_internet_access_installs(image: Image, tmp_path: Path) -> None:
    """Where pip reaches no index, and the image has what it has."""
    made, there = tmp_path / "offline", image.home / "plugins"
    image.python(
        "-m", "airflow_gddl.cli.main", "bundle", "--for", "mwaa", "--runner", "emr_serverless",
        "--extra", "openlineage", "--airflow", image.version, "--offline", "--constraints", image.constraints,
        "--out", made,
    )  # fmt: skip
    assert not (made / "jobs" / "environment.tar.gz").exists()
    with zipfile.ZipFile(made / "plugins.zip") as plugins:
        names = plugins.namelist()
        plugins.extractall(there)
    assert "constraints.txt" in names
    assert not [name for name in names if name.startswith(("apache_airflow-", "apache_airflow_core", "boto"))]
    fresh = replace(image, root=tmp_path / "fresh")
    subprocess.run([python312(), "-m", "venv", fresh.root], check=True)
    fresh.pip("install", "-c", image.constraints, f"apache-airflow=={image.version}", *IMAGE_BRINGS)
    text = (made / "requirements.txt").read_text().replace("/usr/local/airflow/plugins", str(there))
    (tmp_path / "requirements.txt").write_text(text)
    assert "--no-index" in text.splitlines()
    fresh.python(
        "-m", "pip", "install", "--quiet", "-r", tmp_path / "requirements.txt", PIP_INDEX_URL="", PIP_NO_INDEX="1"
    )
    fresh.pip("check")
    assert fresh.python("-m", "airflow_gddl.cli.main", "--version").strip()
