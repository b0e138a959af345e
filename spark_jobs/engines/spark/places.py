"""Work on parts of a batch in Spark tasks: Spark places them, and no row crosses to its JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_gddl.stores import Storage
from spark_jobs.engines.places import Work
from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.decode_tasks import naming_files
from spark_jobs.spark.arrow_tasks import map_in_arrow

_REPORT = "report"


@dataclass(frozen=True)
class SparkTasks:
    """See `Place`."""

    spark: SparkSession
    slots: int

    def run(self, work: Work[Any], parts: Sequence[Any]) -> list[bytes]:
        if not parts:
            return []
        listed = tuple(parts)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = Storage()
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield pa.RecordBatch.from_pydict({_REPORT: [work(storage, listed[number])]})

        numbers = self.spark.range(0, len(listed), 1, len(listed))
        with naming_files([[work.file_of(part)] for part in listed]):
            return [bytes(row[0]) for row in map_in_arrow(numbers, task, f"{_REPORT} binary").collect()]

    def distinct(self, files: Sequence[str], columns: Sequence[str]) -> int:
        rows = self.spark.read.parquet(*files)
        hashed = rows.select(F.xxhash64(*map(name, columns)).alias("h"))
        return int(hashed.agg(F.count_distinct("h")).collect()[0][0])
