"""Metrics of a job for Prometheus (a text file for the textfile collector) and OpenTelemetry, where they are asked for.

`GDDL_METRICS_FILE` names the text file (extra `prometheus`), `OTEL_EXPORTER_OTLP_ENDPOINT` a collector of OpenTelemetry
(extra `otel`); a library is imported only where its variable is set. The first `GDDL_METRICS_TABLES` tables (500) have
a label of their own, all others are `other`. Errors are logged; no table's run fails for them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from spark_jobs.observability import metrics, metrics_otel

MOST_TABLES = 500
PUBLISH_EVERY = 60.0
_LOG = logging.getLogger(__name__)


def publish(job: JobSpec, results: Sequence[JobResult], now: float, environ: Mapping[str, str] = os.environ) -> None:
    """Publish metrics of runs to the targets in the environment; maintenance and plans have none."""
    if job.options.action not in ("run", "errors_replay"):
        return
    tiers = {spec.table: spec.size for spec in job.tables}
    points = [point for result in results for point in metrics.points_of(result, tiers.get(result.table, ""), now)]
    if path := environ.get("GDDL_METRICS_FILE"):
        with _errors_logged("prometheus"):
            from spark_jobs.observability import metrics_file  # noqa: PLC0415 - its library may be absent

            metrics_file.add(path, points, _most(environ))
    if environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        with _errors_logged("otel"):
            metrics_otel.send(metrics.bounded(points, (), _most(environ)))


def _most(environ: Mapping[str, str]) -> int:
    return int(environ.get("GDDL_METRICS_TABLES", MOST_TABLES))


@contextmanager
def _errors_logged(extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        _LOG.warning("metrics are not published: %s; install airflow-gddl[%s] where jobs run", error, extra)
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
