"""Runs `spark_jobs.rules` in Spark tasks: Spark partitions rows, the rules process Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.engines.spark import row_types
from spark_jobs.engines.spark.columns import name
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import flat, with_leaves
from spark_jobs.spark.arrow_tasks import BatchRule, map_in_arrow

_BATCH = 65_536
"""Maximum rows of a record batch that a task returns."""
_TASK = 1_000_000
"""Maximum rows of a task, which holds them in memory."""
_PLACE, _FRAME = f"{GDDL}__place", f"{GDDL}__frame"

RowRule = Callable[[pa.Table], pa.Table]
KeyRule = Callable[[Mapping[str, pa.Table]], pa.Table]


def row_by_row(rows: DataFrame, rule: RowRule, schema: T.StructType) -> DataFrame:
    """Applies a rule that holds for any subset of the rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from _batches(rule(_together([batch])), schema)

    return map_batches(rows, run, schema)


def map_batches(rows: DataFrame, run: BatchRule, schema: T.StructType | str) -> DataFrame:
    """`mapInArrow` for any column name: Spark reads a dot in a name as a field."""
    columns = rows.columns

    def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(batch.rename_columns(columns) for batch in batches)

    return map_in_arrow(rows.toDF(*(f"c{number}" for number in range(len(columns)))), renamed, schema)


def by_key(
    frames: Mapping[str, DataFrame], place: Column, rule: KeyRule, schema: T.StructType, *, rows: int = 0
) -> DataFrame:
    """Applies a rule that needs all rows of a key together, for any partition of the keys.

    Args:
        frames: tables for the rule, by name.
        place: a number that rows of a key share, in every frame.
        rows: approximate number; 0: few.
    """
    kinds = {own: frame.schema for own, frame in frames.items()}
    joined = reduce(DataFrame.unionAll, (_tagged(frame, own, place, kinds) for own, frame in frames.items()))
    names = list(frames)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            together = _together(filled)
            yield from _batches(rule({own: _frame(together, own) for own in names}), schema)

    usual = int(joined.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    placed = joined.repartition(rows // _TASK, _PLACE) if rows // _TASK > usual else joined.repartition(_PLACE)
    return map_in_arrow(placed, run, schema)


def place_of_keys(table_schema: TableSchema) -> Column:
    """A hash of the key columns."""
    return _hash_of(row_types.key_types(table_schema))


def place_of_rows(table_schema: TableSchema) -> Column:
    """A hash of whole rows; columns that Spark can't hash are ignored."""
    kinds = row_types.column_types(table_schema)
    return _hash_of({column: kind for column, kind in kinds.items() if "map<" not in kind.simpleString()})


def _hash_of(kinds: Mapping[str, T.DataType]) -> Column:
    """Values are cast, since tables may have narrower types."""
    return F.xxhash64(*(_plain(name(column).cast(kind), kind) for column, kind in kinds.items()))


def _plain(value: Column, kind: T.DataType) -> Column:
    """Replaces -0.0 by 0.0, which is equal."""
    return value + F.lit(0.0) if isinstance(kind, T.FloatType | T.DoubleType) else value


def _tagged(frame: DataFrame, own: str, place: Column, kinds: Mapping[str, T.StructType]) -> DataFrame:
    """One of several frames as rows of all: its columns in a struct, those of the others null."""
    columns = [place.alias(_PLACE), F.lit(own).alias(_FRAME)]
    for other, kind in kinds.items():
        packed = F.struct(*map(name, frame.columns)) if other == own else F.lit(None).cast(kind)
        columns.append(packed.alias(other))
    return frame.select(*columns)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Rows of batches; all columns are nullable, as in the rules' types."""
    rows = pa.Table.from_batches(batches)
    return rows.cast(pa.schema([pa.field(f.name, with_leaves(f.type, lambda scalar: scalar)) for f in rows.schema]))


def _frame(rows: pa.Table, own: str) -> pa.Table:
    struct = flat(rows.filter(pc.equal(rows.column(_FRAME), own)).column(own))
    return pa.table(dict(zip((field.name for field in struct.type), struct.flatten(), strict=True)))


def _batches(rows: pa.Table, schema: T.StructType) -> Iterator[pa.RecordBatch]:
    yield from rows.select(schema.fieldNames()).combine_chunks().to_batches(max_chunksize=_BATCH)
