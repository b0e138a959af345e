"""The errors table: bad rows and unreadable files, kept with reason and original until they are resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.errors_table import COLUMNS, NANOS, ROW_BITS
from spark_jobs.engines.spark.decode import ERROR, JSON_OPTIONS, KIND, RECORD, Stamp
from spark_jobs.engines.spark.read import FILE, GENERATION, MALFORMED, POSITION
from spark_jobs.engines.spark.tables import Assignments, TableDefinition, Tables, struct_type
from spark_jobs.plan.columns import Column
from spark_jobs.plan.types import parse_type
from spark_jobs.table.table_schema import GDDL


def definition(path: str) -> TableDefinition:
    return TableDefinition(path=path, columns=tuple(Column(n, parse_type(k)) for n, k in COLUMNS.items()))


def bad_rows(decoded: DataFrame, record_schema: str) -> DataFrame:
    """Rows of the errors table for the bad rows of one decoded group.

    Args:
        record_schema: DDL of the original record, so that a replay reads it back with its types.
    """
    gddl = F.col(GDDL)
    error = F.col(ERROR)
    return decoded.where(error.isNotNull()).select(
        F.concat_ws("/", gddl["batch_id"], gddl["position"].cast("string")).alias("id"),
        F.col(RECORD).alias("record"),
        F.lit(record_schema).alias("record_schema"),
        error["code"].alias("code"),
        error["reason"].alias("reason"),
        error["column"].alias("column"),
        gddl["source_file"].alias("source_file"),
        gddl["position"].bitwiseAND(F.lit((1 << ROW_BITS) - 1)).alias("position"),
        F.col(KIND).alias("kind"),
        gddl["generation"].alias("generation"),
        gddl["batch_id"].alias("batch_id"),
        gddl["applied_at"].alias("occurred_at"),
        F.lit(None).cast("timestamp").alias("resolved_at"),
    )


def bad_files(tables: Tables, files: Sequence[Unreadable], stamp: Stamp) -> DataFrame:
    """Rows of the errors table for files that could not be read."""
    rows = [
        (f"{stamp.batch_id}/{u.file.path}", u.code, u.reason, u.file.path, u.file.kind, u.file.generation)
        for u in files
    ]
    found = tables.spark.createDataFrame(
        rows, "id string, code string, reason string, source_file string, kind string, generation int"
    )
    fixed = {"batch_id": F.lit(stamp.batch_id), "occurred_at": F.lit(stamp.applied_at).cast("timestamp")}
    return found.select(
        *(fixed.get(n, F.col(n) if n in found.columns else F.lit(None)).cast(k).alias(n) for n, k in COLUMNS.items())
    )


@dataclass(frozen=True, kw_only=True)
class ReplayGroup:
    """Unresolved rows of one record schema and kind, as raw rows (see `read.RawGroup`); `nanos`: column to type."""

    rows: DataFrame
    kind: str
    fields: tuple[T.StructField, ...]
    nanos: dict[str, str]


def groups_to_replay(tables: Tables, path: str, planned_at: str) -> list[ReplayGroup]:
    """Rows to decode once more. Those that this very batch resolved before it died are among them."""
    if not tables.exists(path):
        return []
    waiting = _waiting(tables, path, planned_at)
    ordinal = F.dense_rank().over(Window.orderBy("source_file")).cast("bigint") - 1
    waiting = waiting.withColumn("_gddl__ordinal", ordinal)
    groups = waiting.select("record_schema", "kind").distinct().orderBy("kind", "record_schema").collect()
    found = []
    for group in groups:
        schema = struct_type(group["record_schema"])
        rows = waiting.where((F.col("record_schema") == group["record_schema"]) & (F.col("kind") == group["kind"]))
        parsed = F.from_json("record", schema, {**JSON_OPTIONS, "mode": "FAILFAST"})
        columns = [parsed[f.name].alias(f.name) for f in schema.fields]
        position = F.shiftleft("_gddl__ordinal", ROW_BITS) + F.col("position")
        lines = F.when(F.col("code") == "ROW_MALFORMED", F.col("record"))
        raw = rows.select(*columns, F.col("source_file").alias(FILE), position.alias(POSITION),
                          F.col("generation").alias(GENERATION), lines.alias(MALFORMED))  # fmt: skip
        comments = {f.name: (f.metadata or {}).get("comment", "") for f in schema.fields}
        nanos = {n: c.removeprefix(NANOS) for n, c in comments.items() if c.startswith(NANOS)}
        found.append(ReplayGroup(rows=raw, kind=group["kind"], fields=tuple(schema.fields), nanos=nanos))
    return found


def _waiting(tables: Tables, path: str, planned_at: str) -> DataFrame:
    rows = tables.read(path).where(F.col("record").isNotNull())
    return rows.where(F.col("resolved_at").isNull() | (F.col("resolved_at") == F.lit(planned_at).cast("timestamp")))


def resolve_rows(tables: Tables, path: str, decoded: DataFrame, planned_at: str) -> None:
    """Mark the rows that are good now as resolved."""
    gddl = F.col(GDDL)
    row = gddl["position"].bitwiseAND(F.lit((1 << ROW_BITS) - 1))
    good = decoded.where(F.col(ERROR).isNull()).select(
        gddl["source_file"].alias("f"), row.alias("p"), F.col(KIND).alias("k")
    )
    same = (
        (F.col("t.source_file") == F.col("s.f"))
        & (F.col("t.position") == F.col("s.p"))
        & (F.col("t.kind") == F.col("s.k"))
    )
    same = same & F.col("t.record").isNotNull() & F.col("t.resolved_at").isNull()
    stamp: Assignments = {"resolved_at": F.lit(planned_at).cast("timestamp")}
    tables.handle(path).alias("t").merge(good.alias("s"), same).whenMatchedUpdate(set=stamp).execute()


def resolve_files(tables: Tables, path: str, files: Sequence[str], batch_id: str, now: str) -> None:
    """Mark what earlier versions of `files` left in the quarantine as resolved: the new version takes their place."""
    condition = F.col("source_file").isin(*files) & F.col("resolved_at").isNull() & (F.col("batch_id") < batch_id)
    tables.handle(path).update(condition, {"resolved_at": F.lit(now).cast("timestamp")})
