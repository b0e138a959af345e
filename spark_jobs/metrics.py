"""What a JobResult says in figures, per table and tier, with a bounded number of tables; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.contract.result import JobResult

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Attributes:
    name: without the suffix `_total` of counters.
    """

    name: str
    kind: Kind
    help: str


METRICS: tuple[Metric, ...] = (
    Metric(name="gddl_runs", kind="counter", help="Runs of tables by status."),
    Metric(name="gddl_rows_read", kind="counter", help="Rows read from landing files."),
    Metric(name="gddl_changes_written", kind="counter", help="Changes appended to change tables."),
    Metric(name="gddl_redelivered", kind="counter", help="Changes that had come before."),
    Metric(name="gddl_quarantined", kind="counter", help="Rows put aside."),
    Metric(name="gddl_bytes_read", kind="counter", help="Bytes of landing files."),
    Metric(name="gddl_batches", kind="counter", help="Batches committed."),
    Metric(name="gddl_seconds", kind="counter", help="Seconds spent on tables."),
    Metric(name="gddl_warnings", kind="counter", help="Warnings by code."),
    Metric(name="gddl_lag_seconds", kind="gauge", help="Now minus the newest source commit applied, at the last run."),
    Metric(name="gddl_last_run_timestamp_seconds", kind="gauge", help="When the last run ended."),
    Metric(name="gddl_last_run_failed", kind="gauge", help="Whether the last run failed (1)."),
    Metric(name="gddl_replica_rows", kind="gauge", help="Rows of the replica."),
)
KINDS = {metric.name: metric.kind for metric in METRICS}
OTHER = "other"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Point:
    """One value; of a counter, what is to be added."""

    metric: str
    labels: Labels
    value: float


def points_of(result: JobResult, tier: str, now: float) -> list[Point]:
    """What a result says.

    Args:
        now: seconds since the epoch.
    """
    labels: Labels = (("table", result.table), ("tier", tier))
    counts = {
        "gddl_rows_read": result.rows_read, "gddl_changes_written": result.changes_written,
        "gddl_redelivered": result.redelivered, "gddl_quarantined": result.quarantined,
        "gddl_bytes_read": result.bytes_read, "gddl_batches": result.batches, "gddl_seconds": result.seconds,
    }  # fmt: skip
    points = [Point(name, labels, float(value)) for name, value in counts.items()]
    points.append(Point("gddl_runs", (*labels, ("status", result.status)), 1.0))
    points += [Point("gddl_warnings", (*labels, ("code", w.code)), float(w.count)) for w in result.warnings]
    points.append(Point("gddl_last_run_timestamp_seconds", labels, now))
    points.append(Point("gddl_last_run_failed", labels, float(result.status == "failed")))
    if result.freshness.lag_seconds is not None:
        points.append(Point("gddl_lag_seconds", labels, result.freshness.lag_seconds))
    if result.main.rows is not None:
        points.append(Point("gddl_replica_rows", labels, float(result.main.rows)))
    return points


def bounded(points: Iterable[Point], known: Sequence[str], most: int) -> list[Point]:
    """The points with at most `most` tables by name, `known` ones first; the others are `other`.

    Counters of `other` add up; of its gauges the greatest counts, for that is the one to worry about.
    """
    named = dict.fromkeys(known)
    found: list[Point] = []
    for point in points:
        table = dict(point.labels).get("table", "")
        if table not in named and len(named) < most:
            named[table] = None
        own = table in named
        labels = tuple((k, v if own or k != "table" else OTHER) for k, v in point.labels)
        found.append(Point(point.metric, labels, point.value))
    return merged(found)


def merged(points: Iterable[Point]) -> list[Point]:
    """One point for each series: counters added, of gauges the greatest."""
    sums: dict[tuple[str, Labels], float] = {}
    for point in points:
        series = (point.metric, point.labels)
        if series not in sums:
            sums[series] = point.value
        elif KINDS[point.metric] == "counter":
            sums[series] += point.value
        else:
            sums[series] = max(sums[series], point.value)
    return [Point(metric, labels, value) for (metric, labels), value in sums.items()]
