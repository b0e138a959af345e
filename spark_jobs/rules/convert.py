"""Columns into the table's types: without loss, misfits told apart (design, rule 11); masks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.spec import MaskMethod
from spark_jobs.plan.types import DecimalType, ScalarType, SqlType
from spark_jobs.rules import exact_numbers
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.scalars import BITS, day, decimal_of, reader, real
from spark_jobs.rules.value_text import as_text

Mask = np.ndarray[Any, np.dtype[np.bool_]] | None
"""True where something holds; None: nowhere."""
_STRING = ScalarType("string")
_MOST_DISTINCT = 0.5


@dataclass(frozen=True)
class Fitted:
    """A converted column, null where a value doesn't fit, and where that is."""

    values: pa.Array
    misfit: Mask = None


def mask_of(values: pa.Array) -> Mask:
    """From booleans without nulls."""
    found = np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
    return found if found.any() else None


def either(first: Mask, second: Mask) -> Mask:
    if first is None or second is None:
        return second if first is None else first
    return np.asarray(first | second)


def but(first: Mask, second: Mask) -> Mask:
    """Where the first holds and the second doesn't."""
    if first is None or second is None:
        return first
    return np.asarray(first & ~second)


def fit(values: pa.Array, source: SqlType, target: SqlType) -> Fitted:
    """Convert value by value; what doesn't convert and come back equal is a misfit."""
    quick = _quick(values, source, target)
    if quick is not None:
        return Fitted(quick)
    converted = _each(values, _converter(source, target), arrow_type(target))
    return Fitted(converted, mask_of(pc.and_(converted.is_null(), values.is_valid())))


def _quick(values: pa.Array, source: SqlType, target: SqlType) -> pa.Array | None:
    """Arrow's own conversion where all of a column's text has the plain form that both read alike."""
    if source != _STRING or str(target) not in ("int", "bigint", "timestamp", "timestamp_ntz"):
        return None
    plain = (
        r"^-?[0-9]+$"
        if str(target) in BITS
        else r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
    )
    if pc.all(pc.match_substring_regex(values, plain)).as_py() is False:
        return None
    try:
        kind = arrow_type(target)
        return values.cast(pa.timestamp("us")).cast(kind) if pa.types.is_timestamp(kind) else values.cast(kind)
    except pa.ArrowInvalid:
        return None


def _each(values: pa.Array, convert: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """A function of each value, nulls left alone; asked once for each distinct value where many are equal."""
    coded = values.dictionary_encode() if _can_be_coded(values.type) else None
    if coded is not None and len(coded.dictionary) <= _MOST_DISTINCT * len(values):
        found = pa.array([convert(v) for v in coded.dictionary.to_pylist()], kind)
        return found.take(coded.indices)
    return pa.array([None if v is None else convert(v) for v in values.to_pylist()], kind)


def _can_be_coded(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def _converter(source: SqlType, target: SqlType) -> Callable[[Any], Any]:
    """Converts one value; None for a misfit."""
    if source == _STRING:
        return _from_text(target)
    if target == _STRING:
        return lambda value: _to_text(value, source)
    if _is_time(source) and _is_time(target):
        return lambda value: _time(value, target)
    return exact_numbers.converter(source, target)


def _from_text(target: SqlType) -> Callable[[str], Any]:
    read = reader(target)
    if isinstance(target, DecimalType):
        return lambda text: _exact_decimal(text.strip(" "), target)
    if str(target) == "date":
        return lambda text: _exact_day(text.strip(" "))
    return lambda text: read(text.strip(" ") if str(target) == "binary" else text.strip())


def _exact_decimal(text: str, target: DecimalType) -> Decimal | None:
    value = decimal_of(text.strip(), target)
    if value is None:
        return None
    if "e" in text.lower():
        return value if float(value) == real(text.strip()) else None
    digits = text.rstrip("0").partition(".")[2]
    return value if "." not in text or len(digits) <= target.scale else None


def _exact_day(text: str) -> date | None:
    value, moment = day(text), reader(ScalarType("timestamp"))(text)
    return value if value is not None and moment == datetime(value.year, value.month, value.day, tzinfo=UTC) else None


def _to_text(value: Any, source: SqlType) -> str | None:
    try:
        return as_text(value, source)
    except UnicodeDecodeError:
        return None


def _is_time(kind: SqlType) -> bool:
    return isinstance(kind, ScalarType) and kind.name in ("date", "timestamp", "timestamp_ntz")


def _time(value: datetime, target: SqlType) -> Any:
    if str(target) != "date":
        return value
    return value.date() if (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0) else None


def masked(values: pa.Array, source: SqlType, method: MaskMethod) -> pa.Array:
    """`hash`: the hexadecimal SHA-256 of the value's text; null stays null."""
    if method == "null":
        return pa.nulls(len(values), arrow_type(source))
    return _each(values, lambda v: hashlib.sha256(as_text(v, source).encode()).hexdigest(), pa.string())


def from_nanos(values: pa.Array, target: SqlType) -> Fitted:
    """A timestamp from whole nanoseconds since 1970; it fits where no part of a microsecond would be cut."""
    micros = pc.divide(pc.subtract(values, _rest(values)), 1000)
    uneven = pc.fill_null(pc.not_equal(_rest(values), 0), False)
    stamps = micros.cast(arrow_type(target))
    if not pc.any(uneven).as_py():
        return Fitted(stamps)
    return Fitted(pc.if_else(uneven, pa.scalar(None, stamps.type), stamps), mask_of(uneven))


def _rest(values: pa.Array) -> pa.Array:
    """Nanoseconds past the microsecond, from 0."""
    cut = pc.subtract(values, pc.multiply(pc.divide(values, 1000), 1000))
    return pc.if_else(pc.less(cut, 0), pc.add(cut, 1000), cut)
