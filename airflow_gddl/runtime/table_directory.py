"""A short row for every table of the metadata, for lists and filters of thousands of tables.

Selects tables by what their rows say, in the words of dbt's selectors.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from airflow_gddl.contract import durations
from airflow_gddl.contract.basics import PRIORITY_RANK
from airflow_gddl.contract.codes import TABLE_ROW_BAD, TABLE_UNKNOWN
from airflow_gddl.contract.errors import MetadataError, invalid_option
from airflow_gddl.contract.names import TableNames
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.cron import longest_gap
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.topology.pipelines import Pipeline, label_of


@dataclass(frozen=True)
class TableRow:
    """A table and who loads it.

    Attributes:
        dag_id: the pipeline that loads it; null when none does.
        tier: the row's `size`; empty for an invalid row, as are `source` and `priority`.
        freshness: limit of `TableStatus.behind` in seconds; null for none.
        grace: seconds from the first poll within which the first load may end: the longest interval of the schedule and
            `freshness`; null where there is no `freshness`.
        problems: problems of the row, one line each; empty: none.
        source_table: `schema.name` in the source; null: `table`.
        tags: names of its tags, and names with values as Airflow shows them.
        depends_on: tables that are loaded before it.
        heartbeat: the lake's table of its source's heartbeat; null: none.
    """

    table: str
    source: str = ""
    tier: str = ""
    priority: str = ""
    owner: str | None = None
    freshness: int | None = None
    enabled: bool = True
    dag_id: str | None = None
    grace: int | None = None
    problems: tuple[str, ...] = ()
    source_table: str | None = None
    tags: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    heartbeat: str | None = None

    @property
    def name_in_source(self) -> str:
        """`schema.name` in the source."""
        return self.source_table or self.table


def row_of(spec: TableSpec, pipeline: Pipeline | None) -> TableRow:
    """What pages and alerts need to know of a table's row.

    Args:
        pipeline: that loads it; null: none does.
    """
    freshness = durations.seconds(spec.freshness) if spec.freshness else None
    interval = longest_gap(pipeline.timing.cron) if pipeline is not None and pipeline.timing.cron else 0
    return TableRow(
        table=spec.table,
        source=spec.source,
        tier=spec.size,
        priority=spec.priority,
        owner=spec.owner,
        freshness=freshness,
        enabled=spec.enabled,
        dag_id=None if pipeline is None else pipeline.dag_id,
        grace=None if freshness is None else interval + freshness,
        source_table=spec.source_table,
        tags=tuple(label for key, value in spec.tags.items() for label in dict.fromkeys((key, label_of(key, value)))),
        depends_on=spec.depends_on,
        heartbeat=spec.heartbeat,
    )


def table_rows(
    specs: Collection[TableSpec], made: Iterable[Pipeline], problems: Iterable[Problem] = ()
) -> tuple[TableRow, ...]:
    """A row for each table, including disabled and invalid ones, sorted by name.

    Args:
        made: the pipelines of these tables.
        problems: of the metadata. Those that name no table, or one that another row defines, make no row.
    """
    by_table = {table: pipeline for pipeline in made for table in pipeline.tables}
    rows = [row_of(spec, by_table.get(spec.table)) for spec in specs]
    return tuple(sorted((*rows, *_broken(specs, problems)), key=lambda row: row.table))


def _broken(specs: Iterable[TableSpec], problems: Iterable[Problem]) -> list[TableRow]:
    sound = {spec.table.lower() for spec in specs}
    lines: dict[str, list[str]] = {}
    for problem in problems:
        table = problem.table
        # An invalid table name maps to no folder.
        if table is not None and table.lower() not in sound and not table_name_fault(table):
            lines.setdefault(table, []).append(str(problem))
    return [TableRow(table=table, problems=tuple(messages)) for table, messages in lines.items()]


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
    targets = {name: named.find(name) for name in names}
    for name, target in targets.items():
        if target is None and name in bad:
            raise MetadataError(TABLE_ROW_BAD, f"the metadata row of {name!r} is invalid", remedy="see `gddl validate`")
        if target is None:
            raise MetadataError(
                TABLE_UNKNOWN, f"no metadata row has the table {name!r}", remedy=_hint(name, list(known))
            )
    return in_order([known[target] for target in dict.fromkeys(targets.values()) if target is not None])


def in_order(tables: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
    """Order by priority and name, with each table after its dependencies."""
    sorted_ = sorted(tables, key=lambda t: (PRIORITY_RANK[t.priority], t.table))
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
    suggestions = list(dict.fromkeys([*same_name, *(by_folded[folded] for folded in near)]))[:3]
    return f"did you mean {' or '.join(suggestions)}?" if suggestions else "`gddl status` lists the tables"


METHODS = ("table", "tag", "owner", "source", "tier")


def selected(rows: Iterable[TableRow], select: Sequence[str]) -> list[TableRow]:
    """Rows that any selector of `select` matches; all, where there is none.

    A selector is a method and a value, `tag:domain` or `tag:domain:sales`; `shop.*` is short for `table:shop.*`. Values
    may have `*`, `?` and `[…]`. Selectors joined by commas must all match.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    wanted = [_parsed(one) for one in select]
    return [row for row in rows if not wanted or any(_matches(row, one) for one in wanted)]


def _parsed(selector: str) -> list[tuple[str, str]]:
    parts = []
    for part in selector.split(","):
        method, colon, value = part.strip().partition(":")
        if not colon:
            method, value = "table", method
        if method not in METHODS or not value:
            remedy = f"write e.g. tag:finance or shop.*; methods are {', '.join(METHODS)}"
            raise invalid_option(f"not a selector of tables: {selector!r}", remedy)
        parts.append((method, value))
    return parts


def _matches(row: TableRow, parts: Iterable[tuple[str, str]]) -> bool:
    values = {"table": (row.table,), "owner": (row.owner or "",), "source": (row.source,), "tier": (row.tier,)}
    return all(
        any(fnmatch.fnmatchcase(candidate, value) for candidate in (row.tags if method == "tag" else values[method]))
        for method, value in parts
    )
