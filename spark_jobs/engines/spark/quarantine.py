"""The errors table: bad rows and unreadable files, kept with reason and original record until they are resolved."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.spark import row_types
from spark_jobs.engines.spark.decode_tasks import ERROR, KIND, ORDINAL
from spark_jobs.engines.spark.tables import Assignments, Tables
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules import error_rows
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.errors_table import ROW_MASK


def bad_rows(decoded: DataFrame) -> DataFrame:
    """Rows of the errors table for the bad rows among decoded ones."""
    return decoded.where(F.col(ERROR).isNotNull()).select(f"{ERROR}.*")


def bad_files(tables: Tables, files: Sequence[Unreadable], stamp: Stamp) -> DataFrame:
    """Rows of the errors table for files that could not be read."""
    return tables.local(error_rows.of_files(files, stamp), row_types.struct(error_rows.TABLE))


def to_replay(tables: Tables, path: str, planned_at: str, codes: Sequence[str], folder: str = "") -> DataFrame | None:
    """See `rules.quarantine.to_replay`; with the `ORDINAL` of each row's file.

    Args:
        folder: only rows of files below it; empty: all.
    """
    if not tables.exists(path):
        return None
    ordinal = F.dense_rank().over(Window.orderBy("source_file")).cast("bigint") - 1
    rows = tables.read(path).where(F.col("record").isNotNull())
    rows = rows.where(F.col("resolved_at").isNull() | (F.col("resolved_at") == F.lit(planned_at).cast("timestamp")))
    rows = rows.where(F.col("source_file").startswith(f"{folder}/")) if folder else rows
    return (rows.where(F.col("code").isin(*codes)) if codes else rows).withColumn(ORDINAL, ordinal)


def resolve_rows(tables: Tables, path: str, decoded: DataFrame, planned_at: str) -> None:
    """Mark rows that are valid now as resolved."""
    gddl = F.col(GDDL)
    row = gddl["position"].bitwiseAND(F.lit(ROW_MASK))
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


def resolve_files(tables: Tables, path: str, files: Sequence[str], stamp: Stamp) -> None:
    """Mark quarantined rows of earlier versions of `files` as resolved: those of this batch replace them."""
    older = F.col("source_file").isin(*files) & (F.col("batch_id") < stamp.batch_id)
    now = F.lit(stamp.applied_at).cast("timestamp")
    tables.handle(path).update(older & F.col("resolved_at").isNull(), {"resolved_at": now})
