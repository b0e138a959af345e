"""Every table with its state, to list, filter, sort and count; used by the page and the command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from airflow_gddl.metadata.topology.rows import TableRow
from airflow_gddl.runtime.state.facts import RunFact, TableRecord
from airflow_gddl.runtime.state.judging import MOST_QUARANTINED, STATES, Knowledge, TablePoll, TableStatus, judge
from airflow_gddl.runtime.state.reading import LakeState

Order = Literal["urgency", "lag", "table", "last_run", "quarantined", "waiting"]
Facet = Literal["source", "tier", "priority", "owner"]
FACETS: tuple[Facet, ...] = ("source", "tier", "priority", "owner")
_PRIORITIES = {"critical": 0, "high": 1, "normal": 2, "low": 3}
_URGENCY = {state: rank for rank, state in enumerate(STATES)}


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """A table, its facts (empty before any run) and its current state."""

    row: TableRow
    record: TableRecord
    poll: TablePoll | None
    state: TableStatus

    @cached_property
    def newest(self) -> RunFact | None:
        return self.record.newest


def standings(
    rows: Iterable[TableRow], known: LakeState, now: float, quarantine_rate: float = MOST_QUARANTINED
) -> list[BoardRow]:
    """One for each row, in the same order; for `quarantine_rate` see `judging.Knowledge`."""
    made = []
    for row in rows:
        name = row.table
        of_it = Knowledge(
            record=known.records.get(name, TableRecord()),
            poll=known.polls.get(name),
            running=known.running.get(name),
            seen=known.seen.get(name),
            quarantine_rate=quarantine_rate,
        )
        # No pipeline loads an invalid row; users who may see its last pipeline may see its state.
        shown = replace(row, dag_id=known.homes.get(name)) if row.problems else row
        made.append(BoardRow(row=shown, record=of_it.record, poll=of_it.poll, state=judge(row, of_it, now)))
    return made


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


def chosen(found: Iterable[BoardRow], query: TableQuery) -> list[BoardRow]:
    """Tables that match the query, in its order, then by name."""
    words = query.search.casefold().split()
    picked = [one for one in found if _fits(one, query, words)]
    picked.sort(key=lambda one: one.row.table, reverse=query.descending and query.order == "table")
    if query.order != "table":
        picked.sort(key=_KEYS[query.order], reverse=query.descending)
    return picked


def counts(found: Iterable[BoardRow]) -> dict[str, int]:
    """State to the number of tables in it, every state."""
    met = Counter(one.state.state for one in found)
    return {state: met[state] for state in STATES}


def facets(found: Iterable[BoardRow]) -> dict[Facet, list[str]]:
    """The values to filter by, sorted."""
    rows = [one.row for one in found]
    return {name: sorted({value for row in rows if (value := getattr(row, name))}) for name in FACETS}


def _fits(one: BoardRow, query: TableQuery, words: Sequence[str]) -> bool:
    row, name = one.row, f"{one.row.table} {one.row.source}:{one.row.name_in_source}".casefold()
    return (
        all(word in name for word in words)
        and _among(row.source, query.sources)
        and _among(row.tier, query.tiers)
        and _among(row.priority, query.priorities)
        and _among(row.owner or "", query.owners)
        and (not query.states or bool(_all_states(one).intersection(query.states)))
    )


def _among(value: str, wanted: Collection[str]) -> bool:
    return not wanted or value in wanted


def _all_states(one: BoardRow) -> set[str]:
    state = one.state
    states = {"late": state.late, "failed": state.failed, "attention": bool(state.attention)}
    states |= {"running": state.running is not None, "quarantined": one.record.quarantined > 0}
    return {state.state, *(name for name, holds in states.items() if holds)}


def _urgency(one: BoardRow) -> tuple[int, int, float]:
    return _URGENCY[one.state.state], _PRIORITIES.get(one.row.priority, 9), -(one.state.behind or 0.0)


_KEYS: dict[str, Callable[[BoardRow], tuple[float, ...]]] = {
    "urgency": _urgency,
    # Longest first; tables without a lag come last.
    "lag": lambda one: (0.0 if one.state.lag is None else -one.state.lag - 1e18,),
    "last_run": lambda one: (-(one.record.started or 0.0),),
    "quarantined": lambda one: (-float(one.record.quarantined),),
    "waiting": lambda one: (-float(one.state.waiting),),
}
