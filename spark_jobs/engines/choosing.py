"""Which engine keeps a table. Engines are imported when they are first asked for: idle tables pay for none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.engines.delta_commits import DeltaCommits

if TYPE_CHECKING:
    from spark_jobs.engines.base import Engine
    from spark_jobs.table.run import TableRun


def engine_of(run: TableRun) -> Engine:
    """The engine of the table's tier, or the one that this run was told to take."""
    return _delta_rs(run) if run.engine == "delta_rs" else _spark(run)


def _delta_rs(run: TableRun) -> Engine:
    from spark_jobs.engines.delta_rs.engine import DeltaRsEngine  # noqa: PLC0415 - see above
    from spark_jobs.engines.delta_rs.tables import Tables  # noqa: PLC0415 - see above

    return DeltaRsEngine(Tables(run.runtime.storage, run.runtime.clock))


def _spark(run: TableRun) -> Engine:
    from spark_jobs.engines.spark.engine import SparkEngine  # noqa: PLC0415 - see above
    from spark_jobs.engines.spark.tables import Tables  # noqa: PLC0415 - see above

    return SparkEngine(Tables(run.runtime.spark.for_table(), DeltaCommits(run.runtime.storage)))
