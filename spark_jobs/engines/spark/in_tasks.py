"""Runs a rule of `spark_jobs.rules` in Spark tasks, on Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from spark_jobs.rules.arrays import with_leaves
from spark_jobs.spark.arrow_tasks import map_in_arrow

_BATCH = 65_536
"""Maximum rows of a record batch that a task returns."""

RowRule = Callable[[pa.Table], pa.Table]


def row_by_row(rows: DataFrame, rule: RowRule, schema: T.StructType) -> DataFrame:
    """Applies a rule that holds for any subset of the rows.

    Tasks get columns by number, for Spark reads a dot in a name as a field.
    """
    columns = rows.columns

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                found = rule(_nullable(batch.rename_columns(columns)))
                yield from found.select(schema.fieldNames()).combine_chunks().to_batches(max_chunksize=_BATCH)

    return map_in_arrow(rows.toDF(*(f"c{number}" for number in range(len(columns)))), run, schema)


def _nullable(batch: pa.RecordBatch) -> pa.Table:
    """Rows of a batch; all columns are nullable, as in the rules' types."""
    rows = pa.Table.from_batches([batch])
    return rows.cast(pa.schema([pa.field(f.name, with_leaves(f.type, lambda scalar: scalar)) for f in rows.schema]))
