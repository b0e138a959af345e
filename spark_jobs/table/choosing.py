"""The engine of a table. Engines are imported on first use: idle tables import none."""

from __future__ import annotations

from airflow_gddl.contract.spec import EngineName
from spark_jobs.delta.commits import DeltaCommits
from spark_jobs.engines.port import Engine
from spark_jobs.table.runtime import Runtime


def make_engine(name: EngineName, runtime: Runtime, work: int | None = None) -> Engine:
    """The engine of this name, unless the runtime has one for all tables; `work` as `SparkSource.for_table`."""
    if runtime.engine is not None:
        return runtime.engine
    return _delta_rs(runtime) if name == "delta_rs" else _spark(runtime, work)


def _delta_rs(runtime: Runtime) -> Engine:
    from spark_jobs.delta.tables import Tables  # noqa: PLC0415 - see above
    from spark_jobs.engines.delta_rs import DeltaRsEngine  # noqa: PLC0415 - see above

    return DeltaRsEngine(Tables(runtime.storage, runtime.clock))


def _spark(runtime: Runtime, work: int | None) -> Engine:
    from spark_jobs.engines.spark import SparkEngine  # noqa: PLC0415 - see above
    from spark_jobs.engines.spark_tables import SparkTables  # noqa: PLC0415 - see above

    return SparkEngine(SparkTables(runtime.spark.for_table(work), DeltaCommits(runtime.storage)))
