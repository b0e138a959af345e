"""What a continuous job is told while it runs, through two sorts of small objects in one folder of the lake.

    order.json        the tables as the metadata has them now; written by whoever keeps the job alive
    stop-<run id>     its presence tells the job of that id to finish what it is at, and end

One listing of the folder tells the job whether there is anything to read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import CONTRACT_VERSION, DEFAULT_TIERS, TableSpec, TierSpec

ORDER = "order.json"


@dataclass(frozen=True, kw_only=True)
class DesiredState:
    """Which tables the job keeps from now on, and what their sizes mean."""

    tables: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec] = field(default_factory=lambda: dict(DEFAULT_TIERS))
    contract_version: int = CONTRACT_VERSION


def order_path(folder: str) -> str:
    return join(folder, ORDER)


def stop_name(run_id: str) -> str:
    """Name of the object that stops a job: run ids may hold what names of objects may not."""
    return f"stop-{hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()}"


def stop_path(folder: str, run_id: str) -> str:
    return join(folder, stop_name(run_id))
