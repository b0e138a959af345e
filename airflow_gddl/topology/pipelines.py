"""Tables and tiers to pipelines, and the Airflow pools that pipelines need."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract import durations
from airflow_gddl.contract.basics import CALENDAR, AirflowView, Priority
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.topology.pipeline import CONTINUOUS_POOL, NO_OWNER, Pipeline, Timing, pool_of_instances
from airflow_gddl.topology.placement import CONTINUOUS, Base, Group, Pack, Placement, legal, number, place, retired

_CONTINUOUS_SLOTS = 128
_DESCRIPTION = "Loads of airflow-gddl; slots come from the tier."


def pools(pipelines: Iterable[Pipeline]) -> dict[str, dict[str, Any]]:
    """Pools by name, in the form that `airflow pools import` reads.

    Deferred tasks count: a load whose job runs elsewhere holds its slot. Where tiers share a pool, the most slots win.
    The pool of continuous pipelines is always created, so that a row can become continuous at any time.
    """
    slots: dict[str, int] = {}
    for pipeline in pipelines:
        instances = [pool_of_instances(pipeline.pool)] if pipeline.view in ("group", "mapped") else []
        for name in (pipeline.pool, *instances):
            slots[name] = max(pipeline.slots, slots.get(name, 0))
    if slots:
        slots[CONTINUOUS_POOL] = _CONTINUOUS_SLOTS
    return {
        name: {"slots": count, "description": _DESCRIPTION, "include_deferred": True}
        for name, count in sorted(slots.items())
    }


Schedule = str | Mapping[str, tuple[str, ...]] | None


def timing(schedule: Schedule, dag_id: str) -> Timing:
    """A row's schedule as a timing; a preset's minute is the DAG id's own, an explicit cron line stays as it is."""
    if schedule is None:
        return Timing(kind="never")
    if not isinstance(schedule, str):
        return Timing(kind="assets", assets=tuple(sorted(set(schedule["assets"]))))
    if schedule in ("continuous", "@once"):
        return Timing(kind="continuous" if schedule == "continuous" else "once")
    cron = CALENDAR.get(schedule, schedule).format(m=number(dag_id, 60))
    return Timing(kind="cron", cron=cron, written=schedule)


def slug(schedule: Schedule) -> str:
    """A short unique name of a schedule for DAG ids."""
    if schedule is None:
        return "manual"
    if isinstance(schedule, str):
        plain = schedule.removeprefix("@")
        return plain if plain.isalpha() else f"cron-{_cron_words(plain)}"
    names = sorted(set(schedule["assets"]))
    return f"assets-{_short_hash(chr(10).join(names))}"


def _cron_words(cron: str) -> str:
    """`*/15 * * * *` as `x-15_x_x_x_x-1f2e3d`: the hash says what the letters can't."""
    words = "_".join(re.sub(r"[^A-Za-z0-9]+", "-", field.replace("*", "x")) for field in cron.split())
    return f"{words[:40]}-{_short_hash(' '.join(cron.split()))}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


GROUP_UP_TO = 50
"""Tables of a source, tier and schedule up to which their packs are `group` unless metadata says otherwise: each run
has three task instances a table, with work or without."""
MAPPED_UP_TO = 500
"""Tables in packs up to which packs are `mapped` unless metadata says otherwise: each run then has a task instance for
each table with work, and a task instance takes a worker more than a second."""
MOST_MAPPED = 1000
"""Tables of a mapped pack; Airflow refuses to map over more than `[core] max_map_length`, 1024 unless changed."""


def default_view(tables: int, alike: int) -> AirflowView:
    """Default view of packs.

    Args:
        tables: those of all packs.
        alike: those of them that may share packs.
    """
    if tables > MAPPED_UP_TO:
        return "pack"
    return "group" if alike <= GROUP_UP_TO else "mapped"


def has_own_dag(table: TableSpec, tier: TierSpec) -> bool:
    """A job of one table has its own DAG, independent of the view."""
    return tier.tables_per_job == 1 or (table.airflow or tier.airflow) == "table"


def view_of_pack(tables: Iterable[TableSpec], tier: TierSpec, usual: AirflowView) -> AirflowView:
    """The view of tables that share DAGs: the most detailed one of any of them, so that no DAG id depends on the view.

    Args:
        tables: of one tier and schedule; those of a continuous pipeline have one task for all of them.
        usual: see `default_view`.
    """
    views = {table.airflow or tier.airflow or usual for table in tables if table.cadence != "continuous"}
    return next((view for view in _SHARED_VIEWS if view in views), "pack")


_SHARED_VIEWS: tuple[AirflowView, ...] = ("group", "mapped", "pack")
"""Of packs, the most detailed first."""
_LONGEST_TAG = 100
_MOST_OWNERS, _MOST_OWNER_TAGS, _MOST_LABELS = 5, 10, 20
"""Of a pack: Airflow shows all owners and tags of a DAG in one cell."""


def owner_of(tables: Sequence[TableSpec]) -> str:
    """The owners of the rows as Airflow separates them, `gddl` for rows without one, and where there are more than
    fit.
    """
    owners = sorted({table.owner or NO_OWNER for table in tables})
    return ", ".join(owners) if len(owners) <= _MOST_OWNERS else NO_OWNER


def label_of(key: str, value: str) -> str:
    """A row's tag as Airflow shows it."""
    return f"{key}:{value}" if value else key


def tags_of(tables: Sequence[TableSpec], tier: str, priority: Priority) -> tuple[str, ...]:
    """Source, tier and priority, `owner:<owner>` and the labels of the rows, sorted; of a pack the most frequent ones.

    Args:
        tables: of one source; never empty.
        priority: the highest of them.
    """
    alone = len(tables) == 1
    owners = [f"owner:{table.owner}" for table in tables if table.owner]
    labels = [label_of(key, value) for table in tables for key, value in table.tags.items()]
    pipeline_tags = ("gddl", tables[0].source, tier, f"priority:{priority}")
    chosen = (*pipeline_tags, *_most(owners, _MOST_OWNER_TAGS), *(labels if alone else _most(labels, _MOST_LABELS)))
    return tuple(sorted({tag[:_LONGEST_TAG] for tag in chosen}))


def _most(tags: Iterable[str], limit: int) -> list[str]:
    """The most frequent ones, by name where as many rows have them: independent of the order of rows."""
    return [tag for tag, _ in Counter(sorted(tags)).most_common(limit)]


WEIGHTS: Mapping[Priority, int] = {"low": 1, "normal": 10, "high": 100, "critical": 1000}
_SERVED_SECONDS = 7 * 86400
"""Seconds that an id without tables is served, in addition to the longest run."""


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """Every enabled table in exactly one of `pipelines`.

    Attributes:
        pipelines: sorted by DAG id.
        retired: pipelines that exist only for their active runs and history, sorted by DAG id.
        placement: placement of the tables, input of the next arrangement.
    """

    pipelines: tuple[Pipeline, ...]
    retired: tuple[Pipeline, ...]
    placement: Placement


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Previous placement of the tables, and the current time.

    Attributes:
        placement: empty: nowhere yet.
        at: seconds since the epoch.
    """

    placement: Placement = field(default_factory=Placement)
    at: float = 0.0


NOWHERE = Placed()


def arrange(
    tables: Iterable[TableSpec], tiers: Mapping[str, TierSpec], prefix: str = "", before: Placed = NOWHERE
) -> Arrangement:
    """Assign each table to a DAG, keeping the earlier placement. The order of `tables` doesn't matter.

    Args:
        tables: valid rows, each table once, each `size` among the tiers.
        prefix: of DAG ids, and of names of pools that no tier names.
        before: earlier placement, and the current time.
    """
    enabled = sorted((table for table in tables if table.enabled), key=lambda table: table.table)
    by_name = {table.table: table for table in enabled}
    single = {legal(f"gddl.{t.table}"): _single(t) for t in enabled if has_own_dag(t, tiers[t.size])}
    shared = [table for table in enabled if not has_own_dag(table, tiers[table.size])]
    now = Placement(packs=place(_groups(shared, tiers), before.placement), single=single)
    served = _SERVED_SECONDS + 2 * max((durations.seconds(tier.run_timeout) for tier in tiers.values()), default=0)
    now = retired(before.placement, now, by_name.keys(), before.at, served)
    made = (_pipeline(name, pack, by_name, tiers, prefix) for name, pack in {**now.packs, **single}.items())
    retired_pipelines = (
        _retired(_pipeline(name, one.pack, by_name, tiers, prefix)) for name, one in now.retired.items()
    )
    return Arrangement(pipelines=_by_id(made), retired=_by_id(retired_pipelines), placement=now)


def _by_id(made: Iterable[Pipeline]) -> tuple[Pipeline, ...]:
    return tuple(sorted(made, key=lambda pipeline: pipeline.dag_id))


def _retired(pipeline: Pipeline) -> Pipeline:
    """Without a schedule; with the tasks that its DAG had."""
    kept = pipeline.timing.kind == "continuous"
    return replace(pipeline, is_retired=True, timing=pipeline.timing if kept else Timing(kind="never"))


def pipelines(tables: Iterable[TableSpec], tiers: Mapping[str, TierSpec], prefix: str = "") -> tuple[Pipeline, ...]:
    """The pipelines of `arrange` without a previous placement."""
    return arrange(tables, tiers, prefix).pipelines


def _single(table: TableSpec) -> Pack:
    return Pack(source=table.source, tier=table.size, schedule=slug(table.cadence), tables=(table.table,), view="table")


def _groups(tables: Sequence[TableSpec], tiers: Mapping[str, TierSpec]) -> list[Group]:
    groups: defaultdict[tuple[Base, str], list[TableSpec]] = defaultdict(list)
    for table in tables:
        owner = table.owner or None if tiers[table.size].split_by_owner else None
        schedule = slug(table.cadence)
        groups[Base(table.source, table.size, owner, schedule == CONTINUOUS), schedule].append(table)
    return [
        _group(base, schedule, members, tiers[base.tier], default_view(len(tables), len(members)))
        for (base, schedule), members in groups.items()
    ]


def _group(base: Base, schedule: str, members: Sequence[TableSpec], tier: TierSpec, usual: AirflowView) -> Group:
    view = view_of_pack(members, tier, usual)
    limit = min(tier.tables_per_job, MOST_MAPPED) if view == "mapped" else tier.tables_per_job
    return Group(base=base, schedule=schedule, tables=tuple(t.table for t in members), limit=limit, view=view)


def _pipeline(
    name: str, pack: Pack, by_name: Mapping[str, TableSpec], tiers: Mapping[str, TierSpec], prefix: str
) -> Pipeline:
    """Pipeline of a pack's enabled tables, of which there is at least one. The tier of a retired pack may be gone."""
    members = [by_name[name] for name in pack.tables if name in by_name]
    tier = tiers.get(pack.tier) or tiers[members[0].size]
    priority = max((table.priority for table in members), key=lambda priority: WEIGHTS[priority])
    like = next((table.cadence for table in members if slug(table.cadence) == pack.schedule), None)
    return Pipeline(
        dag_id=f"{prefix}{name}",
        kind="table" if pack.view == "table" else "pack",
        view=pack.view,
        source=pack.source,
        tier=pack.tier,
        priority=priority,
        timing=timing(CONTINUOUS if pack.schedule == CONTINUOUS else like, name),
        pool=tier.pool or f"{prefix}gddl_{pack.tier if pack.tier in tiers else members[0].size}",
        slots=tier.slots,
        weight=WEIGHTS[priority],
        owner=owner_of(members),
        tags=tags_of(members, pack.tier, priority),
        tables=tuple(table.table for table in members),
        run_timeout=durations.seconds(tier.run_timeout),
        prefix=prefix,
        queue=tier.queue,
        executor_config=tier.executor_config,
    )
