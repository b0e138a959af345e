"""Values of one column whose type changed as one array."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.sql_types import MAX_PRECISION
from spark_jobs.dialects.debezium.values import Values, is_read_from_text, texts

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def joined(parts: Sequence[Values], places: Sequence[Sequence[int]]) -> Values:
    """
    Args:
        places: of each part, the indexes of its values in the result.

    Returns:
        Values in the common type by Delta's widening rules; text where there is none.
    """
    given = [part for part in parts if part.array.null_count < len(part.array)] or parts[:1]
    kind = given[0].type
    for part in given[1:]:
        kind = _wider(kind, part.type)
    has_misfit = any(part.stated is not None for part in given)
    whole = pa.concat_arrays([_as(part.array, pa.string() if has_misfit else kind) for part in parts])
    order = [at for rows in places for at in rows]
    back = sorted(range(len(order)), key=order.__getitem__)
    found = whole.take(pa.array(back, pa.int64()))
    return Values(found, kind if has_misfit and is_read_from_text(kind) else None)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    numbers = [_decimal(kind) for kind in (one, other)]
    if one in _DIGITS and other in _DIGITS:
        return max(one, other, key=_DIGITS.__getitem__)
    if numbers[0] is not None and numbers[1] is not None:
        (whole, scale), (others_whole, others_scale) = numbers[0], numbers[1]
        most = max(scale, others_scale)
        precision = max(whole, others_whole) + most
        return pa.decimal128(precision, most) if precision <= MAX_PRECISION else pa.string()
    if pt.is_floating(one) and pt.is_floating(other):
        return pa.float64()
    if {one, other} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    return pa.string()


def _decimal(kind: pa.DataType) -> tuple[int, int] | None:
    """Digits before and after the point; null for what is no exact number."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    return (kind.precision - kind.scale, kind.scale) if pt.is_decimal(kind) else None


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    if array.type == kind:
        return array
    if kind == pa.string():
        return texts(array)
    if pt.is_integer(array.type) and pt.is_decimal(kind):
        array = array.cast(pa.decimal128(MAX_PRECISION, 0))
    return array.cast(kind)
