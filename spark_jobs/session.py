"""The Spark session: embedded and quiet on one machine, the platform's own on a cluster."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from airflow_gddl.contract.errors import FatalError
from spark_jobs import jars, log_store
from spark_jobs.session_settings import SessionSettings

__all__ = ["FOR_FEW_ROWS", "SCRATCH", "SQL_SETTINGS", "SessionSettings", "open_session"]

SCRATCH = "gddl-spark-"
"""How the folder of an embedded Spark's temporary files begins."""

_LOG4J = """status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""

# Read while plans are made, so they hold wherever the job runs.
SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # A merge's source is read back from the change table, which gives the same rows whenever it is asked.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "false",
}


# For a batch of a few rows, compiling a plan, spreading it and looking at it again costs more than just running it.
FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def open_session(settings: SessionSettings) -> SparkSession:
    """The active session where a platform has one, else an embedded one.

    Raises:
        FatalError: `JAVA_MISSING`, `DELTA_MISSING`, `S3A_MISSING`.
    """
    active = SparkSession.getActiveSession()
    session = active or _embedded(settings)
    for key, value in SQL_SETTINGS.items():
        session.conf.set(key, value)
    return session


def _embedded(settings: SessionSettings) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else its Python tasks run on whatever `python3` is
    builder = SparkSession.builder
    for key, value in _static_settings(settings).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise FatalError("JAVA_MISSING", f"the Java gateway did not start: {error}",
                         remedy="install Java 17 or newer and set JAVA_HOME") from error  # fmt: skip
    if settings.s3:
        log_store.compile_into(log_store.class_folder(jars.cache_folder()), session)
    if not settings.verbose:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _static_settings(settings: SessionSettings) -> dict[str, str]:
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH))
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOG4J)
    java = f"-Dderby.system.home={scratch} -Duser.timezone=UTC"
    if settings.brief:
        java += " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    if not settings.verbose:
        java += f" -Dlog4j2.configurationFile=file:{logging}"
    return {
        "spark.master": os.environ.get("GDDL_SPARK_MASTER", f"local[{settings.cores}]"),
        "spark.app.name": "gddl-job",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": java,
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.hadoop.hadoop.tmp.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(2 * settings.cores),
        "spark.databricks.delta.snapshotPartitions": str(settings.cores),
        "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024**2),
        "spark.sql.codegen.maxFields": "300",
        **settings.extra,
        **(log_store.SETTINGS if settings.s3 else {}),
        "spark.driver.extraClassPath": os.pathsep.join(_jars(settings, scratch)),
    }


def _jars(settings: SessionSettings, scratch: Path) -> list[str]:
    bundles = [jars.delta(), *([jars.s3a()] if settings.s3 else [])]
    found = [jar for bundle in bundles for jar in jars.class_path(bundle, scratch)]
    return [*found, str(log_store.class_folder(jars.cache_folder()))] if settings.s3 else found
