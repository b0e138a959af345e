"""A job on a Spark cluster: its driver is a child of this process, started with the arguments of spark-submit."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_gddl.bundle.code import write_code
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.metadata.runners.spark_submit import SparkSubmitSettings
from airflow_gddl.runtime.runners.base import JobOutcome, Listener
from airflow_gddl.runtime.runners.java import find_java
from airflow_gddl.runtime.runners.job_process import JobProcess
from airflow_gddl.runtime.runners.spark_submit_arguments import ENVIRONMENT, arguments
from airflow_gddl.stores.scratch import scratch

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
