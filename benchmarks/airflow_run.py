"""What Airflow itself spends on loading many small tables: packs, with a mapped task or a group for each, or DAGs.

See README.md beside this file. The last line on standard output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sa
from measuring import WrongResultError, print_figures
from onboard_source import postgres

from airflow_gddl.contract.spec import AirflowView
from airflow_gddl.metadata.loading import load
from airflow_gddl.runners.child import stoppable
from airflow_gddl.topology.pipelines import arrange, pools
from devtools.standalone import supervisor
from devtools.standalone.home import Home, HomeSettings, free_port
from devtools.standalone.runs import Runs
from devtools.standalone.supervisor import Standalone, StartRequest

_TABLES, _PARALLELISM = 200, 4
_VIEWS: tuple[AirflowView, ...] = ("pack", "mapped", "group", "table")
_PACK = 200
_GROWING = (
    "dag_run",
    "task_instance",
    "task_instance_history",
    "xcom",
    "asset_event",
    "log",
    "rendered_task_instance_fields",
)
_LIMIT_SECONDS = 4 * 3600.0
NO_ARGUMENTS: dict[str, object] = {}
"""Of the driver of PostgreSQL, where the standalone Airflow passes those of SQLite."""
HERE = Path(__file__).parent
_SETTINGS = """\
landing: ../landing
lake: ../lake
defaults: {schedule: %s, size: bench}
tiers:
  bench: {tables_per_job: %d, slots: %d, airflow: %s}
"""


@dataclass(frozen=True)
class Spent:
    """Seconds of wall, and of CPU of all Airflow's processes together, from the first trigger to the last green run.

    Attributes:
        dags: that load the tables.
        jobs: that were started for the first load of all tables.
        instances: task instances in the database.
        rows: of the tables that a run adds to: runs, task instances, XComs, events.
        stored: bytes of serialised DAGs.
        idle: seconds of CPU of a round of runs in which nothing has landed; None: not measured.
    """

    wall: float
    cpu: float
    dags: int
    instances: int
    rows: int
    stored: int
    jobs: int = 0
    idle: float | None = None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--scale", type=float, default=1.0, help="1: 200 tables")
    options.add_argument("--views", nargs="+", choices=_VIEWS, default=_VIEWS, help="what Airflow shows of the tables")
    options.add_argument("--postgres", action="store_true", help="as Airflow's database, instead of SQLite")
    options.add_argument("--idle", type=int, default=0, help="rounds of runs without new files, after the first")
    asked = options.parse_args()
    tables, views = max(2, round(_TABLES * asked.scale)), asked.views
    with tempfile.TemporaryDirectory(prefix="gddl-run-") as folder, stoppable():
        spent = {view: measure(Path(folder, view), tables, view, asked) for view in views}
    answer: dict[str, float] = {"tables": tables}
    for view, one in spent.items():
        answer |= {f"{view}_seconds": round(one.wall, 1), f"{view}_cpu_seconds": round(one.cpu, 1)}
        answer |= {
            f"{view}_dags": one.dags,
            f"{view}_jobs": one.jobs,
            f"{view}_instances": one.instances,
            f"{view}_rows": one.rows,
            f"{view}_dag_bytes": one.stored,
        }
        answer |= {} if one.idle is None else {f"{view}_idle_cpu_seconds": round(one.idle, 2)}
    if "table" in spent:
        # Of a run's tasks a worker starts one: `landed` is in the triggerer, and there is no second load.
        answer["task_cpu_seconds"] = round(spent["table"].cpu / tables, 2)
    if "pack" in spent and "mapped" in spent:
        answer["mapped_cpu_seconds_per_table"] = round((spent["mapped"].cpu - spent["pack"].cpu) / tables, 2)
    if "pack" in spent and "table" in spent:
        answer["ratio"] = round(spent["table"].wall / spent["pack"].wall, 1)
        answer["cpu_ratio"] = round(spent["table"].cpu / spent["pack"].cpu, 1)
    print_figures(answer, *(f"{view}_{figure}" for view in views for figure in ("seconds", "cpu_seconds", "rows")))


def measure(root: Path, tables: int, view: AirflowView, asked: argparse.Namespace) -> Spent:
    """Load every table once.

    Raises:
        WrongResultError: a table was not loaded, or was loaded twice.
        GddlError: Airflow did not start, or a run failed.
    """
    write(root, tables, view)
    record = root / "record"
    with ExitStack() as stack:
        engine = stack.enter_context(postgres()) if asked.postgres else None
        airflow, dag_ids = stack.enter_context(started(root, record, engine))
        engine = engine or sa.create_engine(f"sqlite:///{airflow.request.home.database}")
        spent = timed(airflow, Runs(airflow, lambda _: None), dag_ids, engine)
        replicas(root, tables)
        spent = replace(spent, idle=idle(airflow, dag_ids, asked.idle) if asked.idle else None)
    spent = replace(spent, jobs=len({job for _, _, job in _record(record)}))
    loaded = sorted(name for name, _ in loads(record))
    if loaded != sorted(f"shop.t{n}" for n in range(tables)):
        raise WrongResultError(f"{len(loaded)} loads of {len(set(loaded))} tables instead of {tables}")
    sys.stdout.write(
        f"{view}: {spent.dags} DAGs, {spent.jobs} jobs, {tables} tables: {spent.wall:.1f} s, {spent.cpu:.1f} s of CPU\n"
    )
    sys.stdout.flush()
    return spent


@contextmanager
def started(root: Path, record: Path, engine: sa.Engine | None) -> Iterator[tuple[Standalone, list[str]]]:
    """All of Airflow's parts, with the pools and every DAG of the metadata; and the ids of these."""
    loaded = load(root / "metadata", {})
    dags = arrange(loaded.tables, loaded.tiers, loaded.dag_prefix).pipelines
    with Standalone(order(root, record, engine)) as airflow:
        airflow.begin()
        airflow.start()
        airflow.wait_ready()
        Runs(airflow, lambda _: None).create_pools(pools(dags))
        airflow.wait("all DAGs", lambda: airflow.rest.get("dags", limit=1)["total_entries"] == len(dags))
        yield airflow, [dag.dag_id for dag in dags]


def loads(record: Path) -> list[tuple[str, float]]:
    """Table and moment, in seconds since the epoch, of each load of the stand-in so far."""
    return [(name, float(at)) for name, at, _ in _record(record)]


def _record(record: Path) -> list[list[str]]:
    """Table, moment and id of the job, of each load."""
    return [line.split("\t") for line in record.read_text().splitlines()] if record.exists() else []


def timed(airflow: Standalone, runs: Runs, dag_ids: list[str], engine: sa.Engine) -> Spent:
    cpu, begun = supervisor.cpu_seconds(airflow.mark), time.monotonic()
    for dag_id in dag_ids:
        runs.trigger(dag_id)
    airflow.wait("all runs to be green", lambda: _green(airflow) == len(dag_ids), _LIMIT_SECONDS)
    wall = time.monotonic() - begun
    with engine.connect() as database:
        counts = {table: database.scalar(sa.text(f"select count(*) from {table}")) for table in _GROWING}  # noqa: S608 - names of ours
        stored = database.scalar(sa.text("select sum(length(cast(data as text))) from serialized_dag"))
    rows = sum(counts.values())
    cpu = supervisor.cpu_seconds(airflow.mark) - cpu
    return Spent(wall, cpu, dags=len(dag_ids), instances=counts["task_instance"], rows=rows, stored=stored)


def idle(airflow: Standalone, dag_ids: list[str], rounds: int) -> float:
    """Seconds of CPU of a round in which every DAG runs once without work, one after the other."""
    runs, before = Runs(airflow, lambda _: None), supervisor.cpu_seconds(airflow.mark)
    for done in range(1, rounds + 1):
        for dag_id in dag_ids:
            runs.trigger(dag_id)
        airflow.wait("all runs to be green", lambda: _green(airflow) == (done + 1) * len(dag_ids), _LIMIT_SECONDS)  # noqa: B023 - called in this round
    return (supervisor.cpu_seconds(airflow.mark) - before) / rounds


def _green(airflow: Standalone) -> int:
    """Raises: `WrongResultError`: one failed."""
    ended = airflow.rest.get("dags/~/dagRuns", state=["success", "failed"], limit=1)
    if airflow.rest.get("dags/~/dagRuns", state="failed", limit=1)["total_entries"]:
        raise WrongResultError("a run failed")
    return int(ended["total_entries"])


def write(root: Path, tables: int, view: AirflowView, schedule: str = "null") -> None:
    """Metadata, and a first file for each table."""
    (root / "metadata" / "tables").mkdir(parents=True)
    (root / "metadata" / "gddl.yaml").write_text(_SETTINGS % (schedule, _PACK, _PARALLELISM, view))
    rows = "".join(f"  - {{table: shop.t{n}, keys: [id]}}\n" for n in range(tables))
    (root / "metadata" / "tables" / "shop.yaml").write_text(f"source: shop\ntables:\n{rows}")
    for n in range(tables):
        land(root, n, "LOAD00000001.parquet")


def land(root: Path, number: int, name: str) -> None:
    """A file of a table."""
    folder = root / "landing" / "shop" / f"t{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("not read by the stand-in")


def replicas(root: Path, tables: int) -> None:
    """What the stand-in does not write: a run that is triggered loads a table again that has lost its replica."""
    for n in range(tables):
        log = root / "lake" / "shop" / f"t{n}" / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        (log / f"{0:020d}.json").write_text("{}")


def _on(engine: sa.Engine | None) -> dict[str, dict[str, str]]:
    """Settings of Airflow for this database; none: SQLite."""
    if engine is None:
        return {}
    arguments = f"{Path(__file__).stem}.NO_ARGUMENTS"
    sync, asynchronous = (engine.url.set(drivername=f"postgresql+{driver}") for driver in ("psycopg2", "asyncpg"))
    return {
        "database": {
            "sql_alchemy_conn": sync.render_as_string(hide_password=False),
            "sql_alchemy_conn_async": asynchronous.render_as_string(hide_password=False),
            "sql_alchemy_connect_args": arguments,
            "sql_alchemy_connect_args_async": arguments,
        }
    }


def order(root: Path, record: Path, engine: sa.Engine | None) -> StartRequest:
    job = json.dumps([sys.executable, str(HERE / "airflow_stand_in.py")])
    more = {
        "gddl": {"metadata": str(root / "metadata"), "job_command": job},
        "dag_processor": {"min_file_process_interval": "600"},
        "core": {"max_active_tasks_per_dag": str(_PARALLELISM)},
        **_on(engine),
    }
    dags = root / "dags"
    dags.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE.parent / "dags" / "gddl.py", dags)  # without those of upkeep, which load nothing
    settings = HomeSettings(dags=dags, port=free_port(0), parallelism=_PARALLELISM, title="benchmark", more=more)
    own = {"AIRFLOW_RUN_RECORD": str(record), "PYTHONPATH": str(HERE)}
    return StartRequest(home=Home(root / "airflow"), settings=settings, environ=os.environ, variables=own)


if __name__ == "__main__":
    main()
