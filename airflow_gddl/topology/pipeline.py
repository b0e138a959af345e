"""A pipeline: one DAG's worth of tables. Every worker imports this module, which needs no classes of the contract."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_gddl.contract.basics import AirflowView, Priority

CONTINUOUS_POOL = "gddl_continuous"
"""Pool of continuous jobs, which would permanently hold the slots of their tiers; has slots for all of them."""
NO_OWNER = "gddl"


def pool_of_instances(pool: str) -> str:
    """Pool of the instances that show a table each: showing takes no slot from loads. A cleared instance is a load;
    the pool has as many slots as that of the loads, so that these are bounded, too.
    """
    return f"{pool}_tables"


_PLAIN = re.compile(r"[A-Za-z0-9_]+\.[A-Za-z0-9_]+")
_NOT_IN_GROUP_IDS = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST_GROUP_ID = 150


def group_of(table: str) -> str:
    """Id of a table's task group, unique, by its name alone: it stays when other rows change. `shop-orders` for
    `shop.orders`; other names than plain ones, and long ones, get a hash behind two dashes.
    """
    if _PLAIN.fullmatch(table) and len(table) <= _LONGEST_GROUP_ID:
        return table.replace(".", "-")
    legal = _NOT_IN_GROUP_IDS.sub("-", table)[:_LONGEST_GROUP_ID]
    return f"{legal}--{hashlib.sha256(table.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Schedule of a pipeline.

    Attributes:
        kind: `never` runs only manually.
        cron: five fields; empty for the other kinds.
        written: the row's own text; empty for the other kinds.
        assets: names or URIs whose updates, all of them, start a run; empty for the other kinds.
    """

    kind: Literal["cron", "once", "continuous", "assets", "never"]
    cron: str = ""
    written: str = ""
    assets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One DAG's worth of tables.

    Attributes:
        priority: the highest of its tables.
        view: view of its tables in Airflow; see `TableSpec.airflow`.
        tables: sorted; never empty.
        pool: Airflow pool of its loads; the tier gives it `slots` slots.
        weight: Airflow's absolute priority weight.
        run_timeout: seconds that one of its tasks may take.
        prefix: that its DAG id begins with, as those of all pipelines of the metadata; may be empty.
        queue: Airflow queue of its loads; null: the default one.
        executor_config: given to Airflow's executor with its loads.
        is_retired: its tables moved to other pipelines; it has no schedule, and exists only for its active runs.
    """

    dag_id: str
    kind: Literal["pack", "table"]
    source: str
    tier: str
    priority: Priority
    timing: Timing
    pool: str
    slots: int
    weight: int
    owner: str
    tags: tuple[str, ...]
    tables: tuple[str, ...]
    run_timeout: int = 6 * 3600
    view: AirflowView = "pack"
    prefix: str = ""
    queue: str | None = None
    executor_config: Mapping[str, Any] = field(default_factory=dict)
    is_retired: bool = False
