"""Stable DAG ids: which tables share a DAG, and under which id. Pure.

The previous placement is an input: a table keeps its pack as long as its source, tier, schedule and, where packs are
split by owner, its owner stay the same, so that added or removed tables do not move it. A new table fills a free place
in a matching pack; otherwise a new pack is created.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.basics import AirflowView

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_ID = 200
CONTINUOUS = "continuous"


def legal(name: str) -> str:
    """A legal DAG id; a changed or truncated name gets a hash, so that it stays unique."""
    changed = _ILLEGAL.sub("-", name)
    if changed == name and len(changed) <= _LONGEST_ID:
        return changed
    return f"{changed[:_LONGEST_ID]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


_Kind = tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class Pack:
    """The tables of a DAG, or all that may share DAGs.

    Attributes:
        owner: empty unless packs are split by it.
        schedule: slug of the schedule that its tables have (`pipelines.slug`).
        tables: sorted.
        view: what Airflow shows of them; `table` for the DAG of one table.
        until: of a DAG whose tables moved to other DAGs: when it ends, seconds since the epoch; 0: its tables are here.
    """

    source: str
    tier: str
    owner: str = ""
    schedule: str
    tables: tuple[str, ...]
    view: AirflowView = "pack"
    until: float = 0.0

    @property
    def kind(self) -> _Kind:
        """What tables of a pack have in common."""
        return self.source, self.tier, self.owner, self.schedule

    @property
    def base(self) -> tuple[object, ...]:
        """What a pack keeps; continuous tables have a DAG with other tasks."""
        return self.source, self.tier, self.owner, self.schedule == CONTINUOUS


Group = tuple[Pack, int]
"""Tables that may share packs, and the most tables of a pack."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Placement of every table, by DAG ids without their prefix.

    Attributes:
        packs: those that hold tables.
        retired: ids that are still served.
    """

    packs: Mapping[str, Pack] = field(default_factory=dict)
    retired: Mapping[str, Pack] = field(default_factory=dict)
    format: int = 1

    @property
    def homes(self) -> dict[str, str]:
        """DAG id, without its prefix, by table."""
        return {table: name for name, pack in self.packs.items() for table in pack.tables}


NOWHERE = Placement()


def place(groups: Iterable[Group], before: Placement, at: float, served: float) -> Placement:
    """Each table in one DAG; the order of `groups` doesn't matter.

    A pack keeps its schedule as long as one of its tables has it; if all have others, the pack takes over the most
    frequent one, so that a schedule changed for all of them renames nothing.

    Args:
        at: seconds since the epoch.
        served: seconds that an id is kept after its last table moved.
    """
    shared: dict[_Kind, Group] = {}
    now: dict[str, Pack] = {}
    for pack, limit in groups:
        if pack.view == "table":
            now[legal(f"gddl.{pack.tables[0]}")] = pack
        else:
            shared[pack.kind] = pack, limit
    now |= {name: replace(pack, view=shared[pack.kind][0].view) for name, pack in _packs(shared, before).items()}
    enabled = {table for pack in now.values() for table in pack.tables}
    previous = {name: replace(pack, until=at + served) for name, pack in before.packs.items()}
    retired = {
        name: pack
        for name, pack in sorted({**previous, **before.retired}.items())
        if name not in now and pack.until > at and not enabled.isdisjoint(pack.tables)
    }
    return Placement(packs=dict(sorted(now.items())), retired=retired)


def _packs(groups: Mapping[_Kind, Group], before: Placement) -> dict[str, Pack]:
    """The previous packs with their remaining tables, filled up, and new ones."""
    made = _kept(groups, before)
    placed = {table for pack in made.values() for table in pack.tables}
    for _, (group, limit) in sorted(groups.items()):
        if homeless := sorted(set(group.tables) - placed):
            made |= _filled(made, group, limit, homeless, _new_ids(group, {*before.packs, *before.retired, *made}))
    return made


def _kept(groups: Mapping[_Kind, Group], before: Placement) -> dict[str, Pack]:
    known: dict[str, Pack] = {}
    homes: defaultdict[str, list[str]] = defaultdict(list)  # current, then previous pack of each table
    for name, pack in (*sorted(before.packs.items()), *sorted(before.retired.items())):
        if pack.view != "table":
            known[name] = pack
            for table in pack.tables:
                homes[table].append(name)
    schedules: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for group, _ in groups.values():
        for table in group.tables:
            home = next((name for name in homes[table] if known[name].base == group.base), None)
            if home is not None:
                schedules[home][table] = group.schedule
    kept = {}
    for name in sorted(schedules):
        schedule = _schedule(known[name].schedule, schedules[name].values())
        pack = replace(known[name], schedule=schedule, until=0.0)
        staying = sorted(table for table, wanted in schedules[name].items() if wanted == schedule)
        kept[name] = replace(pack, tables=tuple(staying[: groups[pack.kind][1]]))
    return kept


def _schedule(current: str, wanted: Iterable[str]) -> str:
    counts = Counter(wanted)
    return current if current in counts else min(counts, key=lambda schedule: (-counts[schedule], schedule))


def _filled(
    made: Mapping[str, Pack], group: Pack, limit: int, tables: Sequence[str], new_ids: Iterator[str]
) -> dict[str, Pack]:
    """Fill tables into packs of their group with free places, then into new packs of about equal size."""
    packs: dict[str, Pack] = {}
    for name in sorted((name for name, pack in made.items() if pack.kind == group.kind), key=_natural):
        own = made[name].tables
        if taken := tables[: limit - len(own)]:
            packs[name] = replace(made[name], tables=tuple(sorted((*own, *taken))))
        tables = tables[len(taken) :]
    count = math.ceil(len(tables) / limit)
    for number in range(count):
        part = tables[len(tables) * number // count : len(tables) * (number + 1) // count]
        packs[next(new_ids)] = replace(group, tables=tuple(part))
    return packs


def _natural(name: str) -> tuple[int, str]:
    """Pack 10 after pack 9."""
    number = name.rpartition(".")[2]
    return (int(number) if re.fullmatch(r"[0-9]{1,9}", number) else 0, name)


def _new_ids(group: Pack, used: set[str]) -> Iterator[str]:
    stem = ".".join(("gddl_pack", group.source, group.tier, *([group.owner] if group.owner else [])))
    ids = (legal(f"{stem}.{number}") for number in itertools.count(1))
    return (name for name in ids if name not in used)
