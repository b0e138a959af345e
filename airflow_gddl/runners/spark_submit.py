"""What `gddl.yaml` says of the runner `spark_submit`, and what a tier says of its jobs there."""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airflow_gddl.contract import durations
from airflow_gddl.contract import spec as sizes
from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codes import FIELD_TYPE, FIELD_VALUE, MASTER_UNREACHABLE, SPARK_HOME_INVALID
from airflow_gddl.contract.errors import FatalError, RetriableError, SpecProblem
from airflow_gddl.contract.java import find_java
from airflow_gddl.contract.spec import JobSpec, TierSpec, size_bytes
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.runners.descriptor import RunnerDescriptor, settings_of
from airflow_gddl.runners.interface import JobOutcome, Listener
from airflow_gddl.runners.this_machine import JobProcess
from airflow_gddl.stores.scratch import scratch
from airflow_gddl.tools.bundle import write_code

if TYPE_CHECKING:
    from airflow_gddl.runners.descriptor import RunnerSettings

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


def check_settings(settings: SparkSubmitSettings) -> Iterator[SpecProblem]:
    """What types can't say about the settings; paths are those of fields."""
    if not _MASTER.fullmatch(settings.master):
        remedy = "write spark://host:7077, yarn or k8s://https://host:6443; `runner: local` needs no master"
        yield SpecProblem(FIELD_VALUE, ("master",), settings.master, "not a cluster that spark-submit knows", remedy)
    if not sizes.MEMORY.fullmatch(settings.driver_memory):
        remedy = "write a number and k, m, g or t, e.g. 4g"
        yield SpecProblem(FIELD_VALUE, ("driver_memory",), settings.driver_memory, "not an amount of memory", remedy)
    if not durations.is_duration(settings.start_timeout):
        remedy = "write e.g. 45s, 30m, 2h or 7d"
        yield SpecProblem(FIELD_VALUE, ("start_timeout",), settings.start_timeout, "not a duration", remedy)
    yield from _conf(settings.conf)


def _conf(conf: Mapping[str, Any]) -> Iterator[SpecProblem]:
    for name, value in conf.items():
        if name in _OWN_CONF:
            yield SpecProblem(FIELD_VALUE, ("conf", name), value, "set by the runner itself", _OWN_CONF[name])
        elif not re.fullmatch(r"spark\.[A-Za-z0-9_.*-]+", name):
            remedy = "write e.g. spark.executor.extraJavaOptions"
            yield SpecProblem(FIELD_VALUE, ("conf", name), value, "not the name of a Spark setting", remedy)
        elif not isinstance(value, (str, bool, int, float)):
            message = "must be text, a number, true or false"
            yield SpecProblem(FIELD_TYPE, ("conf", name), value, message, "write one value, in quotes if need be")


NAME = "spark_submit"
ENVIRONMENT = "environment"
"""Folder in which an executor finds the unpacked archive."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Executors of a job on a cluster. `overhead`: bytes of one beyond its heap; null: Spark's own choice."""

    cores: int
    memory: str
    workers: int
    overhead: int | None = None


def size_of(spec: JobSpec) -> Size:
    """Maximum over the tiers of the job's tables."""
    rows = {(table.size, table.commit): table for table in spec.tables if table.size in spec.tiers}
    tiers = [spec.tier_of(row) for row in rows.values()] or [TierSpec()]
    # A table in one task is processed by Python, outside the heap; one task for each core.
    overheads = [tier.cores * size_bytes(tier.task_memory) for tier in tiers if tier.in_one_task]
    return Size(
        cores=max(tier.cores for tier in tiers),
        memory=max((tier.memory for tier in tiers), key=size_bytes),
        workers=max(tier.workers for tier in tiers),
        overhead=max(overheads, default=None),
    )


def arguments(spec: JobSpec, settings: SparkSubmitSettings, code: Sequence[str]) -> list[str]:
    """Arguments of spark-submit, without the application.

    Args:
        code: archives of Python modules for the executors.
    """
    size = size_of(spec)
    command_line = ["--master", settings.master, "--deploy-mode", "client", "--name", f"gddl-{spec.run_id}"]
    command_line += ["--driver-memory", settings.driver_memory, "--executor-cores", str(size.cores)]
    command_line += ["--executor-memory", size.memory]
    lists: Mapping[str, Sequence[str]] = {
        "--jars": settings.jars,
        "--packages": settings.packages,
        "--py-files": code,
        "--archives": [f"{settings.archive}#{ENVIRONMENT}"] if settings.archive else [],
    }
    for option, values in lists.items():
        command_line += [option, ",".join(values)] if values else []
    for name, value in {**_conf_of(size, settings.master), **settings.conf, **NO_SUBSTITUTION}.items():
        command_line += ["--conf", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    return command_line


def _conf_of(size: Size, master: str) -> dict[str, str | int | bool]:
    conf: dict[str, str | int | bool] = {"spark.ui.showConsoleProgress": False}
    if master.startswith("spark://"):
        # A standalone cluster derives the number of executors from the cores.
        return {**conf, "spark.cores.max": size.cores * size.workers}
    conf["spark.executor.instances"] = size.workers
    if size.overhead is not None:
        conf["spark.executor.memoryOverhead"] = f"{-(-size.overhead // 1024**2)}m"
    return conf


_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class SparkSubmitRunner:
    """Starts the job as the local runner does; the job then starts spark-submit itself, when a table has work.

    Attributes:
        settings: of this runner in `gddl.yaml`.
        driver: the job's driver; its environment is spark-submit's, too.
    """

    settings: SparkSubmitSettings
    driver: JobProcess

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """See `JobProcess.run`.

        Raises:
            FatalError: `JAVA_MISSING`, `SPARK_HOME_INVALID`, `COMMAND_MISSING`, or `JOB_NOT_STARTED`.
            RetriableError: `MASTER_UNREACHABLE`.
        """
        find_java(self.driver.environ)
        check_master(self.settings.master)
        with scratch("code") as folder:
            code = [str(write_code(Path(folder, "gddl-job-code.zip")))] if self.settings.ship_code else []
            environ = self._environ(arguments(spec, self.settings, code))
            return replace(self.driver, environ=environ).run(spec, listener)

    def _environ(self, submitted: Sequence[str]) -> dict[str, str]:
        settings = self.settings
        variables = {
            "GDDL_SPARK_MASTER": settings.master,
            "GDDL_SPARK_DELTA": settings.delta,
            "GDDL_SPARK_START_TIMEOUT": settings.start_timeout,
            "PYSPARK_SUBMIT_ARGS": shlex.join([*submitted, "pyspark-shell"]),
        }
        python = settings.python or (f"./{ENVIRONMENT}/bin/python" if settings.archive else None)
        if python is not None:
            variables["PYSPARK_PYTHON"] = python
        if settings.spark_home is not None:
            variables |= _of_home(Path(settings.spark_home), self.driver.environ)
        return {**self.driver.environ, **variables}


def _of_home(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Makes the driver use the Python modules of that Spark."""
    if not (home / "bin" / "spark-submit").is_file():
        remedy = "name the folder of an unpacked Spark, or leave spark_home out to take the one installed with pip"
        raise FatalError(SPARK_HOME_INVALID, f"{home} holds no bin/spark-submit", where="gddl.yaml", remedy=remedy)
    python = home / "python"
    modules = [str(python), *map(str, sorted(python.glob("lib/py4j-*-src.zip")))] if python.is_dir() else []
    path = os.pathsep.join(filter(None, [*modules, environ.get("PYTHONPATH", "")]))
    return {"SPARK_HOME": str(home), **({"PYTHONPATH": path} if path else {})}


def check_master(master: str) -> None:
    """Check that a master of a standalone cluster responds: Spark itself retries for a minute with an unclear error.

    Raises:
        RetriableError: `MASTER_UNREACHABLE`.
    """
    if not master.startswith("spark://"):
        return
    faults = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            faults.append(f"{place}: {error}")
        else:
            return
    remedy = "start the cluster, or correct runners.spark_submit.master"
    raise RetriableError(MASTER_UNREACHABLE, f"no master answers ({'; '.join(faults)})", where=master, remedy=remedy)


def make(settings: RunnerSettings) -> SparkSubmitRunner:
    """See `RunnerDescriptor.runner`."""
    spark_settings = settings_of(NAME, SparkSubmitSettings, settings.declared)
    driver = JobProcess(command=settings.command, environ=settings.environ, tick=settings.tick)
    return SparkSubmitRunner(settings=spark_settings, driver=driver)


RUNNER = RunnerDescriptor(
    runner="airflow_gddl.runners.spark_submit:make",
    settings=SparkSubmitSettings,
    check_settings=check_settings,
    check="airflow_gddl.runners.this_machine:check",
    bundle="airflow_gddl.tools.bundle:SPARK",
)
