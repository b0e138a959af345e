"""What `gddl.yaml` says of the runner `spark_submit`, and what a tier says of its jobs there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_gddl.contract import durations, sizes
from airflow_gddl.contract.errors import FieldPath, SpecProblem
from airflow_gddl.contract.table_spec import STRICT

_MASTER = re.compile(r"spark://[^\s:,/]+:\d+(,[^\s:,/]+:\d+)*|yarn|k8s://\S+")
_OWN_CONF = {
    "spark.master": "set `master`",
    "spark.submit.deployMode": "remove it: jobs run in client mode, so that they end with their task",
    "spark.app.name": "remove it: jobs are named after their run",
    "spark.jars": "set `jars`",
    "spark.jars.packages": "set `packages`",
    "spark.submit.pyFiles": "remove it: the job's code is shipped, see `ship_code`",
    "spark.archives": "set `archive`",
    "spark.driver.memory": "set `driver_memory`",
}


@dataclass(frozen=True, kw_only=True)
class SparkSubmitSettings:
    """`runners: {spark_submit: ...}`."""

    __pydantic_config__ = STRICT

    master: str
    """`spark://host:7077` (several with commas), `yarn`, or `k8s://https://host:port`."""
    spark_home: str | None = None
    """Folder of a Spark; null: the one that is installed with pip."""
    python: str | None = None
    """Python on the executors; null: that of `archive`, else the path of the driver's own."""
    archive: str | None = None
    """Packed environment (`gddl bundle --for spark`) that executors unpack, path or URL; null: they have one."""
    ship_code: bool = True
    """Send this package's code to the executors; `false` when their Python has the same version of it."""
    delta: Literal["ship", "provided"] = "ship"
    """Send Delta's JARs from the cache, or `provided`: the cluster, `jars` or `packages` have them."""
    jars: tuple[str, ...] = ()
    """More JARs, paths or URLs."""
    packages: tuple[str, ...] = ()
    """More JARs by Maven coordinates."""
    conf: Mapping[str, Any] = field(default_factory=dict)
    """Spark's own settings; they win over ours."""
    driver_memory: str = "2g"
    """Memory of the driver, a child of the Airflow task."""
    start_timeout: str = "10m"
    """How long a job may wait for its first executor."""
    application_url: str | None = None
    """Page of a job, `{application}` standing for Spark's id of it; null: the job's log."""


@dataclass(frozen=True, kw_only=True)
class SparkSubmitCompute:
    """`tiers: {<tier>: {compute: {spark_submit: ...}}}`; null: what the tier says of itself."""

    __pydantic_config__ = STRICT

    cores: int | None = None
    """Cores of an executor; null: the tier's `cores`."""
    memory: str | None = None
    """Heap of an executor; null: the tier's `memory`."""
    memory_overhead: str | None = None
    """Memory of an executor beyond its heap; null: `delta_rs_memory` a core under `delta_rs`, else Spark's own."""
    workers: int | None = None
    """Executors; null: the tier's `workers`."""
    driver_memory: str | None = None
    """Null: the runner's."""


def check_settings(settings: SparkSubmitSettings) -> Iterator[SpecProblem]:
    """What types can't say about the settings; paths are those of fields."""
    if not _MASTER.fullmatch(settings.master):
        remedy = "write spark://host:7077, yarn or k8s://https://host:6443; `runner: local` needs no master"
        yield SpecProblem("FIELD_VALUE", ("master",), settings.master, "not a cluster that spark-submit knows", remedy)
    yield from _memory(("driver_memory",), settings.driver_memory)
    if not durations.is_duration(settings.start_timeout):
        remedy = "write e.g. 45s, 30m, 2h or 7d"
        yield SpecProblem("DURATION_INVALID", ("start_timeout",), settings.start_timeout, "not a duration", remedy)
    url = settings.application_url
    if url is not None and not re.match(r"https?://\S+$", url):
        remedy = "write e.g. http://master:8080/app/?appId={application}"
        yield SpecProblem("FIELD_VALUE", ("application_url",), url, "not the address of a page", remedy)
    yield from _conf(settings.conf)


def check_compute(compute: SparkSubmitCompute) -> Iterator[SpecProblem]:
    for name in ("cores", "workers"):
        value = getattr(compute, name)
        if value is not None and value < 1:
            yield SpecProblem("FIELD_VALUE", (name,), value, "must be 1 or more", "write a number from 1 up")
    for name in ("memory", "memory_overhead", "driver_memory"):
        yield from _memory((name,), getattr(compute, name))


def _conf(conf: Mapping[str, Any]) -> Iterator[SpecProblem]:
    for name, value in conf.items():
        if name in _OWN_CONF:
            yield SpecProblem("FIELD_VALUE", ("conf", name), value, "set by the runner itself", _OWN_CONF[name])
        elif not re.fullmatch(r"spark\.[A-Za-z0-9_.*-]+", name):
            remedy = "write e.g. spark.executor.extraJavaOptions"
            yield SpecProblem("FIELD_VALUE", ("conf", name), value, "not the name of a Spark setting", remedy)
        elif not isinstance(value, (str, bool, int, float)):
            message = "must be text, a number, true or false"
            yield SpecProblem("FIELD_TYPE", ("conf", name), value, message, "write one value, in quotes if need be")


def _memory(path: FieldPath, value: str | None) -> Iterator[SpecProblem]:
    if value is not None and not sizes.MEMORY.fullmatch(value):
        remedy = "write a number and k, m, g or t, e.g. 4g"
        yield SpecProblem("FIELD_VALUE", path, value, "not an amount of memory", remedy)
