"""Metrics of a job, and where they are sent; log lines with the table and batch that they are about.

Lines are for people, or with `GDDL_LOG_FORMAT=json` a line of JSON each.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from airflow_gddl.contract.packages import of_import
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from spark_jobs.batch.runtime import Observer, Step

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Attributes:
    name: without the suffix `_total` of counters.
    """

    name: str
    kind: Kind
    help: str


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
_EXPECTED: Mapping[str, str] = {
    "expectation_checked": "Rows on which an expectation was checked.",
    "expectation_failed": "Rows that failed an expectation.",
}
_HELP: Mapping[Kind, Mapping[str, str]] = {
    "counter": {"runs": "Runs of tables by status.", **_COUNTS, "warnings": "Warnings by code.", **_EXPECTED},
    "gauge": {
        "complete_until_timestamp_seconds": "Commit time until which everything is known to have come.",
        "lag_seconds": "Now minus the newest source commit applied, at the last run.",
        "last_run_timestamp_seconds": "When the last run ended.",
        "last_run_failed": "Whether the last run failed (1).",
        "replica_rows": "Rows of the replica.",
    },
}
METRICS = tuple(
    Metric(name=f"gddl_{name}", kind=kind, help=text) for kind, texts in _HELP.items() for name, text in texts.items()
)
KINDS = {metric.name: metric.kind for metric in METRICS}
OTHER = "other"
Labels = tuple[tuple[str, str], ...]
"""Pairs of name and value, sorted by name."""


@dataclass(frozen=True)
class Point:
    """One value; of a counter, what is to be added."""

    metric: str
    labels: Labels
    value: float


def points_of(result: JobResult, tier: str, now: float) -> list[Point]:
    """Metrics of a result.

    Args:
        now: seconds since the epoch.
    """
    labels: Labels = (("table", result.table), ("tier", tier))
    points = [Point(f"gddl_{name}", labels, float(getattr(result, name))) for name in _COUNTS]
    points.append(Point("gddl_runs", (("status", result.status), *labels), 1.0))
    points += [Point("gddl_warnings", (("code", w.code), *labels), float(w.count)) for w in result.warnings]
    for one in result.expectations:
        named = tuple(sorted((("expectation", one.name), *labels)))
        points += [Point("gddl_expectation_checked", named, float(one.checked))]
        points += [Point("gddl_expectation_failed", named, float(one.failed))]
    points.append(Point("gddl_last_run_timestamp_seconds", labels, now))
    points.append(Point("gddl_last_run_failed", labels, float(result.status == "failed")))
    if result.freshness.lag_seconds is not None:
        points.append(Point("gddl_lag_seconds", labels, result.freshness.lag_seconds))
    if result.freshness.complete_until is not None:
        until = datetime.fromisoformat(result.freshness.complete_until).timestamp()
        points.append(Point("gddl_complete_until_timestamp_seconds", labels, until))
    if result.main.rows is not None:
        points.append(Point("gddl_replica_rows", labels, float(result.main.rows)))
    return points


def bounded(points: Iterable[Point], known: Sequence[str], most: int) -> list[Point]:
    """The points with at most `most` tables by name, `known` ones first; the others are `other`.

    Counters of `other` add up; of its gauges the highest, as the most critical, is used.
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


MOST_TABLES = 500
PUBLISH_EVERY = 60.0
_LOG = logging.getLogger(__name__)


def publish(job: JobSpec, results: Sequence[JobResult], now: float, environ: Mapping[str, str] = os.environ) -> None:
    """Publish metrics of runs to the targets in the environment; maintenance and plans have none."""
    if job.options.action not in ("run", "errors_replay"):
        return
    tiers = {spec.table: spec.size for spec in job.tables}
    points = [point for result in results for point in points_of(result, tiers.get(result.table, ""), now)]
    if path := environ.get("GDDL_METRICS_FILE"):
        with _errors_logged("prometheus"):
            from spark_jobs.job import metrics_file  # noqa: PLC0415 - its library may be absent

            metrics_file.add(path, points, _most(environ))
    if environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        with _errors_logged("otel"):
            send_otel(bounded(points, (), _most(environ)))


def _most(environ: Mapping[str, str]) -> int:
    return int(environ.get("GDDL_METRICS_TABLES", MOST_TABLES))


@contextmanager
def _errors_logged(extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        missing = of_import(error, "a job that publishes metrics", install=f"airflow-gddl[{extra}]")
        _LOG.warning("metrics are not published: %s", missing or error)
    except Exception:  # noqa: BLE001 - metrics must not fail a run
        _LOG.warning("metrics could not be handed on", exc_info=True)


@dataclass
class MetricsPublisher:
    """Publishes for a continuous job, once a minute at most; turns that found nothing to do count for nothing.

    Attributes:
        clock: seconds since the epoch.
    """

    job: JobSpec
    clock: Callable[[], float]
    _kept: list[JobResult] = field(default_factory=list)
    _last: float = 0.0

    def take(self, result: JobResult) -> None:
        if result.status != "skipped":
            self._kept.append(result)
        if self.clock() - self._last >= PUBLISH_EVERY:
            self.flush()

    def flush(self) -> None:
        if self._kept:
            publish(self.job, self._kept, self.clock())
        self._kept, self._last = [], self.clock()


_SCOPE = "airflow_gddl"


def send_otel(points: Iterable[Point], exporter: Any = None) -> None:
    """Send the points to an OpenTelemetry collector, as its variables configure it; counters as what this job adds.

    Args:
        exporter: a metric exporter of OpenTelemetry's SDK; null: OTLP over HTTP.

    Raises:
        ImportError: OpenTelemetry's SDK is not installed.
    """
    sdk = importlib.import_module("opentelemetry.sdk.metrics")
    export = importlib.import_module("opentelemetry.sdk.metrics.export")
    chosen = exporter if exporter is not None else _otlp(sdk, export)
    reader = export.PeriodicExportingMetricReader(chosen, export_interval_millis=3_600_000)
    provider = sdk.MeterProvider(metric_readers=[reader])
    meter = provider.get_meter(_SCOPE)
    made = {
        m.name: (meter.create_counter if m.kind == "counter" else meter.create_gauge)(
            m.name.replace("_", ".", 1), description=m.help
        )
        for m in METRICS
    }
    for point in points:
        record = made[point.metric].add if KINDS[point.metric] == "counter" else made[point.metric].set
        record(point.value, dict(point.labels))
    provider.shutdown()  # exports what is left


def _otlp(sdk: Any, export: Any) -> Any:
    """Each job is a separate process: it sends deltas, not totals."""
    module = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    delta = {sdk.Counter: export.AggregationTemporality.DELTA}
    return module.OTLPMetricExporter(preferred_temporality=delta)


_FOR_PEOPLE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up_logging(run_id: str, environ: Mapping[str, str]) -> Callable[[Observer], Observer]:
    """Log to standard error as the environment says; what is returned makes an observer note what is at hand."""
    if environ.get("GDDL_LOG_FORMAT") != "json":
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=_FOR_PEOPLE)
        return lambda observe: observe
    at_hand = WorkAtHand(run_id)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(at_hand))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    _LOG.setLevel(logging.INFO)  # the steps of each batch
    return at_hand.observing


@dataclass
class WorkAtHand:
    """Which table and batch each thread works on, as far as steps show."""

    run_id: str
    _local: threading.local = field(default_factory=threading.local)

    def observing(self, observe: Observer) -> Observer:
        """The observer, which also notes what is at hand."""

        def note(step: Step) -> None:
            self._local.table, self._local.batch = step.table, step.batch or None
            _LOG.info("%s, %d rows", step.step, step.rows)
            if step.step == "done":
                self._local.table = None
            observe(step)

        return note

    @property
    def table(self) -> str | None:
        return getattr(self._local, "table", None)

    @property
    def batch(self) -> int | None:
        return getattr(self._local, "batch", None) if self.table else None


class JsonFormatter(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`, `run`, `table`, `batch`, `error`; null where it is not known."""

    def __init__(self, at_hand: WorkAtHand) -> None:
        super().__init__()
        self._at_hand = at_hand

    def format(self, record: logging.LogRecord) -> str:
        table = getattr(record, "table", None) or self._at_hand.table
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "run": self._at_hand.run_id,
            "table": table,
            "batch": self._at_hand.batch,
            "error": self.formatException(record.exc_info) if record.exc_info else None,
        }
        return json.dumps(line, ensure_ascii=False)
