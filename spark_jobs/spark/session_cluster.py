"""The Spark session of a job on a cluster: its own driver's, that of the spark-submit that started it, or a platform's.

What a user sets with spark-submit wins over what is set here.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from spark_jobs.spark.cluster_check import check_versions, wait_for_executors
from spark_jobs.spark.session_settings import STARTED_ELSEWHERE, SessionSettings

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def open_on_cluster(settings: SessionSettings, driver: Mapping[str, str]) -> SparkSession:
    """A session whose versions are supported and whose cluster has given an executor.

    Args:
        driver: settings of a driver's JVM that is started here: its log, its JARs. Unused where there is one already.

    Raises:
        FatalError: `SPARK_UNSUPPORTED`, `DELTA_MISSING`, `DELTA_UNSUPPORTED`, `CLUSTER_UNUSABLE`.
        RetriableError: `NO_EXECUTORS`.
    """
    if "GDDL_SPARK_MASTER" in os.environ and not any(name in os.environ for name in STARTED_ELSEWHERE):
        os.environ["PYSPARK_SUBMIT_ARGS"] = submitted(settings, driver, os.environ)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = _get_or_create()
    if not settings.verbose and "SPARK_REMOTE" not in os.environ:
        session.sparkContext.setLogLevel("ERROR")
    check_versions(session)
    wait_for_executors(session, settings.start_seconds)
    return session


def _get_or_create() -> SparkSession:
    builder: Any = SparkSession.builder
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # The JVM is there, but no Spark in it yet, and no setting names Delta.
        for key, value in {**DELTA, **NO_SUBSTITUTION}.items():
            builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        what = f"spark-submit did not start a driver: {error}"
        raise FatalError("CLUSTER_UNUSABLE", what, remedy="see the job's log for what spark-submit said") from error
    except Exception as error:
        what = f"no Spark application could be started: {_first_line(error)}"
        raise FatalError("CLUSTER_UNUSABLE", what, remedy="check runners.spark_submit in gddl.yaml") from error
    return session


def submitted(settings: SessionSettings, driver: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Arguments for spark-submit: ours, then those that were given, of which the last counts."""
    given = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    ours = {"spark.app.name": "gddl-job", "spark.ui.showConsoleProgress": "false", **DELTA}
    ours |= {**NO_SUBSTITUTION, "spark.sql.codegen.maxFields": "300"}
    ours |= {"spark.databricks.delta.snapshotPartitions": str(max(2, settings.cores)), **driver}
    # A list of JARs that is given would take the place of ours.
    jars = ours.pop("spark.jars", "")
    if jars and "--jars" in given:
        place = given.index("--jars") + 1
        given[place] = f"{jars},{given[place]}"
    elif jars:
        given = ["--jars", jars, *given]
    conf = [part for key, value in ours.items() for part in ("--conf", f"{key}={value}")]
    master = [] if "--master" in given else ["--master", environ["GDDL_SPARK_MASTER"]]
    return shlex.join([*conf, *master, *given])


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line or "Error" in line), f"{type(error).__name__}")[:500]
