"""Functions over Arrow in Spark tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.spark.session_settings import is_on_a_cluster
from spark_jobs.spark.without_pandas import leave_pandas_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

BatchRule = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, run: BatchRule, schema: T.StructType | str) -> DataFrame:
    """`mapInArrow`; on one machine, where its Python workers run nothing else, without the import of pandas."""
    if is_on_a_cluster(os.environ):
        return rows.mapInArrow(run, schema)

    def alone(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leave_pandas_out()
        yield from run(batches)

    return rows.mapInArrow(alone, schema)
