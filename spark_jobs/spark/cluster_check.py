"""Is this cluster fit for the job? Asked before anything is written."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_gddl.contract import spark_versions as versions
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.spec import CONTRACT_VERSION
from spark_jobs.spark.session_settings import is_on_a_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
_CHOOSE = (
    "the pyspark installed with the job, the cluster's own, or on EMR Serverless the application's release",
    "spark_version of the tier under runners.databricks, or environment_version in databricks.yml",
)
_LIBRARIES = ("deltalake", "numpy", "obstore", "psutil", "pyarrow")


def check_versions(session: SparkSession, environ: Mapping[str, str] = os.environ) -> None:
    """
    Raises:
        FatalError: `SPARK_UNSUPPORTED`, `DELTA_MISSING`, `DELTA_UNSUPPORTED`.
    """
    spark, runtime = session.version, environ.get(DATABRICKS)
    where = f"the driver of Databricks Runtime {runtime}" if runtime else "the driver"
    versions.check_spark(spark, where, _CHOOSE[runtime is not None])
    if runtime is not None:
        return  # its Delta has numbers of its own
    delta = _delta_of(session)
    if delta is not None:
        versions.check_pair(spark, delta, "choose the JARs on the driver's class path")


def _delta_of(session: SparkSession) -> str | None:
    """Version of Delta; null where the session has no JVM to ask (Spark Connect)."""
    jvm: Any = getattr(session, "_jvm", None)
    if jvm is None:
        return None
    try:
        return str(getattr(jvm.io.delta, "package").VERSION())  # noqa: B009 - `package` is a word of Java's, not Python's
    except Exception as error:
        remedy = "let runners.spark_submit.delta be `ship`, or put Delta's JARs on the cluster's class path"
        raise FatalError("DELTA_MISSING", "the driver has no Delta on its class path", remedy=remedy) from error


def wait_for_executors(session: SparkSession, seconds: float) -> None:
    """Return once an executor has done a task; a cluster that is busy may take its time.

    Raises:
        RetriableError: `NO_EXECUTORS` after so many seconds.
        FatalError: `CLUSTER_UNUSABLE`.
    """
    faults: list[BaseException] = []

    def try_one() -> None:
        try:
            session.range(1).count()
        except Exception as error:  # noqa: BLE001 - handed to the caller's thread
            faults.append(error)

    trial = threading.Thread(target=try_one, name="first-task", daemon=True)
    trial.start()
    trial.join(seconds)
    if trial.is_alive():
        what = f"the cluster gave no executor in {seconds:g} s"
        remedy = (
            "free some of it, ask for fewer cores or less memory in the tier, or check that driver and cluster are "
        )
        raise RetriableError("NO_EXECUTORS", what, remedy=remedy + "of one Spark version and reach each other")
    if faults:
        what = f"the cluster's first task failed: {str(faults[0]).splitlines()[0][:500]}"
        raise FatalError("CLUSTER_UNUSABLE", what, remedy="see the job's log and the executors' logs") from faults[0]


def is_this_python(environ: Mapping[str, str]) -> bool:
    """Whether tasks run in the Python of this process, which has what they need. Asking it takes most of a second."""
    return not is_on_a_cluster(environ) and environ.get("PYSPARK_PYTHON") == sys.executable


def check_executors(session: SparkSession, slots: int) -> None:
    """Whether Python on the executors has what a task needs, in the driver's versions.

    Args:
        slots: tasks that run at once; so many are asked.

    Raises:
        FatalError: `EXECUTOR_UNFIT`, `CONTRACT_VERSION`.
    """
    try:
        rows = session.range(0, slots, 1, slots).mapInArrow(_probe(_LIBRARIES), "said string").collect()
    except Exception as error:
        what = f"Python does not run on an executor: {_cause(error)}"
        raise FatalError("EXECUTOR_UNFIT", what, remedy=_REMEDY) from error
    for said in sorted({row["said"] for row in rows}):
        _judge(json.loads(said))


_REMEDY = (
    "set runners.spark_submit.archive to the environment that `gddl bundle --for spark` packs, or `python` to one "
    "that every node has"
)


def _probe(libraries: tuple[str, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What reports, in a task, what its Python has. It refers to nothing of this package, which may lack there."""

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib.metadata  # noqa: PLC0415 - as said above
        import json  # noqa: PLC0415 - as said above
        import platform  # noqa: PLC0415 - as said above

        import pyarrow  # noqa: ICN001, PLC0415 - as said above

        installed: dict[str, Any] = {"host": platform.node(), "python": platform.python_version()}
        for name in libraries:
            try:
                installed[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                installed[name] = None
        try:
            from airflow_gddl.contract.spec import CONTRACT_VERSION as CONTRACT  # noqa: PLC0415 - as said above

            installed["contract"] = CONTRACT
        except ImportError:
            installed["contract"] = None
        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"said": [json.dumps(installed)] * batch.num_rows})

    return probe


def _judge(there: dict[str, Any]) -> None:
    where = f"executor on {there['host']}, Python {there['python']}"
    lacking = [name for name in _LIBRARIES if there[name] is None]
    lacking += [] if there["contract"] else ["airflow-gddl"]
    if lacking:
        raise FatalError("EXECUTOR_UNFIT", f"it lacks {', '.join(lacking)}", where=where, remedy=_REMEDY)
    if there["contract"] != CONTRACT_VERSION:
        what = f"the executors' airflow-gddl has contract version {there['contract']}, the driver's {CONTRACT_VERSION}"
        remedy = "install the same airflow-gddl on both sides, or let runners.spark_submit.ship_code be true"
        raise FatalError("CONTRACT_VERSION", what, where=where, remedy=remedy)
    here = importlib.metadata.version("deltalake")
    if versions.series(there["deltalake"]) != versions.series(here):
        what = f"it has deltalake {there['deltalake']}, the driver {here}"
        raise FatalError("EXECUTOR_UNFIT", what, where=where, remedy=_REMEDY)


def _cause(error: BaseException) -> str:
    """The line that says most: Spark wraps what a task raised in pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = ("PYTHON_VERSION_MISMATCH", "ModuleNotFoundError", "Cannot run program", "ImportError", "No module named")
    return next((line for line in lines if any(word in line for word in telling)), lines[0] if lines else "")[:500]
