"""Selects the tables of a command, and orders them for a job."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import Priority, TableSpec
from airflow_gddl.contract.table_names import TableNames

_RANK: dict[Priority, int] = {"critical": 0, "high": 1, "normal": 2, "low": 3}


def select(tables: Sequence[TableSpec], names: Sequence[str], bad: Sequence[str]) -> tuple[TableSpec, ...]:
    """The named tables, or all enabled ones when none is named.

    Args:
        tables: the catalog's good rows.
        names: as the user typed them, see `TableNames`.
        bad: names of invalid rows.

    Raises:
        MetadataError: `TABLE_UNKNOWN`, with near matches, `TABLE_AMBIGUOUS` or `TABLE_ROW_BAD`.
    """
    if not names:
        return in_order([table for table in tables if table.enabled])
    known, named = {table.table: table for table in tables}, TableNames(tables)
    found = {name: named.find(name) for name in names}
    for name, target in found.items():
        if target is None and name in bad:
            raise MetadataError("TABLE_ROW_BAD", f"the row of {name!r} is invalid", remedy="see `gddl validate`")
        if target is None:
            raise MetadataError("TABLE_UNKNOWN", f"no row has the table {name!r}", remedy=_hint(name, list(known)))
    return in_order([known[target] for target in dict.fromkeys(found.values()) if target is not None])


def in_order(tables: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
    """Order by priority and name, with each table after its dependencies."""
    sorted_ = sorted(tables, key=lambda t: (_RANK[t.priority], t.table))
    if not any(table.depends_on for table in sorted_):
        return tuple(sorted_)
    waiting = {table.table: table for table in sorted_}
    ordered: list[TableSpec] = []
    while waiting:
        # In a cycle, the most urgent table goes first.
        ready = next((t for t in waiting.values() if not any(d in waiting for d in t.depends_on)), None)
        taken = ready or next(iter(waiting.values()))
        ordered.append(waiting.pop(taken.table))
    return tuple(ordered)


def _hint(name: str, known: Sequence[str]) -> str:
    by_folded = {table.casefold(): table for table in known}
    near = difflib.get_close_matches(name.casefold(), list(by_folded), n=3, cutoff=0.6)
    same_name = [table for table in known if table.split(".", 1)[1].casefold() == name.casefold()]
    found = list(dict.fromkeys([*same_name, *(by_folded[folded] for folded in near)]))[:3]
    return f"did you mean {' or '.join(found)}?" if found else "`gddl status` lists the tables"
