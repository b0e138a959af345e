"""A PostgreSQL database, from nothing to every table replicated and green in Airflow, in two commands.

See README.md beside this file. The last line on standard output is JSON.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa
from measuring import WrongResultError, print_figures
from onboard_source import SCHEMA, SourceTable, counts, dump, fill, land, postgres

from airflow_gddl.contract.layout import Layout
from airflow_gddl.metadata.loading import LoadedMetadata, load
from airflow_gddl.runners.child import stoppable
from airflow_gddl.tools.simulate.simulator import Simulator
from airflow_gddl.tools.simulate.table import differences, read_replica
from airflow_gddl.topology.pipelines import arrange, pools
from devtools.standalone.home import Home, HomeSettings, free_port
from devtools.standalone.runs import Runs
from devtools.standalone.supervisor import Standalone, StartRequest

_TABLES = 500
_CONNECTION = "SHOP_DB"
_DAGS = Path(__file__).parents[1] / "dags"


@dataclass
class Clock:
    """Seconds by step, printed as they end."""

    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, step: str, act: Callable[[], object]) -> None:
        begun = time.monotonic()
        act()
        self.seconds[step] = round(time.monotonic() - begun, 1)
        sys.stdout.write(f"{step}: {self.seconds[step]} s\n")
        sys.stdout.flush()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--scale", type=float, default=1.0, help="1: 500 tables")
    options.add_argument("--keep", type=Path, metavar="DIR", help="do it there, and leave metadata, tables and logs")
    given = options.parse_args()
    tables = [SourceTable(n) for n in range(max(2, round(_TABLES * given.scale)))]
    with tempfile.TemporaryDirectory(prefix="gddl-onboard-") as folder, postgres() as engine, stoppable():
        clock = measure((given.keep or Path(folder)).absolute(), engine, tables)
    took = {name: clock.seconds[name] for name in ("onboard", "airflow")}
    answer = {"tables": len(tables), "seconds": round(sum(took.values()), 1), "commands": len(took), **took}
    service = {"service_seconds": clock.seconds["cdc service (stand-in)"]}
    print_figures({**answer, **service}, "seconds", "onboard", "airflow")


def measure(root: Path, engine: sa.Engine, tables: list[SourceTable]) -> Clock:
    """
    Raises:
        WrongResultError: a command failed, or a replica does not hold what its source does.
    """
    clock = Clock()
    fill(engine, tables)
    landed: list[Simulator] = []
    clock.timed("cdc service (stand-in)", lambda: landed.append(land(dump(engine, tables), tables, root / "landing")))
    clock.timed("onboard", lambda: onboard(root, engine))
    with Standalone(order(root)) as airflow:
        clock.timed("airflow", lambda: until_green(airflow, load(root / "metadata", {})))
    check(load(root / "metadata", {}), landed[0], counts(engine, tables))
    return clock


def onboard(root: Path, engine: sa.Engine) -> None:
    """The first command."""
    environ = {**os.environ, _CONNECTION: engine.url.render_as_string(hide_password=False)}
    metadata = root / "metadata"
    metadata.mkdir()
    (metadata / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n", encoding="utf-8")
    command = [sys.executable, "-m", "airflow_gddl.cli.main", "onboard", SCHEMA, "--connection", _CONNECTION, "--write"]
    command += ["--metadata", str(metadata)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongResultError(f"onboard ended with {done.returncode}: {done.stderr[-2000:]}")


def until_green(airflow: Standalone, loaded: LoadedMetadata) -> None:
    """The second command: an Airflow on the metadata, until the first run of every pipeline is green."""
    made = arrange(loaded.tables, loaded.tiers, loaded.dag_prefix).pipelines
    airflow.begin()
    airflow.start()
    airflow.wait_ready()
    runs = Runs(airflow, lambda line: sys.stdout.write(f"  {line}\n") and None)
    # A busy machine may be slow to answer just after its start; asking again is harmless.
    airflow.wait("the pools", lambda: runs.create_pools(pools(made)) is None)
    runs.wait_for([pipeline.dag_id for pipeline in made])
    runs.finish([runs.first(pipeline.dag_id) for pipeline in made])


def order(root: Path) -> StartRequest:
    more = {"gddl": {"metadata": str(root / "metadata"), "maintenance_schedule": "", "verify_schedule": ""}}
    settings = HomeSettings(dags=_DAGS, port=free_port(0), title="benchmark", more=more)
    return StartRequest(home=Home(root / "airflow"), settings=settings, environ=os.environ, variables={})


def check(loaded: LoadedMetadata, landed: Simulator, rows: dict[str, int]) -> None:
    """Every table of the source has its row, and its replica every row of the source, value by value.

    Raises:
        WrongResultError: if not.
    """
    names = {spec.name for spec in loaded.tables}
    if loaded.problems or names != set(rows):
        raise WrongResultError(f"{len(names)} of {len(rows)} tables are in the metadata; {loaded.problems[:3]}")
    for spec in loaded.tables:
        truth = landed.truth(spec.name)
        found = read_replica(Path(Layout.of(loaded.roots, spec).replica))
        if found.num_rows != rows[spec.name] or differences(truth, found, spec.keys):
            raise WrongResultError(f"{spec.table} differs from its source: {differences(truth, found, spec.keys)}")


if __name__ == "__main__":
    main()
