"""The figures as a text file in Prometheus's format, kept up by all jobs of a machine, one after the other."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spark_jobs.observability import metrics
from spark_jobs.observability.metrics import Labels, Point

_LINE = re.compile(r"(?P<name>[a-z_]+)\{(?P<labels>.*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(?P<name>[a-z_]+)="(?P<value>(?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


def add(path: str, points: Iterable[Point], most: int) -> None:
    """Counters of the file grow by these points, gauges become theirs; a reader sees the old file or the new one.

    Raises:
        OSError: the file can't be written.
    """
    with _alone(path):
        stored = _read(Path(path))
        known = list(dict.fromkeys(dict(p.labels).get("table", "") for p in stored))
        fresh = metrics.bounded(points, [t for t in known if t != metrics.OTHER], most)
        new = {(p.metric, p.labels) for p in fresh}
        kept = [p for p in stored if metrics.KINDS[p.metric] == "counter" or (p.metric, p.labels) not in new]
        _write(Path(path), metrics.merged([*kept, *fresh]))


@contextmanager
def _alone(path: str) -> Iterator[None]:
    with Path(f"{path}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> list[Point]:
    if not path.exists():
        return []
    found = []
    names = {m.name for m in metrics.METRICS}
    for line in path.read_text(encoding="utf-8").splitlines():
        match = _LINE.fullmatch(line)
        name = match["name"].removesuffix("_total") if match else ""
        if match and name in names:
            labels = tuple((m["name"], _unescaped(m["value"])) for m in _LABEL.finditer(match["labels"]))
            found.append(Point(name, labels, float(match["value"])))
    return found


def _write(path: Path, points: Sequence[Point]) -> None:
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(rendered(points))
    Path(made).chmod(0o644)  # the collector runs as somebody else
    Path(made).replace(path)


def rendered(points: Sequence[Point]) -> str:
    """The whole text."""
    lines = []
    for metric in metrics.METRICS:
        mine = [p for p in points if p.metric == metric.name]
        name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        if mine:
            lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
            lines += [f"{name}{{{_labels(p.labels)}}} {p.value:.15g}" for p in sorted(mine, key=lambda p: p.labels)]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def _escaped(value: str) -> str:
    return "".join(_ESCAPES.get(char, char) for char in value)


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value)
