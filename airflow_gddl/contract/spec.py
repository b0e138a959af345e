"""Specifications of tables and jobs: frozen, standard library only.

pydantic validates these same classes where it is installed (`airflow_gddl.metadata`), so there is one definition.
Field docstrings become the descriptions of the generated JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from airflow_gddl.contract.catalogs import CatalogSpec
from airflow_gddl.contract.codec import ALWAYS
from airflow_gddl.contract.source_access import SourceAccess
from airflow_gddl.contract.table_spec import (
    STRICT,
    AirflowView,
    DeleteMode,
    Generations,
    MaskMethod,
    Priority,
    SubMicrosecondPolicy,
    TableSpec,
    TieBreak,
)
from airflow_gddl.contract.tier_spec import DEFAULT_TIERS, EngineName, TierSpec

__all__ = [
    "CONTRACT_VERSION",
    "DEFAULT_TIERS",
    "Action",
    "AirflowView",
    "Continuous",
    "DeleteMode",
    "EngineName",
    "Generations",
    "JobOptions",
    "JobSpec",
    "MaskMethod",
    "Priority",
    "Roots",
    "SubMicrosecondPolicy",
    "TableSpec",
    "TieBreak",
    "TierSpec",
]

CONTRACT_VERSION = 1

Action = Literal[
    "run", "plan", "verify", "explain", "errors_list", "errors_replay", "maintain", "erase", "sweep_release", "move",
    "catalog_diff", "catalog_sync",
]  # fmt: skip


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
    """Folder of the desired state and of stop requests; empty: none. See `desired_state`."""
    seconds: float | None = None
    """Time limit after which it ends; null: none."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of one run."""

    __pydantic_config__ = STRICT

    action: Action = "run"
    full_refresh: bool = False
    """Rebuild replica and history from the change table, then load new files."""
    reload: bool = False
    """Load the tables again from the files that are there, and from nothing else."""
    confirmed: bool = False
    """With `reload`: also where columns, rows or changes of the tables go."""
    resync: bool = False
    """As `reload`, but the tables are only replaced if they equal the source."""

    @property
    def repairs(self) -> bool:
        """Whether tables are made again, with or without new files."""
        return self.full_refresh or self.reload or self.resync

    wait_seconds: float = 0.0
    """How long to wait for a table that another run holds; 0 stops at once with `TABLE_BUSY`."""
    full_listing: bool = False
    """List the whole landing folder even if the cursor would allow less."""
    codes: tuple[str, ...] = ()
    """`errors_replay`: only rows quarantined with these codes; empty: all."""
    limit: int = 100
    """Rows that `errors_list` returns, keys that `verify` names, changes that `explain` reads, at most."""
    max_batches: int | None = None
    """Maximum number of batches; null: process all pending files."""
    dry_run: bool = False
    """`maintain`: report the pending work without doing it."""
    key: Mapping[str, str] = field(default_factory=dict)
    """`erase`, `explain`: key column to its value as text; an empty name means the only key column."""
    source_connection: str = ""
    """`verify`: name of the connection to the source, instead of the row's `verify_connection`."""
    settle_seconds: float | None = None
    """`verify`: how long a change may take from the source to the replica; null: the row's freshness, or an hour."""
    move_to: str = ""
    """`move`: the table's new target, `schema.name`."""
    asked_by: str = ""
    """`erase`: the requesting user, for the record."""
    origin: tuple[str, ...] = ()
    """Airflow's DAG id, run id and task id; empty for runs outside Airflow."""
    continuous: Continuous | None = None
    """`run`: keep running when there are no pending files; null: end."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """Specification of one job: `gddl-job --spec` reads its JSON."""

    __pydantic_config__ = STRICT

    run_id: str
    roots: Roots
    tables: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec] = field(default_factory=lambda: dict(DEFAULT_TIERS), metadata={ALWAYS: True})
    options: JobOptions = field(default_factory=JobOptions)
    catalogs: Mapping[str, CatalogSpec] = field(default_factory=dict)
    access: tuple[SourceAccess, ...] = ()
    """Landing roots that are read with credentials of their own; names of them, never a secret."""
    contract_version: int = field(default=CONTRACT_VERSION, metadata={ALWAYS: True})
    ignorable: tuple[str, ...] = ()
    """Fields in use, as `Class.field`, that a job may ignore if it lacks them. `codec.to_document` writes it."""

    @property
    def log_group(self) -> str:
        """Log folder of the job: Airflow's DAG that started it, else its only table, else `jobs`."""
        if self.options.origin:
            return self.options.origin[0]
        return self.tables[0].table if len(self.tables) == 1 else "jobs"
