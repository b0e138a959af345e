"""The other side: the job that is written by hand everywhere, with Spark's and Delta's own defaults.

Per file: `dense_rank` over the key by sequence descending, rank 1, append to the change table, MERGE guarded by the
sequence, schema auto-merge on.
"""

from __future__ import annotations

import time
from pathlib import Path

from delta.tables import DeltaTable
from measuring import Answer, Order, answer, order_of_child, peak_mib, steps_of
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from workload import KEY, OPERATION, SCHEMA, SEQUENCE, Folders

SIDE = "handwritten"


def session(order: Order) -> SparkSession:
    """What Delta can't do without, equal cores and memory, auto-merge; all else as it comes."""
    settings = {
        "spark.master": f"local[{order.cores}]",
        "spark.driver.memory": order.memory,
        "spark.driver.host": "localhost",
        "spark.driver.extraClassPath": order.class_path,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.schema.autoMerge.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def load(spark: SparkSession, folders: Folders) -> float:
    """Seconds of the full load."""
    started = time.perf_counter()
    rows = spark.read.parquet(*map(str, folders.load_files()))
    rows.write.format("delta").save(str(folders.replica(SIDE)))
    return time.perf_counter() - started


def apply(spark: SparkSession, folders: Folders) -> Answer:
    """The timed part: file after file."""
    steps = {"append": 0.0, "merge": 0.0}
    started = time.perf_counter()
    for file in folders.change_files():
        for step, seconds in apply_file(spark, folders, file).items():
            steps[step] += seconds
    return Answer(seconds=time.perf_counter() - started, peak_mib=peak_mib(), steps=steps_of(steps))


def apply_file(spark: SparkSession, folders: Folders, file: Path) -> dict[str, float]:
    """One file; seconds by step."""
    started = time.perf_counter()
    newest_first = Window.partitionBy(KEY).orderBy(F.col(SEQUENCE).desc())
    ranked = spark.read.parquet(str(file)).withColumn("rank", F.dense_rank().over(newest_first))
    changes = ranked.where("rank = 1").drop("rank")
    changes.write.format("delta").mode("append").save(f"{folders.replica(SIDE)}__changes")
    appended = time.perf_counter()
    newer, upsert = f"s.{SEQUENCE} > t.{SEQUENCE}", f"s.{OPERATION} IN ('I', 'U')"
    target = DeltaTable.forPath(spark, str(folders.replica(SIDE))).alias("t")
    merge = target.merge(changes.alias("s"), f"s.{KEY} = t.{KEY}")
    merge = merge.whenMatchedUpdateAll(f"{newer} AND {upsert}").whenMatchedDelete(f"{newer} AND s.{OPERATION} = 'D'")
    merge.whenNotMatchedInsertAll(upsert).execute()
    return {"append": appended - started, "merge": time.perf_counter() - appended}


def export(spark: SparkSession, folders: Folders) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    rows = spark.read.format("delta").load(str(folders.replica(SIDE)))
    rows.select(*SCHEMA.names).write.parquet(str(folders.exported(SIDE)))


def main() -> None:
    order = order_of_child()
    folders, warm = Folders(Path(order.root)), Folders(Path(order.warm_root))
    spark = session(order)
    if order.phase == "load":
        found = Answer(class_path=order.class_path, seconds=load(spark, folders))
    else:
        load(spark, warm)
        apply(spark, warm)
        found = apply(spark, folders)
        export(spark, folders)
    answer(order, found)
    spark.stop()


if __name__ == "__main__":
    main()
