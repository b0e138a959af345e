"""Dates and times outside the years 1 to 9999: Arrow holds them, Python and most readers of Delta tables don't."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.rules.arrays import with_leaves

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_MICROSECOND, LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Of the years 1 and 9999, since 1970."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of times without zone, too


def outside_years(values: pa.Array) -> np.ndarray | None:
    """Which values are such a date or time, or hold one; None where no one does.

    Args:
        values: of any type; timestamps in microseconds.
    """
    if pt.is_nested(values.type):
        if not any(outside_years(leaf) is not None for leaf in _leaves(values)):
            return None
        return np.array([not _is_readable(value) for value in values])
    if pt.is_date32(values.type):
        return _outside(values.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    if pt.is_timestamp(values.type):
        return _outside(values.cast(pa.int64()), FIRST_MICROSECOND, LAST_MICROSECOND)
    return None


def _outside(numbers: pa.Array, first: int, last: int) -> np.ndarray | None:
    found = pc.fill_null(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)), False)
    return np.asarray(found) if pc.any(found).as_py() else None


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    if pt.is_struct(values.type):
        parts = values.flatten()
    elif pt.is_map(values.type):
        parts = [values.keys, values.items]
    else:
        parts = [values.flatten()]
    for part in parts:
        if pt.is_nested(part.type):
            yield from _leaves(part)
        else:
            yield part


def _is_readable(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except (OverflowError, ValueError):
        return False
    return True


def python_values(values: pa.Array) -> list[Any]:
    """Python's values; such a date as days, such a time as microseconds since 1970."""
    try:
        return list(values.to_pylist())
    except (OverflowError, ValueError):
        numbers = values.cast(with_leaves(values.type, _as_numbers))
        return [_value(number, values.type) for number in numbers.to_pylist()]


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    """The scalar type with a number in place of a date or time."""
    if pt.is_date32(kind):
        return pa.int32()
    return pa.int64() if pt.is_timestamp(kind) else kind


def _value(number: Any, kind: pa.DataType) -> Any:
    if number is None:
        return None
    if pt.is_struct(kind):
        return {field.name: _value(number[field.name], field.type) for field in kind}
    if pt.is_map(kind):
        return [(_value(k, kind.key_type), _value(v, kind.item_type)) for k, v in number]
    if pt.is_list(kind) or pt.is_large_list(kind):
        return [_value(item, kind.value_type) for item in number]
    return _scalar(number, kind)


def _scalar(number: Any, kind: pa.DataType) -> Any:
    if pt.is_date32(kind) and FIRST_DAY <= number <= LAST_DAY:
        return date.fromordinal(number - FIRST_DAY + 1)
    if pt.is_timestamp(kind) and FIRST_MICROSECOND <= number <= LAST_MICROSECOND:
        found = _EPOCH + timedelta(microseconds=number)
        return found.replace(tzinfo=UTC) if kind.tz else found
    return number
