"""The metrics as a text file in Prometheus's format, which all jobs of a machine add to, one after the other.

Needs `prometheus_client`, the extra `prometheus`.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Metric as Family
from prometheus_client import write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from spark_jobs.job import metrics
from spark_jobs.job.metrics import Point


def add(path: str, points: Iterable[Point], most: int) -> None:
    """Counters of the file grow by these points, gauges become theirs; a reader sees the old file or the new one.

    Raises:
        OSError: the file can't be written.
        ValueError: the file is not in Prometheus's format; it stays as it is.
    """
    with _alone(path):
        stored = read(Path(path))
        known = list(dict.fromkeys(dict(p.labels).get("table", "") for p in stored))
        fresh = metrics.bounded(points, [t for t in known if t != metrics.OTHER], most)
        new = {(p.metric, p.labels) for p in fresh}
        kept = [p for p in stored if metrics.KINDS[p.metric] == "counter" or (p.metric, p.labels) not in new]
        write_to_textfile(path, _Points(metrics.merged([*kept, *fresh])))
        Path(path).chmod(0o644)  # the collector runs as another user


def read(path: Path) -> list[Point]:
    """Points of the declared metrics; none where there is no file."""
    families = text_string_to_metric_families(path.read_text(encoding="utf-8")) if path.exists() else ()
    return [
        Point(family.name, tuple(sorted(sample.labels.items())), float(sample.value))
        for family in families
        if family.name in metrics.KINDS
        for sample in family.samples
    ]


@contextmanager
def _alone(path: str) -> Iterator[None]:
    with Path(f"{path}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class _Points:
    """Points as a collector of `prometheus_client`."""

    points: Sequence[Point]

    def collect(self) -> Iterator[Family]:
        for metric in metrics.METRICS:
            family = Family(metric.name, metric.help, metric.kind)
            name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
            for point in sorted((p for p in self.points if p.metric == metric.name), key=lambda p: p.labels):
                family.add_sample(name, dict(point.labels), point.value)
            if family.samples:
                yield family
