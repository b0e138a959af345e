"""Where a table's files, Delta tables and state are, below the two roots."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from airflow_gddl.contract.spec import Roots, TableSpec

STATE = "_gddl"


def join(root: str, *parts: str) -> str:
    """Path below a root, whatever slash the root ends with."""
    return "/".join([root.rstrip("/"), *parts])


def order_path(lake: str, run_id: str) -> str:
    """Where the JobSpec of a job that runs elsewhere is put."""
    return join(lake, STATE, "specs", f"{run_id}.json")


def log_folder(lake: str, group: str) -> str:
    """Where logs of jobs are that Airflow's DAG `group` has ordered; see `JobSpec.log_group`."""
    return join(lake, STATE, "logs", group)


LOADS = ("run", "errors_replay", "sweep_release")
"""Actions that load."""
UPKEEP = ("maintain", "verify", "erase")
"""Actions that don't, and whose records say so in their names."""


def record_name(started: datetime, run_id: str, action: str) -> str:
    """Name of the record of a run; sorts by time."""
    kind = f".{action}" if action in UPKEEP else ""
    return f"{started:%Y%m%dT%H%M%S%f}-{run_id or 'none'}{kind}.json"


def tells_of_load(name: str) -> bool:
    """Whether a record of this name is of a run that loads."""
    return not name.endswith(tuple(f".{action}.json" for action in UPKEEP))


def answers_folder(lake: str, run_id: str) -> str:
    """Where such a job puts a JobResult for each table."""
    return join(lake, STATE, "answers", run_id)


def standing_folder(lake: str, name: str) -> str:
    """Where a continuous job is told of its tables; see `standing`."""
    return join(lake, STATE, "continuous", name)


def answer_name(table: str) -> str:
    """Name of a table's answer: names of tables may hold what names of objects may not."""
    return f"{hashlib.blake2b(table.encode(), digest_size=16).hexdigest()}.json"


def landing_root(landing: str) -> str:
    """The root of all landing files, of a table's folder of them."""
    return landing.rstrip("/").rsplit("/", 2)[0]


@dataclass(frozen=True)
class Layout:
    """Paths of one table; every one is below `landing` or `lake`."""

    landing: str
    replica: str
    changes: str
    history: str
    errors: str
    tombstones: str
    state: str
    runs: str
    erased: str

    @classmethod
    def of(cls, roots: Roots, spec: TableSpec) -> Layout:
        schema, name = spec.schema_name, spec.name
        return cls(
            landing=join(roots.landing, schema, name),
            replica=join(roots.lake, schema, name),
            changes=join(roots.lake, schema, f"{name}__changes"),
            history=join(roots.lake, schema, f"{name}__history"),
            errors=join(roots.lake, schema, f"{name}__errors"),
            tombstones=join(roots.lake, STATE, "tombstones", schema, name),
            state=join(roots.lake, STATE, "ledger", schema, name),
            runs=join(roots.lake, STATE, "runs", schema, name),
            erased=join(roots.lake, STATE, "erased", schema, name),
        )
