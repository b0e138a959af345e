"""Metrics of a job: names, kinds and help, and the points that results make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from airflow_gddl.contract.result import JobResult

Kind = Literal["counter", "gauge"]


_COUNTS: Mapping[str, str] = {
    "rows_read": "Rows read from landing files.",
    "changes_written": "Changes appended to change tables.",
    "redelivered": "Re-delivered changes.",
    "quarantined": "Rows written to the quarantine.",
    "late_ignored": "Changes ignored as late.",
    "truncates": "Truncates of source tables in landing files.",
    "rescued": "Rows with values in _rescued_data.",
    "bytes_read": "Bytes of landing files.",
    "batches": "Batches committed.",
    "seconds": "Seconds spent on tables.",
}
"""Fields of a result that are counters of the same name."""


_HELP: Mapping[Kind, Mapping[str, str]] = {
    "counter": {
        "runs": "Runs of tables by status.",
        **_COUNTS,
        "warnings": "Warnings by code.",
        "expectation_checked": "Rows on which an expectation was checked.",
        "expectation_failed": "Rows that failed an expectation.",
    },
    "gauge": {
        "complete_until_timestamp_seconds": "Commit time until which everything is known to have come.",
        "lag_seconds": "Now minus the newest source commit applied, at the last run.",
        "last_run_timestamp_seconds": "When the last run ended.",
        "last_run_failed": "Whether the last run failed (1).",
        "replica_rows": "Rows of the replica.",
    },
}


METRICS = {f"gddl_{name}": (kind, text) for kind, texts in _HELP.items() for name, text in texts.items()}
"""Name to kind and help; without the suffix `_total` that Prometheus gives counters."""


OTHER = "other"


Labels = tuple[tuple[str, str], ...]
"""Pairs of name and value, sorted by name."""


@dataclass(frozen=True)
class Point:
    """One value; of a counter, what is to be added."""

    metric: str
    labels: Labels
    value: float


def points_of(result: JobResult, tier: str, now: float) -> Iterator[Point]:
    """Metrics of a result.

    Args:
        now: seconds since the epoch.
    """
    labels: Labels = (("table", result.table), ("tier", tier))
    yield from (Point(f"gddl_{name}", labels, float(getattr(result, name))) for name in _COUNTS)
    yield Point("gddl_runs", (("status", result.status), *labels), 1.0)
    yield from (Point("gddl_warnings", (("code", w.code), *labels), float(w.count)) for w in result.warnings)
    for one in result.expectations:
        named = tuple(sorted((("expectation", one.name), *labels)))
        yield Point("gddl_expectation_checked", named, float(one.checked))
        yield Point("gddl_expectation_failed", named, float(one.failed))
    until = result.freshness.complete_until
    gauges = {
        "last_run_timestamp_seconds": now,
        "last_run_failed": result.status == "failed",
        "lag_seconds": result.freshness.lag_seconds,
        "complete_until_timestamp_seconds": None if until is None else datetime.fromisoformat(until).timestamp(),
        "replica_rows": result.main.rows,
    }
    yield from (Point(f"gddl_{name}", labels, float(value)) for name, value in gauges.items() if value is not None)


def bounded(points: Iterable[Point], most: int) -> list[Point]:
    """One point for each series, with at most `most` tables by name; the others are `other`.

    Counters of a series add up; of its gauges the highest, as the most critical, is used.
    """
    named: set[str] = set()
    sums: dict[tuple[str, Labels], float] = {}
    for point in points:
        table = dict(point.labels)["table"]
        if len(named) < most:
            named.add(table)
        labels = tuple((k, OTHER if k == "table" and table not in named else v) for k, v in point.labels)
        combine = sum if METRICS[point.metric][0] == "counter" else max
        before = sums.get((point.metric, labels))
        sums[point.metric, labels] = point.value if before is None else combine((before, point.value))
    return [Point(metric, labels, value) for (metric, labels), value in sums.items()]
