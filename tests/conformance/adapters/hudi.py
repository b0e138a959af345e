"""A job that keeps a table of Hudi's by its data source for Spark: an upsert for each arrival, by the time of events.

It runs by a Python that has the pyspark of Hudi's bundle, whose JAR `HUDI_JAR` names:

    HUDI_JAR=hudi-spark3.5-bundle_2.12-1.2.0.jar hudi/bin/python -m tests.conformance --adapter hudi --seed 1
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.conformance.adapters.usual_job import Read, newest, table_of, text_of
from tests.conformance.delivery import Delivery, Outcome
from tests.conformance.judging import NO_CODE

_ORDER, _DELETED = "change_order", "_hoodie_is_deleted"
_SETTINGS = {
    "spark.master": "local[1]",
    "spark.driver.host": "localhost",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


def play(delivery: Delivery, folder: Path) -> Outcome:
    """An upsert for each arrival. What a file can't be read by ends the job, as it would on a schedule."""
    table, refused = folder / "table", ""
    for number, arrival in enumerate(delivery.arrivals):
        try:
            _upsert(delivery, newest(delivery, arrival), folder / f"batch{number}.parquet", table)
            refused = ""
        except Exception:  # noqa: BLE001 - a job that fails says so
            refused = NO_CODE
    if not (table / ".hoodie").is_dir():
        return Outcome(None, {}, refused)
    names = [f"`{column.name}`" for column in delivery.columns]
    _spark().read.format("hudi").load(str(table)).selectExpr(*names).write.parquet(str(folder / "rows"))
    return Outcome(tuple(pq.read_table(folder / "rows").to_pylist()), {}, refused)


def _upsert(delivery: Delivery, reads: list[Read], batch: Path, table: Path) -> None:
    if not reads:
        return
    rows = table_of(delivery, reads).rename_columns([*(column.name for column in delivery.columns), _DELETED])
    pq.write_table(rows.append_column(_ORDER, pa.array([text_of(read) for read in reads], pa.string())), batch)
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": ",".join(delivery.keys),
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.ordering.fields": _ORDER,
        "hoodie.metadata.enable": "false",
    }
    writer = _spark().read.parquet(str(batch)).write.format("hudi").mode("append")
    writer.options(**options).save(str(table))


@cache
def _spark() -> SparkSession:
    builder = SparkSession.builder.config("spark.driver.extraClassPath", os.environ["HUDI_JAR"])
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
