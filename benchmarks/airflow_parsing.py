"""`airflow dag-processor --num-runs 1` over a DAGs folder: how long, how large, and what it stored."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from measuring import WrongResultError, tree_mib

from devtools.standalone.home import Home, HomeSettings

_POLL_SECONDS = 0.1
_LONG = "86400"
# As many DAGs as there are take their time: nothing may be cut short, and nothing else may happen meanwhile.
_PATIENT = {
    "core": {"dagbag_import_timeout": _LONG},
    "dag_processor": {
        "dag_file_processor_timeout": _LONG,
        "min_file_process_interval": _LONG,
        "stale_dag_threshold": _LONG,
    },
    "scheduler": {"parsing_cleanup_interval": _LONG},
    "logging": {"logging_level": "WARNING"},
}
_SILENT = {"DO_NOT_TRACK": "1", "SCARF_ANALYTICS": "false", "SCARF_NO_ANALYTICS": "true"}


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Attributes: `seconds` of wall; `cpu_seconds` and `peak_mib`, largest resident memory, of all processes together;
    `dags`: ids.
    """

    seconds: float
    cpu_seconds: float
    peak_mib: float
    dags: frozenset[str]


def prepare(root: Path, dags: Path) -> dict[str, str]:
    """An AIRFLOW_HOME with an empty database; the environment that leads to it."""
    home = Home(root / "airflow")
    home.write(HomeSettings(dags=dags, port=0, more=_PATIENT))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "GDDL_"))}
    environ = {**kept, **_SILENT, "AIRFLOW_HOME": str(home.root)}
    _run(["airflow", "db", "migrate"], environ, home.root / "migrate.log")
    return environ


def process(root: Path, dags: Path) -> Parsed:
    """Parse, serialise and store a DAGs folder, in a database of its own.

    Raises:
        WrongResultError: it failed, or a file has an import error.
    """
    environ = prepare(root, dags)
    home = Path(environ["AIRFLOW_HOME"])
    begun, cpu = time.monotonic(), _cpu_of_children()
    peak = _run(["airflow", "dag-processor", "--num-runs", "1"], environ, home / "processor.log")
    seconds, cpu = time.monotonic() - begun, _cpu_of_children() - cpu
    connection = sqlite3.connect(home / "airflow.db")
    errors = connection.execute("select filename, stacktrace from import_error").fetchall()
    stored = frozenset(row[0] for row in connection.execute("select distinct dag_id from serialized_dag"))
    connection.close()
    if errors:
        raise WrongResultError(f"import errors: {errors}")
    return Parsed(seconds=seconds, cpu_seconds=cpu, peak_mib=peak, dags=stored)


def _cpu_of_children() -> float:
    """Processor time of processes that have ended, and of those below them that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: list[str], environ: dict[str, str], log: Path) -> float:
    """Run to the end; the largest memory of the process and all below it, in MiB."""
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environ,
            cwd=log.parent,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    peak = 0.0
    while child.poll() is None:
        peak = max(peak, tree_mib(child.pid))
        time.sleep(_POLL_SECONDS)
    if child.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise WrongResultError(f"{' '.join(command)} ended with {child.returncode}:\n{tail}")
    return peak
