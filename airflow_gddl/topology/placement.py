"""Assigns tables to DAGs with stable ids: a table keeps its DAG. Pure.

The previous placement is an input: a table keeps its pack as long as its source, tier, schedule and, where packs are
split by owner, its owner stay the same, so that added or removed tables do not move it. A new table fills a free place
in a matching pack; otherwise a new pack is created.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from airflow_gddl.contract.basics import AirflowView

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_ID = 200


def number(text: str, below: int) -> int:
    """A number from 0 to `below` - 1, evenly spread."""
    # Not `hash`: that differs from process to process.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % below


def legal(name: str) -> str:
    """A legal DAG id; a changed or truncated name gets a hash, so that it stays unique."""
    changed = _ILLEGAL.sub("-", name)
    if changed == name and len(changed) <= _LONGEST_ID:
        return changed
    return f"{changed[:_LONGEST_ID]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


CONTINUOUS = "continuous"


class Base(NamedTuple):
    """Properties that a pack keeps; continuous tables have a DAG with other tasks. `owner`: null unless packs are split
    by it."""

    source: str
    tier: str
    owner: str | None = None
    is_continuous: bool = False


@dataclass(frozen=True, kw_only=True)
class Pack:
    """The tables of a DAG.

    Attributes:
        schedule: slug of the schedule that its tables have (`pipelines.slug`).
        tables: sorted.
        view: what Airflow shows of them; `table` for the DAG of one table.
    """

    source: str
    tier: str
    owner: str | None = None
    schedule: str
    tables: tuple[str, ...]
    view: AirflowView = "pack"

    @property
    def base(self) -> Base:
        return Base(self.source, self.tier, self.owner, self.schedule == CONTINUOUS)


@dataclass(frozen=True, kw_only=True)
class RetiredPack:
    """A DAG whose tables moved to other DAGs; it exists until its runs have ended. `until`: seconds since the epoch."""

    pack: Pack
    until: float


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Placement of every table, by DAG ids without their prefix.

    Attributes:
        packs: those that hold tables.
        single: tables that have a DAG each, by its id.
        retired: ids that are still served.
    """

    packs: Mapping[str, Pack] = field(default_factory=dict)
    single: Mapping[str, Pack] = field(default_factory=dict)
    retired: Mapping[str, RetiredPack] = field(default_factory=dict)
    format: int = 1


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tables that may share packs: those of a base and a schedule. `limit`: tables of a pack at most."""

    base: Base
    schedule: str
    tables: tuple[str, ...]
    limit: int
    view: AirflowView


def place(groups: Sequence[Group], before: Placement) -> dict[str, Pack]:
    """Packs by id, each with the tables of one group and at most its limit; the order of `groups` doesn't matter.

    A pack keeps its schedule as long as one of its tables has it; if all have others, the pack takes over the most
    frequent one, so that a schedule changed for all of them renames nothing.
    """
    by_kind = {(group.base, group.schedule): group for group in groups}
    kept = _kept(by_kind, before)
    names = _UnusedIds({*kept, *_all(before), *before.retired})
    homeless = _homeless(by_kind, kept)
    made = dict(kept)
    for kind in sorted(homeless, key=_sortable):
        group = by_kind[kind]
        made |= _filled(made, group, homeless[kind], names)
    return {name: replace(pack, view=by_kind[pack.base, pack.schedule].view) for name, pack in sorted(made.items())}


_Kind = tuple[Base, str]


def _sortable(kind: _Kind) -> tuple[str, str, str, str]:
    base, schedule = kind
    return base.source, base.tier, base.owner or "", schedule


def _kept(by_kind: Mapping[_Kind, Group], before: Placement) -> dict[str, Pack]:
    """The previous packs, with their remaining tables."""
    schedules: defaultdict[str, dict[str, str]] = defaultdict(dict)
    known, homes = _known(before), _homes(before)
    for (base, schedule), group in by_kind.items():
        for table in group.tables:
            home = next((name for name in homes.get(table, ()) if known[name].base == base), None)
            if home is not None:
                schedules[home][table] = schedule
    kept = {}
    for name in sorted(schedules):
        schedule = _schedule(known[name].schedule, schedules[name].values())
        limit = by_kind[known[name].base, schedule].limit
        staying = sorted(table for table, table_schedule in schedules[name].items() if table_schedule == schedule)
        kept[name] = replace(known[name], schedule=schedule, tables=tuple(staying[:limit]))
    return kept


def _known(before: Placement) -> dict[str, Pack]:
    return {**{name: retired.pack for name, retired in before.retired.items()}, **before.packs}


def _homes(before: Placement) -> dict[str, list[str]]:
    """Current, then previous pack of each table."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for name, pack in sorted(before.packs.items()):
        for table in pack.tables:
            homes[table].append(name)
    for name, retired in sorted(before.retired.items()):
        for table in retired.pack.tables if retired.pack.view != "table" else ():
            homes[table].append(name)
    return homes


def _schedule(current: str, wanted: Iterable[str]) -> str:
    counts = Counter(wanted)
    return current if current in counts else min(counts, key=lambda schedule: (-counts[schedule], schedule))


def _homeless(by_kind: Mapping[_Kind, Group], kept: Mapping[str, Pack]) -> dict[_Kind, list[str]]:
    placed = {table for pack in kept.values() for table in pack.tables}
    unplaced = {kind: sorted(set(group.tables) - placed) for kind, group in by_kind.items()}
    return {kind: tables for kind, tables in unplaced.items() if tables}


def _filled(made: Mapping[str, Pack], group: Group, tables: list[str], names: _UnusedIds) -> dict[str, Pack]:
    """Fill tables into packs of their group with free places, then into new packs of about equal size."""
    packs: dict[str, Pack] = {}
    pack_names = (name for name, pack in made.items() if (pack.base, pack.schedule) == (group.base, group.schedule))
    remaining = list(tables)
    for name in sorted(pack_names, key=_natural):
        taken, remaining = (
            remaining[: group.limit - len(made[name].tables)],
            remaining[group.limit - len(made[name].tables) :],
        )
        if taken:
            packs[name] = replace(made[name], tables=tuple(sorted((*made[name].tables, *taken))))
    for part in _parts(remaining, group.limit):
        source, tier, owner, _ = group.base
        packs[names.new(group.base)] = Pack(
            source=source, tier=tier, owner=owner, schedule=group.schedule, tables=tuple(part)
        )
    return packs


def _parts(tables: Sequence[str], limit: int) -> Iterator[Sequence[str]]:
    """Split into as few packs as possible, whose sizes differ by one at most."""
    count = math.ceil(len(tables) / limit)
    for number in range(count):
        yield tables[len(tables) * number // count : len(tables) * (number + 1) // count]


def _natural(name: str) -> tuple[int, str]:
    """Pack 10 after pack 9."""
    number = name.rpartition(".")[2]
    return (int(number) if re.fullmatch(r"[0-9]{1,9}", number) else 0, name)


class _UnusedIds:
    """Generates unused ids."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._next: defaultdict[str, int] = defaultdict(int)

    def new(self, base: Base) -> str:
        stem = ".".join(("gddl_pack", base.source, base.tier, *([base.owner] if base.owner else [])))
        while True:
            self._next[stem] += 1
            name = legal(f"{stem}.{self._next[stem]}")
            if name not in self._taken:
                self._taken.add(name)
                return name


def retired(before: Placement, now: Placement, enabled: Collection[str], at: float, seconds: float) -> Placement:
    """`now` with the retired ids: previous ids whose tables moved to other DAGs.

    Args:
        enabled: tables that have DAGs.
        at: seconds since the epoch.
        seconds: how long an id is kept after its last table moved.
    """
    serving = {*now.packs, *now.single}
    previous = {name: RetiredPack(pack=pack, until=at + seconds) for name, pack in _all(before).items()}
    retired_packs = {
        name: one
        for name, one in sorted({**previous, **before.retired}.items())
        if name not in serving and one.until > at and any(table in enabled for table in one.pack.tables)
    }
    return replace(now, retired=retired_packs)


def _all(before: Placement) -> dict[str, Pack]:
    return {**before.packs, **before.single}


def homes(placement: Placement) -> dict[str, str]:
    """DAG id, without its prefix, by table."""
    return {table: name for name, pack in _all(placement).items() for table in pack.tables}
