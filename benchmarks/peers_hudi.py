"""Hudi's data source for Spark in `peers.py`: upserts of each batch, by the payload for AWS DMS or by event time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyspark
from peers_tool import PeerOrder, run_tool
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from workload import KEY, OPERATION, SCHEMA, SEQUENCE, Folders

_ROW = "row_in_file"
_COMMON = {
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
}
_DMS = {
    "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.AWSDmsAvroPayload",
    "hoodie.datasource.write.precombine.field": SEQUENCE,
}
_EVENT_TIME = {
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.ordering.fields": f"{SEQUENCE},{_ROW}",
    "hoodie.payload.delete.field": OPERATION,
    "hoodie.payload.delete.marker": "D",
}


class Hudi:
    """One upsert for each batch into a table that is copied on write, as Hudi Streamer does it."""

    def __init__(self, order: PeerOrder) -> None:
        self._order = order
        self._merge = _DMS if order.tool == "hudi_dms" else _EVENT_TIME
        self.versions = (f"pyspark {pyspark.__version__}", Path(order.class_path).stem)

    def start(self, folders: Folders) -> None:  # noqa: ARG002 - any folders
        settings = {
            "spark.master": f"local[{self._order.cores}]",
            "spark.driver.memory": self._order.memory,
            "spark.driver.host": "localhost",
            "spark.driver.extraClassPath": self._order.class_path,
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
            "spark.sql.shuffle.partitions": str(2 * self._order.cores),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        self._spark = builder.getOrCreate()

    def load(self, folders: Folders) -> None:
        rows = self._read(folders.load_files()).withColumn(OPERATION, F.lit("I"))
        self._write(folders, rows, "bulk_insert")

    def apply(self, folders: Folders, files: Sequence[Path]) -> None:
        self._write(folders, self._read(files), "upsert")

    def _read(self, files: Sequence[Path]) -> DataFrame:
        """Rows with their place: by file name, and within it."""
        parts = [
            self._spark.read.parquet(str(f)).select("*", (F.col("_metadata.row_index") + n * 10**9).alias(_ROW))
            for n, f in enumerate(files)
        ]
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionByName(part)
        return rows

    def _write(self, folders: Folders, rows: DataFrame, operation: str) -> None:
        writer = rows.select(OPERATION, *SCHEMA.names, _ROW).write.format("hudi").mode("append")
        options = {"hoodie.table.name": "orders", "hoodie.datasource.write.operation": operation}
        writer.options(**_COMMON, **self._merge, **options).save(str(folders.replica(self._order.tool)))

    def export(self, folders: Folders) -> None:
        self._spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        rows = self._spark.read.format("hudi").load(str(folders.replica(self._order.tool)))
        rows.select(*SCHEMA.names).write.parquet(str(folders.exported(self._order.tool)))


if __name__ == "__main__":
    run_tool(Hudi)
