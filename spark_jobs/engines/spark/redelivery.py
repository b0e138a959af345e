"""Re-delivered changes and ties, by the rules in tasks."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.result import RunWarning
from spark_jobs.engines.spark import row_types
from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.in_tasks import by_key, place_of_keys
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.rebuild import lacking
from spark_jobs.rules.redelivery import SAMPLE, TIED, new_changes, sequence_tie


def new_rows(batch: DataFrame, stored: DataFrame | None, table_schema: TableSchema, *, rows: int) -> DataFrame:
    """See `redelivery.new_changes`; `rows`: approximate number."""

    def rule(tables: Mapping[str, pa.Table]) -> pa.Table:
        return new_changes(tables["batch"], tables.get("stored"), table_schema)

    frames = {"batch": batch, **({} if stored is None else {"stored": stored})}
    return by_key(frames, _place(table_schema), rule, row_types.new_change_rows(table_schema), rows=rows)


def lacking_rows(changes: DataFrame, others: DataFrame, table_schema: TableSchema, *, rows: int) -> DataFrame:
    """See `rebuild.lacking`; `rows`: approximate number."""

    def rule(tables: Mapping[str, pa.Table]) -> pa.Table:
        return lacking(tables["changes"], tables["others"], table_schema)

    frames = {"changes": changes, "others": others}
    return by_key(frames, _place(table_schema), rule, row_types.change_rows(table_schema), rows=rows)


def _place(table_schema: TableSchema) -> Column:
    """By key; without keys by sequence, and full-load rows, which are identified by position, by file."""
    if table_schema.keys:
        return place_of_keys(table_schema)
    gddl = F.col(GDDL)
    return F.xxhash64(gddl["sequence"], F.when(gddl["op"] == "R", gddl["source_file"]))


def tie_warnings(rows: DataFrame, table_schema: TableSchema) -> tuple[int, tuple[RunWarning, ...]]:
    """Number of rows of `new_rows`, and the warning `SEQUENCE_TIE` if there are ties."""
    count, tied = rows.agg(F.count(F.lit(1)), F.count_if(F.col(TIED))).collect()[0]
    if not tied:
        return int(count), ()
    sample = sample_keys(rows.where(F.col(TIED)), table_schema)
    return int(count), sequence_tie(int(tied), sample, table_schema)


def sample_keys(rows: DataFrame, table_schema: TableSchema) -> tuple[str, ...]:
    """A few keys as JSON objects, lowest first."""
    columns = list(map(name, table_schema.keys))
    picked = rows.select(*columns).distinct().orderBy(*columns).limit(SAMPLE)
    return tuple(r[0] for r in picked.select(F.to_json(F.struct(*columns))).collect())
