"""A job on a Spark cluster: its driver is a child of this process, started with the arguments of spark-submit."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_gddl.bundle.archives import write_code
from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.sizes import size_bytes
from airflow_gddl.contract.spec import JobSpec, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.metadata.runners.spark_submit import SparkSubmitCompute, SparkSubmitSettings
from airflow_gddl.runtime.runners.base import JobOutcome, Listener
from airflow_gddl.runtime.runners.java import find_java
from airflow_gddl.runtime.runners.job_process import JobProcess
from airflow_gddl.stores.scratch import scratch

NAME = "spark_submit"
ENVIRONMENT = "environment"
"""Folder in which an executor finds the unpacked archive."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Resources of a job on a cluster. `overhead`: bytes of an executor beyond its heap; null: Spark's own choice."""

    cores: int
    memory: str
    workers: int
    driver_memory: str
    overhead: int | None = None


def size_of(spec: JobSpec, settings: SparkSubmitSettings) -> Size:
    """Maximum over the tiers of the job's tables."""
    tiers = [spec.tiers[name] for name in sorted({table.size for table in spec.tables}) if name in spec.tiers]
    sizes = [_of_tier(tier, settings) for tier in tiers or [TierSpec()]]
    overheads = [size.overhead for size in sizes if size.overhead is not None]
    return Size(
        cores=max(size.cores for size in sizes),
        memory=max((size.memory for size in sizes), key=size_bytes),
        workers=max(size.workers for size in sizes),
        driver_memory=max((size.driver_memory for size in sizes), key=size_bytes),
        overhead=max(overheads, default=None),
    )


def _of_tier(tier: TierSpec, settings: SparkSubmitSettings) -> Size:
    own = decode(SparkSubmitCompute, dict(tier.compute.get(NAME, {})))
    cores = own.cores or tier.cores
    size = Size(
        cores=cores,
        memory=own.memory or tier.memory,
        workers=own.workers or tier.workers,
        driver_memory=own.driver_memory or settings.driver_memory,
    )
    if own.memory_overhead is not None:
        return replace(size, overhead=size_bytes(own.memory_overhead))
    # Tables of this engine are processed by Python processes, one for each core, outside the heap.
    return replace(size, overhead=cores * size_bytes(tier.delta_rs_memory)) if tier.engine == "delta_rs" else size


def arguments(spec: JobSpec, settings: SparkSubmitSettings, code: Sequence[str]) -> list[str]:
    """Arguments of spark-submit, without the application.

    Args:
        code: archives of Python modules for the executors.
    """
    size = size_of(spec, settings)
    found = ["--master", settings.master, "--deploy-mode", "client", "--name", f"gddl-{spec.run_id}"]
    found += ["--driver-memory", size.driver_memory, "--executor-cores", str(size.cores)]
    found += ["--executor-memory", size.memory]
    lists: Mapping[str, Sequence[str]] = {
        "--jars": settings.jars,
        "--packages": settings.packages,
        "--py-files": code,
        "--archives": [f"{settings.archive}#{ENVIRONMENT}"] if settings.archive else [],
    }
    for option, values in lists.items():
        found += [option, ",".join(values)] if values else []
    for name, value in {**_conf_of(size, settings.master), **settings.conf, **NO_SUBSTITUTION}.items():
        found += ["--conf", f"{name}={_text(value)}"]
    return found


def _conf_of(size: Size, master: str) -> dict[str, str | int | bool]:
    conf: dict[str, str | int | bool] = {"spark.ui.showConsoleProgress": False}
    if master.startswith("spark://"):
        # A standalone cluster derives the number of executors from the cores.
        return {**conf, "spark.cores.max": size.cores * size.workers}
    conf["spark.executor.instances"] = size.workers
    if size.overhead is not None:
        conf["spark.executor.memoryOverhead"] = f"{-(-size.overhead // 1024**2)}m"
    return conf


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
            FatalError: `JAVA_MISSING`, `JAVA_TOO_OLD`, `SPARK_HOME_INVALID`, `CODE_MISSING`, or `JOB_NOT_STARTED`.
            RetriableError: `MASTER_UNREACHABLE`.
        """
        find_java(self.driver.environ)
        check_master(self.settings.master)
        with scratch("code") as folder:
            code = [str(write_code(Path(folder, "gddl-job-code.zip")))] if self.settings.ship_code else []
            environ = self._environ(arguments(spec, self.settings, code))
            return replace(self.driver, environ=environ, page=self.settings.application_url).run(spec, listener)

    def _environ(self, submitted: Sequence[str]) -> dict[str, str]:
        settings = self.settings
        own = {
            "GDDL_SPARK_MASTER": settings.master,
            "GDDL_SPARK_DELTA": settings.delta,
            "GDDL_SPARK_START_TIMEOUT": settings.start_timeout,
            "PYSPARK_SUBMIT_ARGS": shlex.join([*submitted, "pyspark-shell"]),
        }
        python = settings.python or (f"./{ENVIRONMENT}/bin/python" if settings.archive else None)
        if python is not None:
            own["PYSPARK_PYTHON"] = python
        if settings.spark_home is not None:
            own |= _of_home(Path(settings.spark_home), self.driver.environ)
        return {**self.driver.environ, **own}


def _of_home(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Makes the driver use the Python modules of that Spark."""
    if not (home / "bin" / "spark-submit").is_file():
        remedy = "name the folder of an unpacked Spark, or leave spark_home out to take the one installed with pip"
        raise FatalError("SPARK_HOME_INVALID", f"{home} holds no bin/spark-submit", where="gddl.yaml", remedy=remedy)
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
    raise RetriableError("MASTER_UNREACHABLE", f"no master answers ({'; '.join(faults)})", where=master, remedy=remedy)
