"""Landed files as raw rows: one DataFrame for each group of files that look alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.dialects.probed import CsvForm, Probed
from spark_jobs.engines.errors_table import ROW_BITS
from spark_jobs.engines.spark.tables import spark_type

FILE, POSITION, GENERATION, MALFORMED = "_gddl__file", "_gddl__position", "_gddl__generation", "_gddl__malformed"
_CSV_ROW_MASK = (1 << 33) - 1
_WHOLE_FILES = {"spark.sql.files.openCostInBytes": str(1 << 40)}


@dataclass(frozen=True, kw_only=True)
class RawGroup:
    """Rows of files with one signature.

    Attributes:
        rows: the file's columns under their own names, `FILE` (ledger path), `POSITION`, `GENERATION`, `MALFORMED`.
        files: where they come from; empty for rows from the quarantine.
        nanos: timestamps that come as whole nanoseconds.
        already_masked: rows from the quarantine were masked before they were written there.
    """

    rows: DataFrame
    files: tuple[Probed, ...] = ()
    nanos: tuple[str, ...] = ()
    already_masked: bool = False


def read_group(spark: SparkSession, files: Sequence[Probed], places: Mapping[str, tuple[int, str]]) -> RawGroup:
    """Read a group.

    Args:
        places: ledger path to (ordinal in the batch, path to read from).
    """
    first = files[0]
    paths = [_literal(places[f.file.path][1]) for f in files]
    rows = _read_parquet(spark, first, paths) if first.csv is None else _read_csv(spark, first, paths, first.csv)
    lookup = spark.createDataFrame(
        [(uri(places[f.file.path][1]), f.file.path, places[f.file.path][0], f.file.generation) for f in files],
        "_gddl__uri string, _gddl__file string, _gddl__ordinal bigint, _gddl__generation int",
    )
    joined = rows.join(F.broadcast(lookup), "_gddl__uri")
    position = F.shiftleft("_gddl__ordinal", ROW_BITS) + F.col("_gddl__row")
    columns = [F.col(f"`{n.replace('`', '``')}`") for n, _ in first.columns]
    selected = joined.select(*columns, FILE, position.alias(POSITION), GENERATION, MALFORMED)
    return RawGroup(rows=selected, files=tuple(files), nanos=first.nanos)


def _read_parquet(spark: SparkSession, like: Probed, paths: list[str]) -> DataFrame:
    fields = []
    for column, kind in like.columns:
        if kind != "void":
            read_as = "bigint" if column in like.nanos else kind
            fields.append(T.StructField(column, spark_type(read_as)))
    if like.translated:
        fields.append(T.StructField(MALFORMED, T.StringType()))
    rows = spark.read.schema(T.StructType(fields)).parquet(*paths)
    rows = rows.select(
        "*", F.col("_metadata.file_path").alias("_gddl__uri"), F.col("_metadata.row_index").alias("_gddl__row")
    )
    for column, kind in like.columns:
        if kind == "void":
            rows = rows.withColumn(column, F.lit(None))
    return rows if like.translated else rows.withColumn(MALFORMED, F.lit(None).cast("string"))


def _read_csv(spark: SparkSession, like: Probed, paths: list[str], form: CsvForm) -> DataFrame:
    """CSV rows; a file is one partition, so that row numbers follow from Spark's own row ids."""
    for key, value in _WHOLE_FILES.items():
        spark.conf.set(key, value)
    names = [n for n, _ in like.columns]
    schema = T.StructType(
        [T.StructField(n, T.StringType()) for n in names] + [T.StructField(MALFORMED, T.StringType())]
    )
    reader = (
        spark.read.schema(schema).option("header", like.header).option("multiLine", True).option("enforceSchema", True)
    )
    reader = reader.option("sep", form.csv_delimiter).option("quote", '"').option("escape", '"')
    reader = reader.option("nullValue", form.csv_null).option("emptyValue", "").option("encoding", "UTF-8")
    rows = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", MALFORMED).csv(paths)
    row = F.monotonically_increasing_id().bitwiseAND(F.lit(_CSV_ROW_MASK))
    return rows.select("*", F.col("_metadata.file_path").alias("_gddl__uri"), row.alias("_gddl__row"))


def _literal(path: str) -> str:
    """A path without meaning for Spark's file name patterns."""
    return "".join(f"\\{c}" if c in "{}[]*?\\" else c for c in path)


def uri(path: str) -> str:
    """A path as Spark's `_metadata.file_path` spells it: Hadoop's `Path.toUri`."""
    if "://" in path:
        scheme, rest = path.split("://", 1)
        bucket, _, key = rest.partition("/")
        return f"{scheme}://{bucket}/{_quoted(key)}"
    return f"file:{_quoted(path)}"


def _quoted(path: str) -> str:
    """As `java.net.URI` quotes a path: ASCII but letters, digits and some marks; other letters stay."""
    safe = "/-_.!~*'():@&=+$,;"
    return "".join(c if ord(c) > 127 else quote(c, safe=safe) for c in path)


def union(frames: Iterable[DataFrame]) -> DataFrame:
    """All rows of frames with equal columns."""
    frames = list(frames)
    out = frames[0]
    for frame in frames[1:]:
        out = out.unionByName(frame)
    return out
