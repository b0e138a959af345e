"""A project folder, an Airflow that runs it, and the jobs that it started."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.spec import JobOptions
from devtools.standalone.home import Home, HomeSettings, free_port
from devtools.standalone.part import Part
from devtools.standalone.runs import RunRef, Runs
from devtools.standalone.supervisor import Standalone, StartRequest

ROOT = Path(__file__).parents[2]
_OPTIONS = {
    "poll_seconds": "1",
    "refresh_seconds": "2",
    "retry_delay_seconds": "1",
    "retries": "3",
    "dependency_wait_seconds": "120",
}

IS_3_0 = version("apache-airflow-core").startswith("3.0.")
"""Airflow 3.0 has no place for pages in its menu, and keeps import errors of files without DAGs."""


@dataclass
class Site:
    """Everything below one folder. `running` is Airflow; its tables are those of `metadata/tables`."""

    root: Path
    running: Standalone
    reported: list[str] = field(default_factory=list)

    @property
    def runs(self) -> Runs:
        return Runs(self.running, self.reported.append)

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    def rows(self, file: str, *rows: str, source: str) -> None:
        """Write a file of `metadata/tables`; rows in YAML's flow form."""
        path = self.metadata / "tables" / f"{file}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join([f"source: {source}\ntables:\n", *(f"  - {row}\n" for row in rows)]))

    def land(self, table: str, name: str = "20240101-000000000.parquet") -> None:
        path = self.landing / table.replace(".", "/", 1) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)

    def restart(self, name: str) -> None:
        """Start a part of Airflow again, ending it first if it still runs."""
        old = self.running.parts[name]
        old.kill()
        self.running.parts[name] = Part(old.spec, self.running.environ, self.running.request.home.logs)

    def hold(self, table: str) -> Path:
        """Have the stand-in wait at this table until the file is removed."""
        path = self.root / f"hold-{table}"
        path.touch()
        return path

    def refuse(self, table: str) -> None:
        """Have the stand-in fail at this table."""
        (self.root / f"refuse-{table}").touch()

    def find_nothing(self, table: str) -> None:
        """Have the stand-in find nothing new for this table."""
        (self.root / f"idle-{table}").touch()

    def jobs(self, schema: str, what: str = "start") -> list[dict[str, Any]]:
        """What the stand-in noted about jobs of a schema's tables, in order."""
        path = self.root / "jobs.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        lines = [{**line, "options": plain(decode(JobOptions, line["options"]))} for line in found]
        return [line for line in lines if line["what"] == what and line["tables"][0].startswith(f"{schema}.")]

    def forget_worker(self, run: RunRef) -> None:
        """Date the last heartbeats of the run's running tasks back by an hour, as if that had passed since."""
        silent = datetime.now(UTC) - timedelta(hours=1)
        change = "update task_instance set last_heartbeat_at = ? where dag_id = ? and run_id = ? and state = 'running'"
        with closing(sqlite3.connect(self.running.request.home.database, timeout=60)) as database, database:
            changed = database.execute(change, (f"{silent:%Y-%m-%d %H:%M:%S.%f}", run.dag_id, run.run_id))
            assert changed.rowcount == 1, "no task of the run is running"

    def load(self, dag_id: str, **conf: Any) -> RunRef:
        """A run that is green, from the trigger on."""
        run = self.runs.trigger(dag_id, conf)
        self.runs.finish([run])
        return run

    def import_errors(self) -> list[dict[str, Any]]:
        errors: list[dict[str, Any]] = self.running.rest.get("importErrors")["import_errors"]
        return errors


def order(root: Path, webhook: str | None = None) -> StartRequest:
    """An Airflow that polls often.

    Args:
        webhook: connection of the one that it tells; null: none.
    """
    job = json.dumps([sys.executable, str(Path(__file__).with_name("job.py"))])
    more = {
        "gddl": {**_OPTIONS, "metadata": str(root / "metadata"), "job_command": job},
        "core": {"min_serialized_dag_update_interval": "1"},
        # Airflow's own patience with workers: on a busy machine a live one may be silent for a minute, and its task
        # would be tried again. `forget_worker` is for those that are dead.
        "scheduler": {
            "task_instance_heartbeat_timeout": "300",
            "task_instance_heartbeat_timeout_detection_interval": "2",
            "parsing_cleanup_interval": "4",
        },
        "triggerer": {"triggerer_health_check_threshold": "8", "job_heartbeat_sec": "2"},
        "dag_processor": {"min_file_process_interval": "4", "stale_dag_threshold": "2"},
    }
    dags = root / "dags"
    shutil.copytree(ROOT / "dags", dags)
    shutil.copy(Path(__file__).with_name("consumer.py"), dags)
    settings = HomeSettings(dags=dags, port=free_port(0), parallelism=4, title="end to end", more=more)
    environ = {
        **os.environ,
        "GDDL_WITHOUT_SPARK": "",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    own = {"E2E_JOB": str(root)}
    if webhook is not None:
        own |= {"AIRFLOW_CONN_OPS": webhook, "AIRFLOW__GDDL__NOTIFY_CONNECTION": "ops"}
    return StartRequest(
        home=Home(root / "airflow"), settings=settings, environ=environ, variables=own, ready_seconds=900
    )
