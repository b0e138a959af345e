"""The Spark session: embedded and quiet on one machine, the platform's own on a cluster."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from airflow_gddl.contract.errors import FatalError
from spark_jobs.session_cluster import DELTA, open_on_cluster, shipped
from spark_jobs.session_settings import SessionSettings, is_on_a_cluster

__all__ = ["FOR_FEW_ROWS", "SCRATCH", "SQL_SETTINGS", "SessionSettings", "open_session"]

SCALA = "2.13"
SCRATCH = "gddl-spark-"
"""How the folder of an embedded Spark's temporary files begins."""
# Delta's JARs and what they need beyond Spark's own class path; the rest of their dependencies Spark brings itself.
_WANTED = ("io.delta_delta-spark", "io.delta_delta-storage", "io.delta_delta-kernel", "io.unitycatalog_unitycatalog")
_EXCLUDED = ("org.apache.hadoop:*", "org.apache.parquet:*", "org.apache.logging.log4j:*", "org.slf4j:*",
             "com.fasterxml.jackson.core:*", "com.github.luben:*", "org.xerial.snappy:*", "org.roaringbitmap:*",
             "io.airlift:*", "commons-logging:*", "org.locationtech.jts:*")  # fmt: skip

_IVY = """<ivysettings>
  <settings defaultResolver="chain"/>
  <resolvers><chain name="chain" returnFirst="true">
    <ibiblio name="local-m2" m2compatible="true" root="file://${user.home}/.m2/repository/" checkmodified="false"/>
    <ibiblio name="central" m2compatible="true"/>
  </chain></resolvers>
</ivysettings>
"""

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
    """The active session where a platform has one, that of a cluster where the job is for one, else an embedded one.

    Raises:
        FatalError: `JAVA_MISSING`, `DELTA_MISSING`, and those of `open_on_cluster`.
        RetriableError: `NO_EXECUTORS`.
    """
    session = SparkSession.getActiveSession()
    if session is None and is_on_a_cluster(os.environ):
        session = open_on_cluster(settings, _driver_settings(settings))
    session = session or _embedded(settings)
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
    if not settings.verbose:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _driver_settings(settings: SessionSettings) -> dict[str, str]:
    """Of a driver that is started here for a cluster."""
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH))
    return {
        "spark.gddl.scratch": str(scratch),
        "spark.driver.extraJavaOptions": _java_options(settings, scratch),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **(shipped(_delta_jars(scratch)) if settings.ship_delta else {}),
    }


def _java_options(settings: SessionSettings, scratch: Path) -> str:
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOG4J)
    java = f"-Dderby.system.home={scratch} -Duser.timezone=UTC"
    if settings.brief:
        java += " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    return java if settings.verbose else f"{java} -Dlog4j2.configurationFile=file:{logging}"


def _static_settings(settings: SessionSettings) -> dict[str, str]:
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH))
    return {
        "spark.gddl.scratch": str(scratch),
        "spark.master": os.environ.get("GDDL_SPARK_MASTER", f"local[{settings.cores}]"),
        "spark.app.name": "gddl-job",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": _java_options(settings, scratch),
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **DELTA,
        "spark.sql.shuffle.partitions": str(2 * settings.cores),
        "spark.databricks.delta.snapshotPartitions": str(settings.cores),
        "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024**2),
        "spark.sql.codegen.maxFields": "300",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, _delta_jars(scratch))),
    }


def _delta_jars(scratch: Path) -> list[Path]:
    """Delta's JARs: from the cache of an earlier start, else resolved once from Maven Central.

    Spark's default resolver also asks a second repository and prints a page of errors when that is out of reach; our
    own settings ask Central only.
    """
    series = ".".join(pyspark.__version__.split(".")[:2])
    try:
        version = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError as error:
        raise FatalError("DELTA_MISSING", "the package delta-spark is not installed",
                         remedy="pip install 'airflow-gddl[spark]'") from error  # fmt: skip
    home = Path(os.environ.get("GDDL_JARS", str(Path.home() / ".cache" / "airflow-gddl")))
    jars = home / f"delta-{version}-spark-{series}"
    log = "" if jars.exists() else _resolve(jars, scratch, f"io.delta:delta-spark_{series}_{SCALA}:{version}")
    found = sorted(p for p in jars.glob("*.jar") if p.name.startswith(_WANTED))
    if not found:
        raise FatalError(
            "DELTA_MISSING",
            f"the JARs of Delta {version} could not be had from Maven Central: {log}",
            remedy=f"open the way to Maven Central, or put the JARs into {jars}",
        )
    return found


def _resolve(jars: Path, scratch: Path, coordinates: str) -> str:
    """Let a Spark of its own process fetch the JARs, so that this one starts with a plain class path; its last words.

    They appear all at once, for two jobs may want them at the same time.
    """
    ivy = scratch / "ivysettings.xml"
    ivy.write_text(_IVY)
    nothing = scratch / "nothing.py"
    nothing.write_text("")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [
        str(submit),
        "--master",
        "local[1]",
        "--packages",
        coordinates,
        "--exclude-packages",
        ",".join(_EXCLUDED),
        "--conf",
        f"spark.jars.ivy={scratch / 'ivy'}",
        "--conf",
        f"spark.jars.ivySettings={ivy}",
        "--conf",
        "spark.ui.enabled=false",
        str(nothing),
    ]
    environment = {**os.environ, "SPARK_HOME": str(submit.parent.parent), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(  # noqa: S603 - nothing in it comes from outside
        command, check=False, capture_output=True, text=True, timeout=600, env=environment
    )
    said = [line.strip() for line in done.stderr.splitlines() if "not found" in line or "Exception" in line]
    words = " / ".join(said[-3:])[:500]
    jars.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=jars.parent))
    for jar in (scratch / "ivy" / "jars").glob("*.jar"):
        shutil.copy2(jar, staged / jar.name)
    if not any(staged.iterdir()):
        staged.rmdir()
        return words
    try:
        staged.rename(jars)
    except OSError:  # another job was quicker
        shutil.rmtree(staged)
    return words
