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
from typing import Any

from airflow_gddl.contract.packages import of_import
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from spark_jobs.job.metrics import KINDS, METRICS, Point, bounded, points_of
from spark_jobs.table.runtime import Observer, Step

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
