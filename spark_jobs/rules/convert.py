"""Columns into the table's types: without loss, misfits distinguished (semantics, rule 11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.spec import SubMicrosecondPolicy
from airflow_gddl.contract.sql_types import DecimalType, ScalarType, SqlType, is_complex
from spark_jobs.rules.arrays import arrow_type, flat, is_true, with_values
from spark_jobs.rules.texts import (
    BLANKS,
    FINER,
    LAST_MICROSECOND,
    WHOLE_NUMBERS,
    as_text,
    outside_years,
    reader,
    real_text,
    rounded,
    trims,
)


def converter(source: SqlType, target: SqlType) -> Callable[[Any], Any]:
    """Converts one value; None for a misfit."""
    if str(source) == "boolean" or str(target) == "boolean":
        return lambda value: _boolean(value, source, target)
    if isinstance(target, DecimalType):
        return lambda value: _to_decimal(value, source, target)
    if str(target) in WHOLE_NUMBERS:
        return lambda value: _to_whole(value, WHOLE_NUMBERS[str(target)])
    if str(target) in ("float", "double"):
        return lambda value: _to_real(value, source, single=str(target) == "float")
    return lambda _: None


def _boolean(value: Any, source: SqlType, target: SqlType) -> Any:
    if str(source) == "boolean":
        if not isinstance(target, DecimalType):
            return int(value)
        return Decimal(int(value)) if target.precision > target.scale else None
    return bool(value) if value in (0, 1) else None


def _to_decimal(value: Any, source: SqlType, target: DecimalType) -> Decimal | None:
    if isinstance(value, float):
        if not np.isfinite(value):
            return None
        number = rounded(Decimal(real_text(value, single=False)), target)
        back = None if number is None else _as_real(number, single=str(source) == "float")
        return number if back == value else None
    number = rounded(Decimal(value), target)
    return number if number == value else None


def _to_whole(value: Any, values: range) -> int | None:
    if not np.isfinite(float(value)) or value != int(value):
        return None
    return int(value) if int(value) in values else None


def _to_real(value: Any, source: SqlType, *, single: bool) -> float | None:
    number = _as_real(value, single=single)
    if isinstance(value, float):
        return number if number == value or (np.isnan(number) and np.isnan(value)) else None
    if isinstance(source, DecimalType):
        back = rounded(Decimal(real_text(number, single=False)), source) if np.isfinite(number) else None
        return number if back == value else None
    return number if np.isfinite(number) and int(number) == value else None


def _as_real(value: Any, *, single: bool) -> float:
    return float(np.float32(float(value))) if single else float(value)


Mask = np.ndarray[Any, np.dtype[np.bool_]] | None
"""A boolean mask; None: false everywhere."""
_STRING = ScalarType("string")
_MOST_DISTINCT = 0.5
_TIMES = ("timestamp", "timestamp_ntz")
_DATE = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"  # Arrow takes a year 0, too
_MOMENT = f"^{_DATE}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\\.[0-9]{{1,6}})?$"
_PLAIN = {
    **dict.fromkeys(WHOLE_NUMBERS, "^-?[0-9]{1,18}$"),
    **dict.fromkeys(_TIMES, _MOMENT),
    "date": f"^{_DATE}$",
    "double": r"^-?[0-9]{1,30}(\.[0-9]{1,30})?$",
}
"""Forms of text that Arrow and `rules.texts` read alike, by type."""
_PLAIN_DECIMAL = r"^-?[0-9]{1,37}(\.[0-9]{1,37})?$"
_FINER_HALF = r"\.[0-9]{6}[5-9]"
_PAST_MICROS = r"(\.[0-9]{6})[0-9]+"


@dataclass(frozen=True)
class Fitted:
    """A converted column, null where a value doesn't fit, and where that is.

    Attributes:
        reduced: where a time was cut or rounded to microseconds.
    """

    values: pa.Array
    misfit: Mask = None
    reduced: Mask = None


def mask_of(values: pa.Array) -> Mask:
    """From booleans; null is false."""
    mask = is_true(values)
    return mask if mask.any() else None


def either(first: Mask, second: Mask) -> Mask:
    if first is None or second is None:
        return second if first is None else first
    return np.asarray(first | second)


def but(first: Mask, second: Mask) -> Mask:
    """Where the first holds and the second doesn't."""
    if first is None or second is None:
        return first
    return np.asarray(first & ~second)


def fit(values: pa.Array, source: SqlType, target: SqlType, policy: SubMicrosecondPolicy = "truncate") -> Fitted:
    """Convert value by value; what doesn't convert and come back equal is a misfit.

    Args:
        policy: handling of texts of times with digits past the microsecond.
    """
    if source == _STRING and str(target) in _TIMES:
        return _text_times(values, target, policy)
    if str(source) in _TIMES and str(target) == "date":
        return _days(values)
    if source == _STRING and is_complex(target):  # null, as JSON writes it
        nothing = pc.equal(pc.utf8_trim(values, BLANKS), "null")
        values = pc.if_else(nothing, pa.scalar(None, values.type), values)
    converted = _from_text(values, target) if source == _STRING else _each(values, source, target)
    return Fitted(converted, _lost(values, converted))


def _lost(values: pa.Array, converted: pa.Array) -> Mask:
    return mask_of(pc.and_(converted.is_null(), values.is_valid()))


def _from_text(values: pa.Array, target: SqlType) -> pa.Array:
    """Texts of the usual form by Arrow's own conversion, the others one by one."""
    kind = arrow_type(target)
    form = _PLAIN_DECIMAL if isinstance(target, DecimalType) else _PLAIN.get(str(target))
    if form is None:
        return _each(values, _STRING, target)
    plain = pc.match_substring_regex(values, form)
    nothing = pa.scalar(None, values.type)
    try:
        usual = _cast(values if _all(plain) else pc.if_else(plain, values, nothing), kind)
    except pa.ArrowInvalid:  # a day that no month has, a number too great
        return _each(values, _STRING, target)
    if _all(plain):
        return usual
    return pc.coalesce(usual, _each(pc.if_else(plain, nothing, values), _STRING, target))


def _all(flags: pa.Array) -> bool:
    return pc.all(flags).as_py() is not False


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(pa.timestamp("us")).cast(kind) if pt.is_timestamp(kind) else values.cast(kind)


def _text_times(values: pa.Array, target: SqlType, policy: SubMicrosecondPolicy) -> Fitted:
    past = pc.fill_null(pc.match_substring_regex(values, FINER), False)
    if not pc.any(past).as_py():
        converted = _from_text(values, target)
        return Fitted(converted, _lost(values, converted))
    converted = _from_text(pc.replace_substring_regex(values, _PAST_MICROS, r"\1", max_replacements=1), target)
    up = pc.fill_null(pc.match_substring_regex(values, _FINER_HALF), False)
    converted = _settled(converted, past, up, policy)
    return Fitted(converted, _lost(values, converted), mask_of(pc.and_(past, converted.is_valid())))


def _settled(cut: pa.Array, past: pa.Array, up: pa.Array, policy: SubMicrosecondPolicy) -> pa.Array:
    """Times cut to microseconds, by policy.

    Args:
        past: where something was cut; `up`: where it was half a microsecond or more.
    """
    if policy == "quarantine":
        return pc.if_else(past, pa.scalar(None, cut.type), cut)
    if policy == "truncate":
        return cut
    micros = pc.add(cut.cast(pa.int64()), up.cast(pa.int64()))
    return pc.if_else(pc.less_equal(micros, LAST_MICROSECOND), micros, pa.scalar(None, pa.int64())).cast(cut.type)


def _days(values: pa.Array) -> Fitted:
    """Midnights as days."""
    days = values.cast(pa.date32(), safe=False)
    exact = pc.equal(days.cast(pa.timestamp("us")).cast(pa.int64()), values.cast(pa.int64()))
    converted = pc.if_else(exact, days, pa.scalar(None, pa.date32()))
    return Fitted(converted, _lost(values, converted))


def to_micros(values: pa.Array, past: pa.Array, policy: SubMicrosecondPolicy) -> Fitted:
    """Timestamps in microseconds, those with a part of one by policy; `past`: their nanoseconds past it."""
    finer = pc.fill_null(pc.greater(past, 0), False)
    micros = _settled(values, finer, pc.fill_null(pc.greater_equal(past, 500), False), policy)
    return Fitted(micros, _lost(values, micros), mask_of(pc.and_(finer, micros.is_valid())))


def within_years(values: pa.Array) -> Fitted:
    """Values as they are; dates and times outside the years 1 to 9999, which texts can't be either, are misfits.

    Args:
        values: timestamps in microseconds.
    """
    outside = outside_years(values)
    if outside is None:
        return Fitted(values)
    return Fitted(values.take(pa.array(np.arange(len(values)), mask=outside)), outside)


def _each(values: pa.Array, source: SqlType, target: SqlType) -> pa.Array:
    return each(values, _converter(source, target), arrow_type(target))


def each(values: pa.Array, convert: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """Apply a function to each non-null value; called once per distinct value where many are equal."""
    coded = values.dictionary_encode() if _can_be_coded(values.type) else None
    if coded is not None and len(coded.dictionary) <= _MOST_DISTINCT * len(values):
        converted = pa.array([convert(v) for v in coded.dictionary.to_pylist()], kind)
        return converted.take(coded.indices)
    return pa.array([None if v is None else convert(v) for v in values.to_pylist()], kind)


def _can_be_coded(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_integer(kind) or pt.is_timestamp(kind))


def _converter(source: SqlType, target: SqlType) -> Callable[[Any], Any]:
    """Converts one value; None for a misfit."""
    if source == _STRING:
        read = reader(target)
        return (lambda text: read(text.strip(BLANKS))) if trims(target) else read
    if target == _STRING:
        return lambda value: _to_text(value, source)
    if _is_time(source) and _is_time(target):
        return lambda value: value
    return converter(source, target)


def _to_text(value: Any, source: SqlType) -> str | None:
    try:
        return as_text(value, source)
    except UnicodeDecodeError:
        return None


def with_texts(rows: pa.Table, stored: Mapping[str, SqlType], wanted: Mapping[str, SqlType]) -> pa.Table:
    """Stored rows with the text of their values in columns that become text; others stay as they are."""
    texts = [name for name, kind in wanted.items() if kind == _STRING and stored.get(name, _STRING) != _STRING]
    return with_values(rows, {name: fit(flat(rows.column(name)), stored[name], _STRING).values for name in texts})


def _is_time(kind: SqlType) -> bool:
    return isinstance(kind, ScalarType) and kind.name in ("date", *_TIMES)
