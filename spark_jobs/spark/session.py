"""The Spark session: embedded and quiet on one machine, the platform's own on a cluster."""

from __future__ import annotations

import hashlib
import importlib.resources
import io
import os
import pwd
import shlex
import sys
import threading
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.sql import SparkSession, SQLContext

from airflow_gddl.contract.codes import CLUSTER_UNUSABLE
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.java import find_java, java_program
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.stores import Storage
from airflow_gddl.stores import scratch as scratch_folders
from spark_jobs.spark import class_archive, jars, spark_home
from spark_jobs.spark.cluster_check import check_versions, wait_for_executors
from spark_jobs.spark.session_settings import STARTED_ELSEWHERE, WORKER_MEMORY, SessionSettings, is_on_a_cluster

_SET_TRIES = 20


def is_gone(session: SparkSession) -> bool:
    """Its Java process does not answer any more, or has stopped the Spark in it.

    What can't be known counts as there: platforms refuse such questions, and a remote Spark has no Java process here.
    """
    context: Any = getattr(session, "_sc", None)
    if context is None:
        return False
    java = context._jsc  # noqa: SLF001 - PySpark has no public way to ask
    if java is None:
        return True
    # A process that dies while it is asked gives an answer that says nothing; the next question decides.
    stopped = _is_stopped(java)
    return bool(_is_stopped(java) if stopped is None else stopped)


def _is_stopped(java: Any) -> bool | None:
    """Null where it can't be known."""
    try:
        return bool(java.sc().isStopped())
    except (OSError, Py4JNetworkError):  # py4j lets through what the socket says
        return True
    except Exception:  # noqa: BLE001 - see above
        return None


def bury(session: SparkSession) -> None:
    """Kill a Java process that was started here, and let the next session start another.

    It is ended before anything else may be started: what half lives could still write. Objects of the old process stay
    bound to its connection, whose secret no other process knows, so that a thread that still holds them only fails.
    What Java keeps on disk is in the folder of the session's temporary files. An orderly end waits a second and more
    for threads of Spark and PySpark, and has nothing to save: what a table needs is durable when its call returns.
    """
    context: Any = session.sparkContext
    gateway = context._gateway  # noqa: SLF001 - here and below: PySpark keeps one Spark a process, and knows of no end
    updates, context._accumulatorServer = context._accumulatorServer, None  # noqa: SLF001 - as above
    updates.handle_error = lambda *_: None  # else it prints a traceback when the connection ends
    # Else py4j's thread for objects that nobody holds any more would send commands, and log those that fail.
    gateway._gateway_client.is_connected = False  # noqa: SLF001 - as above
    process = gateway.__dict__.get("proc")
    if process is not None:
        process.kill()
        process.wait()
        with suppress(OSError):
            process.stdin.close()
    context._jsc = None  # noqa: SLF001 - else it would ask the process to stop
    threading.Thread(target=updates.shutdown, daemon=True).start()  # waits half a second for its thread
    context.stop()
    with suppress(Exception):
        gateway.close()  # no command, which py4j would log as failed
    pyspark: Any = SparkContext
    with pyspark._lock:  # noqa: SLF001 - as above
        pyspark._gateway = pyspark._jvm = pyspark._active_spark_context = None  # noqa: SLF001 - as above
    sessions: Any = SparkSession
    sessions._instantiatedSession = sessions._activeSession = None  # noqa: SLF001 - as above
    contexts: Any = SQLContext
    contexts._instantiatedContext = None  # noqa: SLF001 - as above


CLASS = "gddl.ConditionalLogStore"
SETTINGS = {f"spark.delta.logStore.{scheme}.impl": CLASS for scheme in ("s3", "s3a")}
_FILE = Path(*CLASS.split(".")).with_suffix(".class")


def class_folder(home: Path) -> Path:
    """The folder for the class path, made if need be; the JVM searches it when the class is requested.

    Args:
        home: the cache of JARs.
    """
    folder = home / f"log-store-{hashlib.sha256(_source().encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compile_into(folder: Path, session: SparkSession) -> None:
    """See that the class is in the folder, which is on the session's class path, and for later sessions in a JAR."""
    target, jar = folder / _FILE, folder.with_suffix(".jar")
    if jar.exists():
        return
    # Both appear at once: another job may be doing the same.
    if not target.exists():
        Storage().write(str(target.absolute()), _compiled(session))
    Storage().write(str(jar.absolute()), _jar(target.read_bytes()))


def _compiled(session: SparkSession) -> bytes:
    jvm: Any = session._jvm  # noqa: SLF001 - Java is compiled where Java is
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_source())
    return bytes(compiler.getBytecodes().get(CLASS))


def _jar(code: bytes) -> bytes:
    """The class as a JAR: with a folder on its class path Java takes no archive of classes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as jar:
        jar.writestr(zipfile.ZipInfo(_FILE.as_posix()), code)
    return content.getvalue()


def _source() -> str:
    place = importlib.resources.files("spark_jobs") / "java" / "gddl" / "ConditionalLogStore.java"
    return place.read_text(encoding="utf-8")


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
        raise FatalError(CLUSTER_UNUSABLE, what, remedy="see the job's log for what spark-submit said") from error
    except Exception as error:
        what = f"no Spark application could be started: {_first_line(error)}"
        raise FatalError(CLUSTER_UNUSABLE, what, remedy="check runners.spark_submit in gddl.yaml") from error
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


SCRATCH = f"{scratch_folders.PREFIX}spark-"
"""How the folder of an embedded Spark's temporary files begins."""

_TRIES = 2
"""Tries of a Spark task on one machine: a small table whose Python worker died is worked on once more."""
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
    **NO_SUBSTITUTION,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # As most readers want them; INT96 can't be read back by all of them before 1677 and after 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # A merge's source is read back from the change table, which gives the same rows whenever it is asked.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "false",
    # Every commit states whose it is, so that those of others are known (`delta_log.DeltaCommits`).
    "spark.databricks.delta.commitInfo.userMetadata": "gddl",
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
        FatalError: `JAVA_MISSING`, `DELTA_MISSING`, `SPARK_UNSUPPORTED`,
            `DELTA_UNSUPPORTED`, and those of `open_on_cluster`.
        RetriableError: `NO_EXECUTORS`.
    """
    session = SparkSession.getActiveSession()
    if session is None and is_on_a_cluster(os.environ):
        session = open_on_cluster(settings, _driver_settings(settings))
        if settings.s3 and settings.ship_delta and "GDDL_SPARK_MASTER" in os.environ:
            compile_into(class_folder(jars.cache_folder()), session)
    else:
        session = session or _embedded(settings)
        check_versions(session)
    configure(session, SQL_SETTINGS)
    return session


def configure(session: SparkSession, settings: Mapping[str, str], pause: float = 0.1) -> None:
    """Set settings of a session.

    While another thread is the first to use Delta, Delta's settings are declared one after the other, and Spark refuses
    one that is declared and not yet registered; a moment later it takes it.

    Args:
        pause: seconds between two tries of a setting.
    """
    for key, value in settings.items():
        for remaining in reversed(range(_SET_TRIES)):
            try:
                session.conf.set(key, value)
                break
            except AnalysisException as error:
                if remaining == 0 or "CANNOT_MODIFY_CONFIG" not in str(error):
                    raise
                time.sleep(pause)


def _why_java_ended(settings: SessionSettings) -> str:
    """What to do where a Java that works ended as Spark's."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return (
            f"Hadoop in Spark needs a user with a name: add one for the number {os.getuid()} to /etc/passwd of the "
            "image, or run as another user"
        )
    return (
        f"the job's log has what Java said; where the machine has less memory than {settings.memory}, write a smaller "
        "`memory` in the tier of gddl.yaml"
    )


def scratch_of(session: SparkSession) -> Path | None:
    """The folder of temporary files of a session whose Java process was started here; null of one that was not."""
    scratch = Path(session.conf.get("spark.gddl.scratch", "") or "")
    return scratch if scratch.name.startswith(SCRATCH) else None


def _embedded(settings: SessionSettings) -> SparkSession:
    java_program(os.environ)  # before anything else needs it, such as the resolution of JARs
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else its Python tasks run on the `python3` of the path
    # As `-P` for this process: tasks do not take a folder of the working directory for a package.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    builder = SparkSession.builder
    for key, value in _static_settings(settings).items():
        builder = builder.config(key, value)
    try:
        with spark_home.starting():
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        find_java(os.environ)  # an old or broken one is the usual reason
        raise FatalError(
            CLUSTER_UNUSABLE,
            f"Spark's Java process has ended at its start: {error}",
            remedy=_why_java_ended(settings),
        ) from error
    if settings.s3:
        compile_into(class_folder(jars.cache_folder()), session)
    if not settings.verbose:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _driver_settings(settings: SessionSettings) -> dict[str, str]:
    """Of a driver that is started here for a cluster. Where the platform has Delta, it has its own way to S3 too."""
    scratch = scratch_folders.make("spark")
    given = {
        "spark.gddl.scratch": str(scratch),
        "spark.driver.extraJavaOptions": _java_options(settings, scratch),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **settings.extra,
    }
    if not settings.ship_delta:
        return given
    class_path = class_path_of(settings, scratch)
    given["spark.driver.extraJavaOptions"] += f" {class_archive.java_options(class_path, settings.extra, os.environ)}"
    # Also sent to executors. On the class path of the driver's Java they are in the archive of classes.
    given |= {"spark.driver.extraClassPath": class_path, "spark.jars": ",".join(_jars(settings, scratch))}
    return {**given, **(SETTINGS if settings.s3 else {})}


def _java_options(settings: SessionSettings, scratch: Path) -> str:
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOG4J)
    # Native libraries are unpacked into its temporary folder; Java does not remove them when it is killed.
    own: tuple[str, ...] = (f"-Dderby.system.home={scratch}", f"-Djava.io.tmpdir={scratch}", "-Duser.timezone=UTC")
    # Else Java collects garbage twice during the start, whenever the memory for classes has grown.
    own += ("-XX:MetaspaceSize=256m",)
    java = " ".join((*own, *settings.java_flags(os.environ)))
    return java if settings.verbose else f"{java} -Dlog4j2.configurationFile=file:{logging}"


def _static_settings(settings: SessionSettings) -> dict[str, str]:
    scratch = scratch_folders.make("spark")
    class_path = class_path_of(settings, scratch)
    archive = class_archive.java_options(class_path, settings.extra, os.environ)
    java = f"{_java_options(settings, scratch)} {archive}"
    return {
        "spark.gddl.scratch": str(scratch),
        "spark.master": os.environ.get("GDDL_SPARK_MASTER", f"local[{settings.cores},{_TRIES}]"),
        "spark.app.name": "gddl-job",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": java.strip(),
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.hadoop.hadoop.tmp.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **DELTA,
        # Between pools; within one, jobs run in the order of their start.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.shuffle.partitions": str(2 * settings.cores),
        "spark.databricks.delta.snapshotPartitions": "1" if settings.brief else str(settings.cores),
        # Delta outside Databricks writes and checks this list, by a Spark job for each commit, and never reads it.
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
        "spark.sql.codegen.maxFields": "300",
        WORKER_MEMORY: str(settings.worker_memory),
        # Another Spark than the installed one has its PySpark in the zip file alone.
        **({} if "SPARK_HOME" in os.environ else {"spark.python.daemon.module": "spark_jobs.spark.python_daemon"}),
        **settings.extra,
        **NO_SUBSTITUTION,
        **(SETTINGS if settings.s3 else {}),
        "spark.driver.extraClassPath": class_path,
    }


def class_path_of(settings: SessionSettings, scratch: Path) -> str:
    """What an embedded Spark has before its own JARs, as `PATH` is written; JARs that are not in the cache are fetched.

    Raises:
        FatalError: `SPARK_UNSUPPORTED`, `DELTA_UNSUPPORTED`, `DELTA_MISSING`.
    """
    return os.pathsep.join([*_jars(settings, scratch), *_log_store(settings)])


def _jars(settings: SessionSettings, scratch: Path) -> list[str]:
    bundles = [jars.delta(), *([jars.s3a()] if settings.s3 else [])]
    return [jar for bundle in bundles for jar in jars.class_path(bundle, scratch)]


def _log_store(settings: SessionSettings) -> list[str]:
    """Commits are the driver's alone, so that no executor needs it."""
    if not settings.s3:
        return []
    folder = class_folder(jars.cache_folder())
    jar = folder.with_suffix(".jar")
    return [str(jar if jar.exists() else folder)]
