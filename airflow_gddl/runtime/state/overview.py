"""Throughput, failures, lag and durations of many tables over time, from the digests of their last runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from airflow_gddl.runtime.state.table_runs import KEPT_RUNS, RunFact
from airflow_gddl.runtime.state.table_status import TableStatus

Span = Literal["day", "fortnight"]
_SPANS: Mapping[Span, tuple[int, float]] = {"day": (24, 3600.0), "fortnight": (14, 86_400.0)}
"""Number of periods, and the length of each in seconds."""
NO_OWNER = ""


@dataclass(frozen=True, kw_only=True)
class PeriodFigures:
    """Figures of runs, of a period or of a group of tables.

    Attributes:
        rows: appended to change tables.
        lag, seconds: 50th and 95th percentile, of the runs that did not fail; null without any.
    """

    runs: int
    failed: int
    rows: int
    lag: tuple[float, float] | None
    seconds: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Overview:
    """
    Attributes:
        periods: start of each, seconds since the epoch, and its figures; oldest first, without gaps; the last is under
            way.
        complete_since: start of the oldest run that is known of a table whose older runs are not; earlier periods
            count such tables in part. None: all runs are known.
        sources, owners: figures of all periods together; tables without an owner are under `NO_OWNER`.
    """

    periods: tuple[tuple[float, PeriodFigures], ...]
    complete_since: float | None
    sources: Mapping[str, PeriodFigures] = field(default_factory=dict)
    owners: Mapping[str, PeriodFigures] = field(default_factory=dict)


def overview(tables: Iterable[TableStatus], now: float, span: Span) -> Overview:
    """Of the runs that began in the span before `now`, seconds since the epoch."""
    number, length = _SPANS[span]
    first = (math.floor(now / length) - number + 1) * length
    runs: list[tuple[TableStatus, RunFact]] = []
    cut: list[float] = []
    for one in tables:
        if (one.record.started or 0.0) < first:
            continue  # without decoding its older runs
        facts = one.record.runs
        if len(facts) == KEPT_RUNS and facts[0].started > first:
            cut.append(facts[0].started)
        runs += [(one, fact) for fact in facts if first <= fact.started <= now]
    by_period: list[list[RunFact]] = [[] for _ in range(number)]
    for _, fact in runs:
        by_period[int((fact.started - first) // length)].append(fact)
    return Overview(
        periods=tuple((first + at * length, _figures(facts)) for at, facts in enumerate(by_period)),
        complete_since=max(cut, default=None),
        sources=_grouped((one.row.source, fact) for one, fact in runs),
        owners=_grouped((one.row.owner or NO_OWNER, fact) for one, fact in runs),
    )


def _grouped(runs: Iterable[tuple[str, RunFact]]) -> dict[str, PeriodFigures]:
    groups: dict[str, list[RunFact]] = {}
    for name, fact in runs:
        groups.setdefault(name, []).append(fact)
    return {name: _figures(facts) for name, facts in sorted(groups.items())}


def _figures(facts: Sequence[RunFact]) -> PeriodFigures:
    good = [fact for fact in facts if fact.status != "failed"]
    return PeriodFigures(
        runs=len(facts),
        failed=len(facts) - len(good),
        rows=sum(fact.appended for fact in facts),
        lag=_percentiles([fact.lag for fact in good if fact.lag is not None]),
        seconds=_percentiles([fact.seconds for fact in good]),
    )


def _percentiles(values: list[float]) -> tuple[float, float] | None:
    """The 50th and 95th, each a value that occurs: the nearest rank."""
    if not values:
        return None
    values.sort()
    half, most = (values[math.ceil(share * len(values)) - 1] for share in (0.5, 0.95))
    return half, most
