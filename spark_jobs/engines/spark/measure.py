"""Figures of a decoded batch: per file for the ledger, and what the dedupe and the merge may skip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.decode import ERROR, KIND
from spark_jobs.engines.spark.sequence_text import width
from spark_jobs.plan.sequence import Widths
from spark_jobs.rules.figures import Figures, FileFigures
from spark_jobs.table.table_schema import GDDL, TableSchema


def measure(decoded: DataFrame, table_schema: TableSchema) -> Figures:
    """One pass for the files, one for the keys."""
    gddl = F.col(GDDL)
    good = F.col(ERROR).isNull()
    change = good & (F.col(KIND) == "change")
    sequence = F.when(change, gddl["sequence"])
    iso = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
    first_key = (
        name(table_schema.keys[0]) if table_schema.keys and _has_range(table_schema) else F.lit(None).cast("string")
    )
    single = len(table_schema.sequence) == 1
    lengths = {c: width(sequence if single else sequence[c]) for c in table_schema.text_sequence}
    per_file = decoded.groupBy(gddl["source_file"].alias("file")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(F.when(~good, 1)).alias("bad"),
        F.count(F.when(good & (F.col(KIND) == "load"), 1)).alias("loads"),
        json_of(F.min(sequence)).alias("min_sequence"),
        json_of(F.max(sequence)).alias("max_sequence"),
        F.date_format(F.min(F.when(change, gddl["commit_ts"])), iso).alias("min_commit_ts"),
        F.date_format(F.max(F.when(change, gddl["commit_ts"])), iso).alias("max_commit_ts"),
        F.min(F.when(good, first_key)).alias("low"),
        F.max(F.when(good, first_key)).alias("high"),
        *(F.min(length).alias(f"narrow {c}") for c, length in lengths.items()),
        *(F.max(length).alias(f"wide {c}") for c, length in lengths.items()),
    )
    rows = per_file.collect()
    identities, keys = _distinct(decoded.where(good), table_schema)
    lows, highs = [r["low"] for r in rows if r["low"] is not None], [r["high"] for r in rows if r["high"] is not None]
    return Figures(
        files={r["file"]: _file(r.asDict()) for r in rows},
        rows=sum(r["rows"] for r in rows),
        quarantined=sum(r["bad"] for r in rows),
        identities=identities,
        keys=keys,
        low=min(lows, default=None),
        high=max(highs, default=None),
        widths=_widths(rows, lengths),
        loads=sum(r["loads"] for r in rows),
    )


def _has_range(table_schema: TableSchema) -> bool:
    kind = next(str(c.type) for c in table_schema.data if c.name == table_schema.keys[0])
    return kind in ("tinyint", "smallint", "int", "bigint", "date", "string") or kind.startswith("decimal")


def _widths(files: Sequence[Row], columns: Iterable[str]) -> Widths:
    found = {c: [f for f in files if f[f"narrow {c}"] is not None] for c in columns}
    return {
        c: (min(f[f"narrow {c}"] for f in mine), max(f[f"wide {c}"] for f in mine)) for c, mine in found.items() if mine
    }


def _file(row: Mapping[str, object]) -> FileFigures:
    texts = {
        k: None if row[k] is None else str(row[k])
        for k in ("min_sequence", "max_sequence", "min_commit_ts", "max_commit_ts")
    }
    return FileFigures(rows=int(str(row["rows"])), quarantined=int(str(row["bad"])), **texts)


def json_of(value: Column) -> Column:
    """A sequence as JSON text, as the ledger keeps it: `"000…1"`, `17`, `{"a":1,"b":2}`."""
    wrapped = F.to_json(F.struct(value.alias("v")), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"})
    return F.when(value.isNotNull(), F.regexp_extract(wrapped, r'(?s)^\{"v":(.*)\}$', 1))


def _distinct(good: DataFrame, table_schema: TableSchema) -> tuple[int, int]:
    """Distinct identities and distinct keys, by 64-bit hash: a collision only makes the batch take the longer way."""
    if not table_schema.keys:
        return 0, 0
    key = F.xxhash64(*(name(k) for k in table_schema.keys))
    identity = F.xxhash64(F.col(GDDL)["sequence"], *(name(k) for k in table_schema.keys))
    # Spread by key, all sequences of a key are together, and one exchange serves both counts.
    pairs = good.select(key.alias("k"), identity.alias("i")).repartition("k").groupBy("k", "i").agg(F.lit(1))
    counted = (
        pairs.groupBy("k").agg(F.count(F.lit(1)).alias("n")).agg(F.sum("n").alias("i"), F.count(F.lit(1)).alias("k"))
    )
    row = counted.collect()[0]
    return int(row["i"] or 0), int(row["k"] or 0)
