"""Sends metrics to an OpenTelemetry collector, configured by OpenTelemetry's environment variables."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spark_jobs.observability import metrics

if TYPE_CHECKING:
    from spark_jobs.observability.metrics import Point

_SCOPE = "airflow_gddl"


def send(points: Iterable[Point], exporter: Any = None) -> None:
    """Send the points once, counters as what this job adds.

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
        for m in metrics.METRICS
    }
    for point in points:
        record = made[point.metric].add if metrics.KINDS[point.metric] == "counter" else made[point.metric].set
        record(point.value, dict(point.labels))
    provider.shutdown()  # exports what is left


def _otlp(sdk: Any, export: Any) -> Any:
    """Each job is a separate process: it sends deltas, not totals."""
    module = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    delta = {sdk.Counter: export.AggregationTemporality.DELTA}
    return module.OTLPMetricExporter(preferred_temporality=delta)
