"""Tables to pipelines: a DAG each for tiers of one table a job, packs for the others."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_gddl.contract import durations
from airflow_gddl.contract.spec import AirflowView, Priority, TableSpec, TierSpec
from airflow_gddl.metadata.topology.labels import owner_of, tags_of
from airflow_gddl.metadata.topology.packing import pack
from airflow_gddl.metadata.topology.schedules import Timing, slug, timing
from airflow_gddl.metadata.topology.views import MOST_MAPPED, default_view, has_own_dag, view_of_pack

WEIGHTS: Mapping[Priority, int] = {"low": 1, "normal": 10, "high": 100, "critical": 1000}
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_ID = 200


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One DAG's worth of tables.

    Attributes:
        view: what Airflow shows of its tables; see `TableSpec.airflow`.
        tables: sorted; never empty.
        pool: Airflow pool of its loads; the tier gives it `slots` slots.
        weight: Airflow's absolute priority weight.
        freshness: seconds; the shortest of its tables' longest lags; null when none has one.
        run_timeout: seconds that one of its tasks may take.
        prefix: that its DAG id begins with, as those of all pipelines of the metadata; may be empty.
        queue: Airflow queue of its loads; null: the default one.
        executor_config: given to Airflow's executor with its loads.
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
    freshness: int | None = None
    run_timeout: int = 6 * 3600
    view: AirflowView = "pack"
    prefix: str = ""
    queue: str | None = None
    executor_config: Mapping[str, Any] = field(default_factory=dict)


def pipelines(tables: Iterable[TableSpec], tiers: Mapping[str, TierSpec], prefix: str = "") -> tuple[Pipeline, ...]:
    """Every enabled table in exactly one pipeline, sorted by DAG id; the order of `tables` doesn't matter.

    Args:
        tables: sound rows, each table once, each `size` among the tiers.
        prefix: begins DAG ids, and names of pools that no tier names.
    """
    enabled = sorted((table for table in tables if table.enabled), key=lambda table: table.table)
    single = [table for table in enabled if has_own_dag(table, tiers[table.size])]
    shared = [table for table in enabled if not has_own_dag(table, tiers[table.size])]
    made = [*(_of_table(table, tiers[table.size]) for table in single), *_packs(shared, tiers)]
    finished = (_finished(pipeline, tiers[pipeline.tier], prefix) for pipeline in made)
    return tuple(sorted(finished, key=lambda pipeline: pipeline.dag_id))


def _finished(pipeline: Pipeline, tier: TierSpec, prefix: str) -> Pipeline:
    """With what any pipeline has of its tier and of the metadata folder."""
    return replace(
        pipeline,
        dag_id=f"{prefix}{pipeline.dag_id}",
        pool=pipeline.pool if tier.pool else f"{prefix}{pipeline.pool}",
        prefix=prefix,
        queue=tier.queue,
        executor_config=tier.executor_config,
    )


def _of_table(table: TableSpec, tier: TierSpec) -> Pipeline:
    dag_id = _legal(f"gddl.{table.table}")
    return Pipeline(
        dag_id=dag_id,
        kind="table",
        view="table",
        source=table.source,
        tier=table.size,
        priority=table.priority,
        timing=timing(table.cadence, dag_id),
        pool=tier.pool or f"gddl_{table.size}",
        slots=tier.slots,
        weight=WEIGHTS[table.priority],
        owner=owner_of([table]),
        tags=tags_of([table]),
        tables=(table.table,),
        freshness=_tightest([table]),
        run_timeout=durations.seconds(tier.run_timeout),
    )


def _packs(tables: Sequence[TableSpec], tiers: Mapping[str, TierSpec]) -> Iterator[Pipeline]:
    groups: defaultdict[str, list[TableSpec]] = defaultdict(list)
    usual = default_view(len(tables))
    for table in tables:
        groups[_group(table, tiers[table.size])].append(table)
    for group, members in groups.items():
        like, tier, by_name = members[0], tiers[members[0].size], {table.table: table for table in members}
        view = view_of_pack(members, tier, usual)
        limit = min(tier.tables_per_job, MOST_MAPPED) if view == "mapped" else tier.tables_per_job
        for leaf, names in pack((table.table for table in members), limit).items():
            dag_id, own = _legal(f"gddl_pack.{group}.{leaf or 'all'}"), [by_name[name] for name in names]
            yield Pipeline(
                dag_id=dag_id,
                kind="pack",
                view=view,
                source=like.source,
                tier=like.size,
                priority=like.priority,
                timing=timing(like.cadence, dag_id),
                pool=tier.pool or f"gddl_{like.size}",
                slots=tier.slots,
                weight=WEIGHTS[like.priority],
                owner=owner_of(own),
                tags=tags_of(own),
                tables=names,
                freshness=_tightest(own),
                run_timeout=durations.seconds(tier.run_timeout),
            )


def _tightest(tables: Iterable[TableSpec]) -> int | None:
    return min((durations.seconds(table.freshness) for table in tables if table.freshness is not None), default=None)


def _group(table: TableSpec, tier: TierSpec) -> str:
    like = f"{table.source}.{table.size}.{slug(table.cadence)}.{table.priority}"
    return f"{like}.{table.owner}" if tier.split_by_owner and table.owner else like


def _legal(name: str) -> str:
    """A legal DAG id; a name that had to be changed or cut gets a hash, so that two of them stay two."""
    legal = _ILLEGAL.sub("-", name)
    if legal == name and len(legal) <= _LONGEST_ID:
        return legal
    return f"{legal[:_LONGEST_ID]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
