"""Input of a running continuous job: two kinds of small objects in one folder of the lake.

    desired.json      the tables by the current metadata; written by the monitor of the job
    stop-<run id>     asks the job of that id to finish its current batch and end

The job lists the folder to find new objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.codec import ALWAYS
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.source_access import SourceAccess
from airflow_gddl.contract.spec import CONTRACT_VERSION, DEFAULT_TIERS, TableSpec, TierSpec

DESIRED = "desired.json"


@dataclass(frozen=True, kw_only=True)
class DesiredState:
    """Tables that the job loads from now on, their tiers and catalogs."""

    tables: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec] = field(default_factory=lambda: dict(DEFAULT_TIERS), metadata={ALWAYS: True})
    catalogs: Mapping[str, CatalogSpec] = field(default_factory=dict)
    access: tuple[SourceAccess, ...] = ()
    contract_version: int = field(default=CONTRACT_VERSION, metadata={ALWAYS: True})
    ignorable: tuple[str, ...] = ()
    """See `JobSpec.ignorable`."""


def desired_path(folder: str) -> str:
    return join(folder, DESIRED)


def stop_name(run_id: str) -> str:
    """Name of the object that stops a job; hashed, since run ids may contain characters that object names may not."""
    return f"stop-{hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()}"


def stop_path(folder: str, run_id: str) -> str:
    return join(folder, stop_name(run_id))
