"""Values into the table's types, as Spark expressions: by name, without loss, misfits told apart (design, rule 11)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_gddl.contract.spec import MaskMethod
from spark_jobs.engines.spark.tables import spark_type
from spark_jobs.plan.columns import clean_name
from spark_jobs.plan.types import ArrayType, DecimalType, MapType, ScalarType, SqlType, StructType

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")


@dataclass(frozen=True)
class Fitted:
    """A converted value, null where it doesn't fit, and whether it is a misfit (never null)."""

    value: Column
    misfit: Column


def cast(value: Column, source: SqlType, target: SqlType) -> Column:
    """Convert what always converts: structs by field name, absent nested fields null, extra ones left out."""
    if source == target:
        return value
    if isinstance(target, StructType) and isinstance(source, StructType):
        return _cast_struct(value, source, target)
    if isinstance(target, ArrayType) and isinstance(source, ArrayType):
        return F.transform(value, lambda item: cast(item, source.element, target.element))
    if isinstance(target, MapType) and isinstance(source, MapType):
        keys = F.transform_keys(value, lambda k, _: cast(k, source.key, target.key))
        return F.transform_values(keys, lambda _, v: cast(v, source.value, target.value))
    return value.cast(spark_type(str(target)))


def _cast_struct(value: Column, source: StructType, target: StructType) -> Column:
    fields = []
    landed = {clean_name(f.name).lower(): f for f in source.fields}
    for wanted in target.fields:
        found = landed.get(wanted.name.lower())
        if found is None:
            fields.append(F.lit(None).cast(spark_type(str(wanted.type))).alias(wanted.name))
        else:
            fields.append(cast(value.getField(found.name), found.type, wanted.type).alias(wanted.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def fit(value: Column, source: SqlType, target: SqlType) -> Fitted:
    """Convert value by value; what doesn't convert and come back equal is a misfit."""
    kind = spark_type(str(target))
    trimmed = F.trim(value) if source == ScalarType("string") and target != ScalarType("string") else value
    converted = trimmed.try_cast(kind)
    exact = _exact(trimmed, converted, source, target)
    good = converted.isNotNull() & F.coalesce(exact, F.lit(False))
    return Fitted(F.when(good, converted), value.isNotNull() & ~good)


def _exact(value: Column, converted: Column, source: SqlType, target: SqlType) -> Column:
    if source == ScalarType("string"):
        return _exact_text(value, converted, target)
    back = converted.try_cast(spark_type(str(source)))
    if _is_number(source) and _is_number(target):
        # Integers past 2^53 come back from a double as their neighbours; compare as decimals where both are whole.
        return back == value
    return back.eqNullSafe(value)


def _exact_text(value: Column, converted: Column, target: SqlType) -> Column:
    if isinstance(target, DecimalType):
        digits = F.length(F.regexp_extract(F.regexp_replace(value, r"0+$", ""), r"\.([0-9]*)$", 1))
        scientific = value.rlike("[eE]")
        return F.when(scientific, converted.cast("double") == value.try_cast("double")).otherwise(
            (F.instr(value, ".") == 0) | (digits <= target.scale)
        )
    if target == ScalarType("date"):
        return converted.cast("timestamp") == value.try_cast("timestamp")
    return F.lit(True)


def _is_number(kind: SqlType) -> bool:
    return isinstance(kind, DecimalType) or (isinstance(kind, ScalarType) and kind.name in _NUMBERS)


def masked(value: Column, method: MaskMethod) -> Column:
    """A masked value: `hash` is the hexadecimal SHA-256 of its text, null stays null."""
    if method == "null":
        return F.lit(None)
    return F.sha2(value.cast("string"), 256)


def from_nanos(value: Column, target: SqlType) -> Fitted:
    """A timestamp from whole nanoseconds since 1970; it fits where no part of a microsecond would be cut."""
    rest = F.pmod(value, F.lit(1000))
    micros = (value - rest).cast("decimal(20,0)") / F.lit(1000)
    stamp = F.timestamp_micros(micros.cast("bigint")).cast(spark_type(str(target)))
    return Fitted(F.when(rest == 0, stamp), value.isNotNull() & (rest != 0))
