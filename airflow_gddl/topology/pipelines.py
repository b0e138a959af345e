"""Rows to pipelines: each a DAG with its tables, id, schedule, pool, owners and tags.

Every worker imports this module, which needs no classes of the contract.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_gddl.contract import durations
from airflow_gddl.contract.basics import CALENDAR, AirflowView, Priority
from airflow_gddl.topology.placement import CONTINUOUS, NOWHERE, Group, Pack, Placement, place

if TYPE_CHECKING:
    from airflow_gddl.contract.spec import TableSpec, TierSpec

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
    # Not `hash`: that differs from process to process.
    minute = int.from_bytes(hashlib.sha256(dag_id.encode()).digest()[:8], "big") % 60
    cron = CALENDAR.get(schedule, schedule).format(m=minute)
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
_SHARED_VIEWS: tuple[AirflowView, ...] = ("group", "mapped", "pack")
"""Of packs, the most detailed first."""


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


def arrange(
    tables: Iterable[TableSpec],
    tiers: Mapping[str, TierSpec],
    prefix: str = "",
    before: Placement = NOWHERE,
    at: float = 0.0,
) -> Arrangement:
    """Assign each table to a DAG, keeping the earlier placement. The order of `tables` doesn't matter.

    Args:
        tables: valid rows, each table once, each `size` among the tiers.
        prefix: of DAG ids, and of names of pools that no tier names.
        before: earlier placement.
        at: the current time, seconds since the epoch.
    """
    by_name = {table.table: table for table in sorted(tables, key=lambda table: table.table) if table.enabled}
    served = _SERVED_SECONDS + 2 * max((durations.seconds(tier.run_timeout) for tier in tiers.values()), default=0)
    now = place(_groups(by_name.values(), tiers), before, at, served)
    made, retired = (
        sorted((_pipeline(name, pack, by_name, tiers, prefix) for name, pack in packs.items()), key=lambda p: p.dag_id)
        for packs in (now.packs, now.retired)
    )
    return Arrangement(pipelines=tuple(made), retired=tuple(retired), placement=now)


def _groups(tables: Iterable[TableSpec], tiers: Mapping[str, TierSpec]) -> Iterator[Group]:
    """Tables that may share DAGs; a table whose job or view has only one is alone."""
    groups: defaultdict[tuple[str, str, str, str], list[TableSpec]] = defaultdict(list)
    for table in tables:
        tier, schedule = tiers[table.size], slug(table.cadence)
        if tier.tables_per_job == 1 or (table.airflow or tier.airflow) == "table":
            own = (table.table,)
            yield Pack(source=table.source, tier=table.size, schedule=schedule, tables=own, view="table"), 1
        else:
            owner = table.owner if tier.split_by_owner else None
            groups[table.source, table.size, owner or "", schedule].append(table)
    shared = sum(map(len, groups.values()))
    for (source, size, owner, schedule), members in groups.items():
        view, limit = _view(members, tiers[size], shared), tiers[size].tables_per_job
        names = tuple(table.table for table in members)
        pack = Pack(source=source, tier=size, owner=owner, schedule=schedule, tables=names, view=view)
        yield pack, min(limit, MOST_MAPPED) if view == "mapped" else limit


def _view(tables: Sequence[TableSpec], tier: TierSpec, shared: int) -> AirflowView:
    """The view of tables that may share DAGs: the most detailed one of any of them, so that no DAG id depends on it.

    Args:
        tables: of one tier and schedule; those of a continuous pipeline have one task for all of them.
        shared: tables of all packs.
    """
    usual = "pack" if shared > MAPPED_UP_TO else "group" if len(tables) <= GROUP_UP_TO else "mapped"
    views = {table.airflow or tier.airflow or usual for table in tables if table.cadence != "continuous"}
    return next((view for view in _SHARED_VIEWS if view in views), "pack")


def _pipeline(
    name: str, pack: Pack, by_name: Mapping[str, TableSpec], tiers: Mapping[str, TierSpec], prefix: str
) -> Pipeline:
    """Pipeline of a pack's enabled tables, of which there is at least one. The tier of a retired pack may be gone.

    A retired one has no schedule, unless it is continuous: then it keeps the tasks of its DAG.
    """
    members = [by_name[name] for name in pack.tables if name in by_name]
    size = pack.tier if pack.tier in tiers else members[0].size
    tier = tiers[size]
    priority = max((table.priority for table in members), key=lambda priority: WEIGHTS[priority])
    like = (table.cadence for table in members if not pack.until and slug(table.cadence) == pack.schedule)
    return Pipeline(
        dag_id=f"{prefix}{name}",
        view=pack.view,
        source=pack.source,
        tier=pack.tier,
        priority=priority,
        timing=timing(CONTINUOUS if pack.schedule == CONTINUOUS else next(like, None), name),
        pool=tier.pool or f"{prefix}gddl_{size}",
        slots=tier.slots,
        weight=WEIGHTS[priority],
        owner=owner_of(members),
        tags=tags_of(members, pack.tier, priority),
        tables=tuple(table.table for table in members),
        run_timeout=durations.seconds(tier.run_timeout),
        prefix=prefix,
        queue=tier.queue,
        executor_config=tier.executor_config,
        is_retired=pack.until > 0,
    )
