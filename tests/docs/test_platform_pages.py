"""What the pages for platform teams say beside the commands that `tests/recipes` plays."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from airflow_gddl.metadata.loading import LoadedMetadata, load
from airflow_gddl.topology.pipelines import arrange, pools
from tests.unit.pages import ROOT, page

GDDL = [sys.executable, "-m", "airflow_gddl.cli.main"]
CI = "recipes/dev-and-prod.md"
ROW = "tables:\n  - {table: shop.orders, keys: [id]}\n"


def workflow() -> list[str]:
    """Commands of the workflow's steps, in their order."""
    text = page(CI).partition("name: metadata\n")[2].partition("```")[0]
    (job,) = yaml.safe_load(f"name: metadata\n{text}")["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


@dataclass(frozen=True)
class Job:
    """What a pull request with these rows gives: the comment, and the first step that failed; empty: none."""

    comment: str
    failed: str


def played(folder: Path, rows: str) -> Job:
    """The steps of the workflow as its runner plays them; what installs and what comments is left out."""
    (folder / "metadata/tables").mkdir(parents=True)
    (folder / "metadata/gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    (folder / "metadata/tables/shop.yaml").write_text(ROW)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "First rows"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    (folder / "metadata/tables/shop.yaml").write_text(rows)
    program = folder / "bin" / "gddl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(GDDL)} "$@"\n')
    program.chmod(0o755)
    environ = {**os.environ, "BASE": "main", "PATH": f"{program.parent}:{os.environ['PATH']}"}
    comment = ""
    for step in workflow():
        if step.startswith("gh pr comment"):
            comment = (folder / "plan.md").read_text()
        elif step.startswith("gddl "):
            done = subprocess.run(["sh", "-ec", step], cwd=folder, env=environ, capture_output=True, check=False)
            if done.returncode:
                return Job(comment, step)
    return Job(comment, "")


WRONG = ROW.replace("keys", "kyes")
CASES = {
    "a right row": (f"{ROW}  - {{table: shop.items, keys: [id]}}\n", "`shop.items`", ""),
    "another key": (ROW.replace("[id]", "[id, no]"), "gddl rebuild --table shop.orders", ""),
    "an invalid row": (WRONG, "FIELD_UNKNOWN", "gddl validate --format github"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_workflow_comments_whatever_the_rows_are(case: str, tmp_path: Path) -> None:
    rows, said, failed = CASES[case]
    found = played(tmp_path, rows)
    assert said in found.comment
    assert "No record of a run was read from the lake" in found.comment
    assert found.failed == failed


def test_the_workflow_installs_what_the_command_needs() -> None:
    (install,) = [step for step in workflow() if step.startswith("pip ")]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (named,) = re.findall(r"airflow-gddl\[(\w+)\]", install)
    assert any(one.startswith("typer") for one in extras[named])


@pytest.mark.parametrize(
    ("rows", "command", "status"),
    [(WRONG, "validate", 2), (WRONG, "plan", 2)],
    ids=["validate", "plan"],
)
def test_exit_statuses_are_those_of_the_page(rows: str, command: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/shop.yaml").write_text(rows)
    (tmp_path / "gddl.yaml").write_text("landing: landing\nlake: lake\n")
    done = subprocess.run([*GDDL, command, "--metadata", str(tmp_path)], capture_output=True, check=False)
    assert done.returncode == status
    why = "a row is refused" if command == "validate" else "a row is invalid"
    line = next(line for line in page(CI).splitlines() if line.startswith(f"- `gddl {command}` exits"))
    assert re.search(rf"with {status} if {why}", line), line


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., LoadedMetadata]:
    def loaded(**environ: str) -> LoadedMetadata:
        (tmp_path / "tables").mkdir(exist_ok=True)
        (tmp_path / "tables/shop.yaml").write_text(f"source: crm\n{ROW}")
        (tmp_path / "gddl.yaml").write_text(
            "landing: landing\nlake: lake\nsources: {crm: {landing: crm, defaults: {catalog: main}}}\n"
            "catalogs: {main: {kind: glue, region: eu-west-1}}\n"
        )
        return load(tmp_path, environ)

    return loaded


def test_variables_of_two_environments_win(folder: Callable[..., LoadedMetadata]) -> None:
    text = page(CI)
    values = {
        "GDDL_LANDING": "/dev/landing", "GDDL_LAKE": "/dev/lake", "GDDL_SOURCES__CRM__LANDING": "/dev/crm",
        "GDDL_CATALOGS__MAIN__REGION": "us-east-1",
    }  # fmt: skip
    for name in values:
        shown = name.replace("__CRM__", "__<SOURCE>__").replace("__MAIN__REGION", "__<CATALOG>__…")
        assert f"`{shown}`" in text, shown
    loaded = folder(**values)
    assert not loaded.problems
    assert (loaded.roots.landing, loaded.roots.lake) == ("/dev/landing", "/dev/lake")
    assert loaded.landings["crm"] == "/dev/crm"
    assert loaded.catalogs["main"].region == "us-east-1"


def test_a_prefix_renames_dags_and_pools_of_tiers(folder: Callable[..., LoadedMetadata]) -> None:
    """Assets are named by their table alone (`airflow_gddl.assets`), which the page warns of."""
    made = {prefix: folder(**({"GDDL_DAG_PREFIX": prefix} if prefix else {})) for prefix in ("", "dev_")}
    arranged = {prefix: arrange(one.tables, one.tiers, one.dag_prefix).pipelines for prefix, one in made.items()}
    dags = {prefix: {one.dag_id for one in found} for prefix, found in arranged.items()}
    assert dags["dev_"] == {f"dev_{dag_id}" for dag_id in dags[""]}
    named = {prefix: set(pools(found)) - {"gddl_continuous"} for prefix, found in arranged.items()}
    assert named["dev_"] == {f"dev_{name}" for name in named[""]}
    assert "It does not rename assets" in page(CI)


MWAA = "platforms/mwaa.md"
READ_WORKFLOW = """
import json, sys
from dagfactory import load_yaml_dags
found = {}
load_yaml_dags(found, config_filepath=sys.argv[1], defaults_config_path=sys.argv[2])
(dag,) = (value for value in found.values() if hasattr(value, "task_dict"))
(task,) = dag.tasks
print(json.dumps([dag.dag_id, dag.schedule, type(task).__name__, task.bash_command, task.retries]))
"""


def serverless_workflow() -> str:
    return page(MWAA).partition("```yaml\n")[2].partition("```")[0]


@pytest.mark.skipif(importlib.util.find_spec("dagfactory") is None, reason="an extra of benchmarks")
def test_dag_factory_reads_the_workflow_of_mwaa_serverless(tmp_path: Path) -> None:
    """In a process of its own: its modules warn of Airflow's old names. Of other fields the service ignores some."""
    (workflow,) = yaml.safe_load(serverless_workflow()).values()
    assert set(workflow) == {"dag_id", "schedule", "start_date", "tasks"}
    (tmp_path / "workflow.yaml").write_text(serverless_workflow())
    command = [sys.executable, "-W", "ignore", "-c", READ_WORKFLOW, str(tmp_path / "workflow.yaml"), str(tmp_path)]
    environ = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    task = workflow["tasks"]["run"]
    wanted = ["gddl_run", "17 * * * *", "BashOperator", task["bash_command"], 2]
    assert json.loads(done.stdout.splitlines()[-1]) == wanted


@pytest.mark.parametrize(("rows", "status"), [("I,1,1,a\n", 0), ("X,1,,a\n", 1)])
def test_the_command_of_mwaa_serverless_loads_tables_of_its_folder(rows: str, status: int, tmp_path: Path) -> None:
    (workflow,) = yaml.safe_load(serverless_workflow()).values()
    (tmp_path / "metadata/tables").mkdir(parents=True)
    settings = "landing: ../landing\nlake: ../lake\ndefaults: {on_bad_row: fail}\n"
    (tmp_path / "metadata/gddl.yaml").write_text(settings)
    row = "{table: shop.orders, keys: [id], sequence_by: [seq], options: {csv_header: true}}"
    (tmp_path / "metadata/tables/shop.yaml").write_text(f"tables:\n  - {row}\n")
    (tmp_path / "landing/shop/orders").mkdir(parents=True)
    (tmp_path / "landing/shop/orders/20260101-000000001.csv").write_text(f"Op,seq,id,v\n{rows}")
    command = workflow["tasks"]["run"]["bash_command"].replace("/usr/local/airflow/dags", str(tmp_path))
    command = command.replace("PYTHONPATH=.", f"PYTHONPATH={ROOT}").replace("python3", sys.executable)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    assert (tmp_path / "lake/shop/orders").is_dir() is (status == 0)
