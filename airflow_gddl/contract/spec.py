"""Specifications of tables and jobs: frozen, standard library only.

pydantic validates these same classes where it is installed (`airflow_gddl.metadata`), so there is one definition.
Field docstrings become the descriptions of the generated JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from airflow_gddl.contract.actions import Action, Load, Plan, Rebuild, Release, Reload, Run, Sourced, Trying
from airflow_gddl.contract.basics import CONTRACT_VERSION, STRICT, AirflowView, Priority
from airflow_gddl.contract.codec import ALWAYS
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.result import CommitMethod
from airflow_gddl.contract.source_access import SourceAccess
from airflow_gddl.contract.table_spec import (
    DeleteMode,
    Generations,
    InitialLoad,
    MaskMethod,
    SchemaGate,
    SubMicrosecondPolicy,
    TableSpec,
    TieBreak,
    TruncatePolicy,
)

A = TypeVar("A")
_MEMORY_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4}
MEMORY = re.compile(r"[1-9][0-9]{0,5}[kmgtKMGT]")
"""Form of amounts in tiers."""


def memory_remedy(value: object) -> str:
    """Remedy for a value that is not an amount of memory; suggests units where only the unit is missing."""
    number = str(value)
    if MEMORY.fullmatch(f"{number}g"):
        return f"write the unit: {number}g, {number}m, {number}k or {number}t"
    return "write a number and k, m, g or t, e.g. 4g"


def size_bytes(text: str) -> int:
    """Number of bytes in an amount of memory such as `2g`.

    Raises:
        ValueError: not an amount of memory.
    """
    unit = text[-1:].lower()
    return int(text[:-1]) * 1024 ** _MEMORY_UNITS[unit] if unit in _MEMORY_UNITS else int(text)


TierTasks = Literal["one", "many"]


@dataclass(frozen=True, kw_only=True)
class TierSpec:
    """What a size means."""

    __pydantic_config__ = STRICT

    tasks: TierTasks = "one"
    """`one`: a table in one Spark task, many tables side by side. `many`: a table over many tasks."""
    commit: CommitMethod = "direct"
    """Default of the row's `commit`."""
    tables_per_job: int = 200
    """Tables that share one job; 1 gives each its own DAG."""
    airflow: AirflowView | None = None
    """Default of the row's `airflow`; null: `group` for small packs, `mapped` for few tables, else `pack`."""
    split_by_owner: bool = False
    """Packs hold tables of one owner each, so that access to their DAGs can be given by team."""
    max_files_per_batch: int = 1000
    """Maximum files in a batch."""
    max_bytes_per_batch: int = 4 * 1024**3
    """Maximum bytes in a batch, which always has at least one file."""
    max_inflated_bytes: int | None = None
    """Maximum bytes of a compressed file's content; larger files are quarantined (`FILE_TOO_LARGE`). Null: a quarter of
    `task_memory`, or with `tasks: many` half of `memory`."""
    deletion_vectors: bool = False
    """Create tables with deletion vectors: a batch writes the changed rows and no whole files, but not every reader
    knows them."""
    task_max_bytes: int = 128 * 1024**2
    """Limit of a table in one task: larger tables and files go to many tasks; batches have at most half of it."""
    task_memory: str = "2g"
    """Memory limit of a table in one task; one that needs more goes to many tasks."""
    task_timeout: str = "1h"
    """Time limit of a table in one task, in a job."""
    cores: int = 2
    """Cores of an embedded or cluster job."""
    memory: str = "4g"
    """Driver memory of an embedded job, executor memory on a cluster."""
    workers: int = 1
    """Executors on a cluster."""
    pool: str | None = None
    """Airflow pool; null: `gddl_<tier>`."""
    slots: int = 4
    """Slots of that pool."""
    run_timeout: str = "6h"
    """Timeout of an Airflow load task; a run may take twice that and an hour."""
    queue: str | None = None
    """Airflow queue of its loads; null: that of `default_args`, else Airflow's default queue."""
    executor_config: Mapping[str, Any] = field(default_factory=dict)
    """`executor_config` of its load tasks, in plain values."""

    def for_row(self, spec: TableSpec) -> TierSpec:
        """The tier as it is for one of its rows, whose `commit` goes before that of the tier."""
        return self if spec.commit in (None, self.commit) else replace(self, commit=spec.commit)

    @property
    def in_one_task(self) -> bool:
        """Whether one task works on a table: Spark's `MERGE INTO` is run by a job's driver."""
        return self.tasks == "one" and self.commit == "direct"

    @property
    def inflated_bytes(self) -> int:
        """`max_inflated_bytes`, or what the tier's memory allows."""
        if self.max_inflated_bytes is not None:
            return self.max_inflated_bytes
        return size_bytes(self.task_memory) // 4 if self.in_one_task else size_bytes(self.memory) // 2


DEFAULT_TIERS: Mapping[str, TierSpec] = {
    "small": TierSpec(),
    # Bounds as measured: docs/decisions/size.md.
    "medium": TierSpec(
        tables_per_job=1,
        max_bytes_per_batch=128 * 1024**2,
        task_max_bytes=1024**3,
        task_memory="6g",
        memory="6g",
    ),
    "large": TierSpec(
        tasks="many",
        tables_per_job=1,
        deletion_vectors=True,
        max_bytes_per_batch=64 * 1024**3,
        memory="8g",
        run_timeout="24h",
    ),
}


__all__ = [
    "CONTRACT_VERSION",
    "DEFAULT_TIERS",
    "AirflowView",
    "Continuous",
    "DeleteMode",
    "DesiredState",
    "Generations",
    "InitialLoad",
    "JobOptions",
    "JobSpec",
    "MaskMethod",
    "Priority",
    "Roots",
    "SchemaGate",
    "SubMicrosecondPolicy",
    "TableSpec",
    "TieBreak",
    "TierSpec",
    "TierTasks",
    "TruncatePolicy",
]


@dataclass(frozen=True, kw_only=True)
class Roots:
    """Where files land and where tables live: absolute local paths or `s3://bucket/prefix`."""

    __pydantic_config__ = STRICT

    landing: str
    lake: str


@dataclass(frozen=True, kw_only=True)
class Continuous:
    """A continuous job: polls each table at the interval of its `trigger`, until it is stopped."""

    __pydantic_config__ = STRICT

    folder: str = ""
    """Folder of the desired state and of stop requests (`layout.desired_path`, `layout.stop_path`); empty: none."""
    seconds: float | None = None
    """Time limit after which it ends; null: none."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of one run."""

    __pydantic_config__ = STRICT

    action: Action = field(default_factory=Run)
    wait_seconds: float = 0.0
    """How long to wait for a table that another run holds; 0 stops at once with `TABLE_BUSY`."""
    full_listing: bool = False
    """List the whole landing folder even if the cursor would allow less."""
    max_batches: int | None = None
    """Maximum number of batches; None: process all pending files."""
    origin: tuple[str, ...] = ()
    """Airflow's DAG id, run id and task id; empty for runs outside Airflow."""
    continuous: Continuous | None = None
    """`Run`: keep running when there are no pending files; None: end."""

    @property
    def load(self) -> Load | None:
        """The load that is asked for, or that a plan is asked for; None: neither."""
        wanted = self.action.of if isinstance(self.action, Plan) else self.action
        return wanted if isinstance(wanted, Load) else None

    @property
    def repairs(self) -> bool:
        """Whether tables are made again, with or without new files."""
        return self.reloads or isinstance(self.load, Rebuild)

    @property
    def reloads(self) -> bool:
        """Whether tables are made again of the landing files alone."""
        return isinstance(self.load, Reload)

    @property
    def dry_run(self) -> bool:
        """Whether the action only reports what it would do."""
        return isinstance(self.action, Trying) and self.action.dry_run

    @property
    def source_connection(self) -> str:
        """Name of the connection to the source, instead of the row's; empty: the action names none."""
        return self.action.source_connection if isinstance(self.action, Sourced) else ""

    def releases(self, held: Literal["sweep", "truncate"]) -> bool:
        """Whether a user has released this kind of removal."""
        return isinstance(self.action, Release) and self.action.held == held

    def asked(self, kind: type[A]) -> A:
        """The action, for the code that carries it out.

        Raises:
            TypeError: the job has another action.
        """
        if isinstance(self.action, kind):
            return self.action
        raise TypeError(f"the job's action is {self.action.name}, not {kind.__name__}")


@dataclass(frozen=True, kw_only=True)
class DesiredState:
    """Tables that a continuous job loads from now on, their tiers and catalogs; its monitor writes it."""

    __pydantic_config__ = STRICT

    tables: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec] = field(default_factory=lambda: dict(DEFAULT_TIERS), metadata={ALWAYS: True})
    catalogs: Mapping[str, CatalogSpec] = field(default_factory=dict)
    access: tuple[SourceAccess, ...] = ()
    """Landing roots that are read with credentials of their own; names of them, never a secret."""
    contract_version: int = field(default=CONTRACT_VERSION, metadata={ALWAYS: True})
    ignorable: tuple[str, ...] = ()
    """Fields in use, as `Class.field`, that a job may ignore if it lacks them. `codec.to_document` writes it."""


@dataclass(frozen=True, kw_only=True)
class JobSpec(DesiredState):
    """Specification of one job, with the tables that it begins with: `gddl-job --spec` reads its JSON."""

    run_id: str
    roots: Roots
    options: JobOptions = field(default_factory=JobOptions)

    def tier_of(self, spec: TableSpec) -> TierSpec:
        """The tier of a row, see `TierSpec.for_row`.

        Raises:
            KeyError: the job lacks the tier.
        """
        return self.tiers[spec.size].for_row(spec)

    @property
    def log_group(self) -> str:
        """Log folder of the job: Airflow's DAG that started it, else its only table, else `jobs`."""
        if self.options.origin:
            return self.options.origin[0]
        return self.tables[0].table if len(self.tables) == 1 else "jobs"
