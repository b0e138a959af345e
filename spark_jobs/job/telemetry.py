"""Metrics of a job, sent to an OpenTelemetry collector."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.actions import Load
from airflow_gddl.contract.packages import of_import
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from spark_jobs.job.metrics import METRICS, Point, bounded, points_of

MOST_TABLES = 500
PUBLISH_EVERY = 60.0
_LOG = logging.getLogger(__name__)


def publish(job: JobSpec, results: Sequence[JobResult], now: float, environ: Mapping[str, str] = os.environ) -> None:
    """Publish metrics of runs where the environment names a collector; maintenance and plans have none."""
    if not isinstance(job.options.action, Load) and job.options.action.does != "errors_replay":
        return
    tiers = {spec.table: spec.size for spec in job.tables}
    points = [point for result in results for point in points_of(result, tiers.get(result.table, ""), now)]
    if environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        try:
            send_otel(bounded(points, int(environ.get("GDDL_METRICS_TABLES", MOST_TABLES))))
        except ImportError as error:
            missing = of_import(error, "a job that publishes metrics", install="airflow-gddl[otel]")
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
        exporter: a metric exporter of OpenTelemetry's SDK; None: OTLP over HTTP.

    Raises:
        ImportError: OpenTelemetry's SDK is not installed.
    """
    sdk = importlib.import_module("opentelemetry.sdk.metrics")
    export = importlib.import_module("opentelemetry.sdk.metrics.export")
    if exporter is None:  # each job is a process of its own: it sends deltas, not totals
        module = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        exporter = module.OTLPMetricExporter(preferred_temporality={sdk.Counter: export.AggregationTemporality.DELTA})
    reader = export.PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = sdk.MeterProvider(metric_readers=[reader])
    meter = provider.get_meter(_SCOPE)
    made = {
        name: (meter.create_counter if kind == "counter" else meter.create_gauge)(
            name.replace("_", ".", 1), description=text
        )
        for name, (kind, text) in METRICS.items()
    }
    for point in points:
        metric = made[point.metric]
        record = metric.add if METRICS[point.metric][0] == "counter" else metric.set
        record(point.value, dict(point.labels))
    provider.shutdown()  # exports what is left
