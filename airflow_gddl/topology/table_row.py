"""A short row for every table of the metadata, for lists and filters of thousands of tables, and starts of pipelines.

Starts are cron lines as minutes of one day, in UTC.

Selects tables by what their rows say, in the words of dbt's selectors.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

from airflow_gddl.contract import durations
from airflow_gddl.contract.basics import PRIORITY_RANK
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.names import TableNames
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.topology.pipeline import Pipeline, Timing
from airflow_gddl.topology.pipelines import label_of

_FROM = date(2024, 1, 1)
"""A fixed day, so that the interval depends only on the schedule."""


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
    interval = 0 if pipeline is None else _longest_interval(pipeline.timing)
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


def _longest_interval(timing: Timing) -> int:
    """Maximum seconds between two runs; 0 for pipelines without a time schedule."""
    if timing.kind != "cron":
        return 0
    return 60 * gaps(timing.cron, _FROM)[1]


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
            raise MetadataError(
                "TABLE_ROW_BAD", f"the metadata row of {name!r} is invalid", remedy="see `gddl validate`"
            )
        if target is None:
            raise MetadataError(
                "TABLE_UNKNOWN", f"no metadata row has the table {name!r}", remedy=_hint(name, list(known))
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


MINUTES = 1440
HORIZON = 31
"""Number of days considered: contains each day of a week and of a month."""


def starts_on(pipelines: Iterable[Pipeline], day: date) -> dict[str, int]:
    """How often pipelines with a time schedule start, by DAG id; others start by data or manually."""
    return {
        pipeline.dag_id: len(minutes_of(pipeline.timing.cron))
        for pipeline in pipelines
        if pipeline.timing.kind == "cron" and runs_on(pipeline.timing.cron, day)
    }


def busiest_day(pipelines: Iterable[Pipeline], first: date) -> date:
    """The day with the most starts among the `HORIZON` days from `first`; the earliest of several."""
    weights: Counter[str] = Counter()
    for pipeline in pipelines:
        if pipeline.timing.kind == "cron":
            # Days depend on the last three fields alone, of which thousands of lines have few.
            weights[_day_part(pipeline.timing.cron)] += len(minutes_of(pipeline.timing.cron))
    days = [first + timedelta(days=number) for number in range(HORIZON)]
    return max(days, key=lambda day: sum(weight for part, weight in weights.items() if _fires(part, day)))


@functools.lru_cache(maxsize=16_384)
def gaps(cron: str, first: date) -> tuple[int, int]:
    """Minutes between two starts, at least and at most, as the `HORIZON` days from `first` on show them.

    A line that fires on one of these days or on none counts as once in so many days.
    """
    minutes = minutes_of(cron)
    days = [number for number in range(HORIZON) if runs_on(cron, first + timedelta(days=number))]
    if len(days) < 2:
        return HORIZON * MINUTES, HORIZON * MINUTES
    within = [later - earlier for earlier, later in pairwise(minutes)]
    over_night = MINUTES - minutes[-1] + minutes[0]
    between = [(later - earlier - 1) * MINUTES + over_night for earlier, later in pairwise(days)]
    return min(within + between), max(within + between)


@functools.lru_cache(maxsize=16_384)
def minutes_of(cron: str) -> tuple[int, ...]:
    """Minutes of the day at which a line fires on the days on which it does."""
    minute, hour = cron.split()[:2]
    from croniter import croniter  # noqa: PLC0415 - with its zones, as dear as all else here

    expanded = croniter.expand(f"{minute} {hour} * * *")[0]
    hours = range(24) if expanded[1] == ["*"] else expanded[1]
    minutes = range(60) if expanded[0] == ["*"] else expanded[0]
    return tuple(sorted(60 * h + m for h in hours for m in minutes))


def runs_on(cron: str, day: date) -> bool:
    """Whether a line fires on this day at all."""
    return _fires(_day_part(cron), day)


def _day_part(cron: str) -> str:
    return " ".join(cron.split()[2:])


@functools.lru_cache(maxsize=65_536)
def _fires(part: str, day: date) -> bool:
    from croniter import croniter  # noqa: PLC0415 - as above

    return part == "* * *" or bool(croniter.match(f"0 0 {part}", datetime.combine(day, time(), UTC)))


METHODS = ("table", "tag", "owner", "source", "tier")


def selected(rows: Iterable[TableRow], select: Sequence[str]) -> list[TableRow]:
    """Rows that any selector of `select` matches; all, where there is none.

    A selector is a method and a value, `tag:domain` or `tag:domain:sales`; `shop.*` is short for `table:shop.*`. Values
    may have `*`, `?` and `[…]`. Selectors joined by commas must all match.

    Raises:
        MetadataError: `SELECTOR_INVALID`.
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
            raise MetadataError("SELECTOR_INVALID", f"not a selector of tables: {selector!r}", remedy=remedy)
        parts.append((method, value))
    return parts


def _matches(row: TableRow, parts: Iterable[tuple[str, str]]) -> bool:
    values = {"table": (row.table,), "owner": (row.owner or "",), "source": (row.source,), "tier": (row.tier,)}
    return all(
        any(fnmatch.fnmatchcase(candidate, value) for candidate in (row.tags if method == "tag" else values[method]))
        for method, value in parts
    )
