"""Tools of `peers.py` that write Delta tables with this project's packages: its engines, and MERGE by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import handwritten
import this_engine
from delta.tables import DeltaTable as SparkDeltaTable
from peers_deltalake import DELETED, NEWER, ROW, key_range, versions_of
from peers_tool import PeerOrder, Tool, run_tool
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from workload import KEY, OPERATION, SCHEMA, SEQUENCE, Folders

from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.spark.session import SessionSettings
from spark_jobs.spark.tasks import keep_freed_memory

_FILE = "from_file"
_ORDER = (SEQUENCE, _FILE, ROW)
"""What orders changes: the sequence, and within a transaction the place in the service's files."""


class ThisProject:
    """Whole jobs, one for each batch, with all their duties: discovery, change table, quarantine, ledger."""

    def __init__(self, order: PeerOrder) -> None:
        tier = this_engine.TIER if order.tasks == "many" else this_engine.WITHOUT_SPARK
        if order.tool == "one_task_vectors":
            tier = replace(tier, deletion_vectors=True)
        self._name = order.tool
        self._side = this_engine.Side(
            LazySpark(SessionSettings(cores=order.cores, memory=order.memory, single=True)), tier
        )
        packages = ("deltalake",) if order.tasks == "one" else ("pyspark", "delta-spark", "deltalake")
        self.versions = versions_of(*packages)

    def start(self, folders: Folders) -> None:
        keep_freed_memory()  # as the program does
        this_engine.start(folders, self._side)

    def load(self, folders: Folders) -> None:
        self._run(folders)

    def apply(self, folders: Folders, files: Sequence[Path]) -> None:  # noqa: ARG002 - it finds files itself
        self._run(folders)

    def _run(self, folders: Folders) -> None:
        shown: list[JobResult] = []
        runtime = Runtime(storage=Storage(), spark=self._side.spark)
        run_job(this_engine.job_of(folders, self._side), runtime, shown.append)
        print(shown[0])
        if (shown[0].status, shown[0].tasks) != ("succeeded", self._side.tier.tasks):
            raise this_engine.JobFailedError(f"not succeeded: {shown[0]}")

    def export(self, folders: Folders) -> None:
        this_engine.export(folders, self._side.spark)
        folders.exported(this_engine.SIDE).rename(folders.exported(self._name))


class PlainMerge:
    """The job that is written by hand everywhere: `handwritten.py`, one MERGE for each file, with a change table."""

    def __init__(self, order: PeerOrder) -> None:
        self._order = order
        self.versions = versions_of("pyspark", "delta-spark")

    def start(self, folders: Folders) -> None:  # noqa: ARG002 - any folders
        self.spark = handwritten.session(self._order)

    def load(self, folders: Folders) -> None:
        handwritten.load(self.spark, folders)

    def apply(self, folders: Folders, files: Sequence[Path]) -> None:
        for file in files:
            handwritten.apply_file(self.spark, folders, file)

    def export(self, folders: Folders) -> None:
        handwritten.export(self.spark, folders)
        folders.exported(handwritten.SIDE).rename(folders.exported(self._order.tool))


class TunedMerge:
    """One MERGE for a whole batch, tuned for this table; deleted rows stay, marked, and keep their sequence."""

    def __init__(self, order: PeerOrder) -> None:
        self._order = order
        self.versions = versions_of("pyspark", "delta-spark")

    def start(self, folders: Folders) -> None:  # noqa: ARG002 - any folders
        self._spark = handwritten.session(self._order)
        for key, value in {
            "spark.sql.shuffle.partitions": str(2 * self._order.cores),
            "spark.sql.autoBroadcastJoinThreshold": str(128 * 1024**2),
            "spark.databricks.delta.optimizeWrite.enabled": "true",
            "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        }.items():
            self._spark.conf.set(key, value)

    def load(self, folders: Folders) -> None:
        rows = self._spark.read.parquet(*map(str, folders.load_files())).withColumn(DELETED, F.lit(False))
        ordered = rows.repartitionByRange(2 * self._order.cores, KEY).sortWithinPartitions(KEY)
        ordered.write.format("delta").save(str(folders.replica(self._order.tool)))

    def apply(self, folders: Folders, files: Sequence[Path]) -> None:
        net = _net_changes(self._spark, files)
        low, high = key_range(files)
        target = SparkDeltaTable.forPath(self._spark, str(folders.replica(self._order.tool))).alias("t")
        values = {c: f"s.{c}" for c in SCHEMA.names} | {DELETED: f"s.{OPERATION} = 'D'"}
        merge = target.merge(net.alias("s"), f"s.{KEY} = t.{KEY} AND t.{KEY} BETWEEN {low} AND {high}")
        merge.whenMatchedUpdate(NEWER, set=values).whenNotMatchedInsert(values=values).execute()

    def export(self, folders: Folders) -> None:
        self._spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        rows = self._spark.read.format("delta").load(str(folders.replica(self._order.tool)))
        rows.where(f"NOT {DELETED}").select(*SCHEMA.names).write.parquet(str(folders.exported(self._order.tool)))


def _net_changes(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """The last change of each key in a batch."""
    rows = spark.read.parquet(*map(str, files)).select(
        "*", F.col("_metadata.file_name").alias(_FILE), F.col("_metadata.row_index").alias(ROW)
    )
    newest_first = Window.partitionBy(KEY).orderBy(*(F.col(c).desc() for c in _ORDER))
    return rows.withColumn("nth", F.row_number().over(newest_first)).where("nth = 1").drop("nth", _FILE, ROW)


def _tool(order: PeerOrder) -> Tool:
    kinds = {"merge_plain": PlainMerge, "merge_tuned": TunedMerge}
    return kinds.get(order.tool, ThisProject)(order)


if __name__ == "__main__":
    run_tool(_tool)
