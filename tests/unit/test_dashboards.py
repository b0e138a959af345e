"""The dashboard asks for metrics and labels that jobs send, to where its page lets a collector listen."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.result import ExpectationCount, Freshness, JobResult, MainCounts, RunWarning
from airflow_gddl.metadata.files import read_yaml
from spark_jobs.job.metrics import METRICS, points_of
from spark_jobs.job.telemetry import publish
from tests.unit.pages import section
from tests.unit.test_metrics import job

DOCS = Path(__file__).parents[2] / "docs"
MAIN = {
    "gddl_last_run_failed", "gddl_lag_seconds", "gddl_runs", "gddl_rows_read", "gddl_bytes_read", "gddl_quarantined",
    "gddl_warnings", "gddl_seconds", "gddl_batches",
}  # fmt: skip
"""The dashboard shows them."""
RESULT = JobResult(
    table="s.t",
    status="succeeded",
    rows_read=5,
    warnings=(RunWarning(code="SEQUENCE_TIE", message="m", count=3),),
    expectations=(ExpectationCount(name="ok", on="warn", checked=9, failed=2),),
    freshness=Freshness(lag_seconds=1.0, complete_until="2026-01-31T12:00:00+00:00"),
    main=MainCounts(rows=7),
)
"""Makes a point of every metric."""


def labels() -> dict[str, set[str]]:
    """Names of labels by metric."""
    return {point.metric: {name for name, _ in point.labels} for point in points_of(RESULT, "small", 1.0)}


def dotted(metric: str) -> str:
    """The name that OTLP sends."""
    return metric.replace("_", ".", 1)


@dataclass(frozen=True)
class Asked:
    """What the dashboard asks for: a metric, and names of labels."""

    metric: str
    labels: frozenset[str]


def of_grafana() -> Iterator[Asked]:
    board = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
    for expression in (target["expr"] for panel in board["panels"] for target in panel.get("targets", ())):
        grouped = {name for names in re.findall(r"by \(([^)]*)\)", expression) for name in re.findall(r"\w+", names)}
        for name, chosen in re.findall(r"(gddl_\w+)\{([^}]*)\}", expression):
            metric = name.removesuffix("_total") if name not in METRICS else name
            assert name == (f"{metric}_total" if METRICS[metric][0] == "counter" else metric)
            yield Asked(metric, frozenset(grouped | set(re.findall(r"(\w+)=~", chosen))))
    for variable in board["templating"]["list"]:
        for metric, name in re.findall(r"label_values\((\w+), (\w+)\)", str(variable.get("query"))):
            yield Asked(metric, frozenset({name}))


def test_the_dashboard_asks_for_metrics_and_labels_that_exist() -> None:
    asked, known = list(of_grafana()), labels()
    assert known.keys() == METRICS.keys()
    for one in asked:
        assert one.metric in known, one
        assert one.labels <= known[one.metric], one
    assert {one.metric for one in asked} >= MAIN


@dataclass
class Receiver:
    """Bodies of requests by path."""

    bodies: list[tuple[str, bytes]] = field(default_factory=list)


@contextmanager
def receiver() -> Iterator[tuple[Receiver, str]]:
    """A receiver of OTLP over HTTP, and its URL."""
    got = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.bodies.append(
                (self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield got, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def metrics_of(got: Receiver) -> list[Any]:
    """The metrics of one request."""
    messages = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    ((path, body),) = got.bodies
    assert path == "/v1/metrics"
    request = messages.ExportMetricsServiceRequest.FromString(body)
    return [m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics]


def sent(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """What a job sends by OTLP with the variables of the page: metrics by name."""
    pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    with receiver() as (got, url):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        publish(job(), [RESULT], 1000.0)
    return {metric.name: metric for metric in metrics_of(got)}


def test_a_receiver_gets_each_metric_with_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    found, known = sent(monkeypatch), labels()
    assert found.keys() == set(map(dotted, METRICS))
    for metric, (kind, _) in METRICS.items():
        one = found[dotted(metric)]
        values = one.sum if kind == "counter" else one.gauge
        (point,) = values.data_points
        assert {pair.key for pair in point.attributes} == known[metric]
        if kind == "counter":
            assert (values.aggregation_temporality, values.is_monotonic) == (1, True), "a delta"


def test_jobs_send_to_where_the_collector_of_the_page_listens() -> None:
    text = section("monitoring.md", "Metrics")
    (endpoint,) = re.findall(r"OTEL_EXPORTER_OTLP_ENDPOINT=http://(\S+)", text)
    config, _ = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    read: Mapping[str, Any] = read_yaml(config)
    assert read["receivers"]["otlp"]["protocols"]["http"]["endpoint"] == endpoint
    for part, names in read["service"]["pipelines"]["metrics"].items():
        assert set(names) == read[part].keys()
