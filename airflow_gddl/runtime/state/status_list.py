"""The status of many tables, to list, filter, sort and count; used by the page, the command and the alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from airflow_gddl.contract.basics import PRIORITY_RANK
from airflow_gddl.runtime.state.table_status import (
    STATES,
    TableStatus,
)

Order = Literal["urgency", "lag", "table", "last_run", "as_of", "rows", "quarantined", "waiting"]
Facet = Literal["source", "tier", "priority", "owner"]
FACETS: tuple[Facet, ...] = ("source", "tier", "priority", "owner")
_URGENCY = {state: rank for rank, state in enumerate(STATES)}


@dataclass(frozen=True, kw_only=True)
class TableQuery:
    """Filters and sorting. Empty: all.

    Attributes:
        search: parts of the table's name, in any case; all of them must be in it.
        states: any of these; `late`, `failed`, `attention` and `running` also match tables with other states at the
            same time, and `quarantined` those with rows or files in quarantine.
    """

    search: str = ""
    states: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    order: Order = "urgency"
    descending: bool = False


def chosen(tables: Iterable[TableStatus], query: TableQuery) -> list[TableStatus]:
    """Tables that match the query, in its order, then by name."""
    words = query.search.casefold().split()
    picked = [one for one in tables if _fits(one, query, words)]
    picked.sort(key=lambda one: one.row.table, reverse=query.descending and query.order == "table")
    if query.order != "table":
        picked.sort(key=_KEYS[query.order], reverse=query.descending)
    return picked


def counts(tables: Iterable[TableStatus]) -> dict[str, int]:
    """State to the number of tables in it, every state."""
    met = Counter(one.state for one in tables)
    return {state: met[state] for state in STATES}


def choices(tables: Iterable[TableStatus], query: TableQuery) -> dict[str, int]:
    """The number of tables that the query lists with one of its states alone, for every state and `quarantined`; and
    as `all` without any."""
    fitting = chosen(tables, replace(query, states=(), order="table"))
    met = Counter(state for one in fitting for state in _all_states(one))
    return {"all": len(fitting), **{state: met[state] for state in (*STATES, "quarantined")}}


def facets(tables: Iterable[TableStatus]) -> dict[Facet, list[str]]:
    """The values to filter by, sorted."""
    rows = [one.row for one in tables]
    return {name: sorted({value for row in rows if (value := getattr(row, name))}) for name in FACETS}


def _fits(one: TableStatus, query: TableQuery, words: Sequence[str]) -> bool:
    row, name = one.row, f"{one.row.table} {one.row.source}:{one.row.name_in_source}".casefold()
    wanted = (
        ({row.source}, query.sources),
        ({row.tier}, query.tiers),
        ({row.priority}, query.priorities),
        ({row.owner or ""}, query.owners),
        (_all_states(one), query.states),
    )
    return all(word in name for word in words) and all(not any_of or values & {*any_of} for values, any_of in wanted)


def _all_states(one: TableStatus) -> set[str]:
    states = {"late": one.late, "failed": one.failed, "attention": bool(one.attention)}
    states |= {"running": one.running is not None, "quarantined": one.record.quarantined > 0}
    return {one.state, *(name for name, holds in states.items() if holds)}


_KEYS: dict[str, Callable[[TableStatus], tuple[float, ...]]] = {
    "urgency": lambda one: (_URGENCY[one.state], PRIORITY_RANK.get(one.row.priority, 9), -(one.behind or 0.0)),
    # Longest first; tables without a lag come last.
    "lag": lambda one: (0.0 if one.lag is None else -one.lag - 1e18,),
    # The stalest first; tables that never were up to date come before.
    "as_of": lambda one: (-1.0 if one.as_of is None else one.as_of,),
    # Most first; tables of unknown size come last.
    "rows": lambda one: (1.0 if one.record.rows is None else -float(one.record.rows),),
    "last_run": lambda one: (-(one.record.started or 0.0),),
    "quarantined": lambda one: (-float(one.record.quarantined),),
    "waiting": lambda one: (-float(one.waiting),),
}
