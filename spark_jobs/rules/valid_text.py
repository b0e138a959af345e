"""Rows whose text is not UTF-8. Parquet and CSV may hold any bytes as text, at which readers of a table would break."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.rules.arrays import is_text
from spark_jobs.rules.convert import Mask


def with_valid_text(columns: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    """Columns with null where their text is not UTF-8; and of columns that have such rows, the original text (null
    elsewhere).
    """
    valid, invalid = {}, {}
    for name, values in columns.items():
        where = invalid_rows(values)
        if where is None:
            valid[name] = values
            continue
        nothing = pa.scalar(None, values.type)
        valid[name] = pc.if_else(pa.array(where), nothing, values)
        invalid[name] = pc.if_else(pa.array(where), values, nothing)
    return valid, invalid


def invalid_rows(values: pa.Array) -> Mask:
    """Rows with text, also inside a complex value, that is not UTF-8."""
    if not _has_text(values.type) or _is_valid(values):
        return None
    found = np.zeros(len(values), dtype=bool)
    parts = [(0, len(values))]
    while parts:
        start, count = parts.pop()
        if _is_valid(pa.concat_arrays([values.slice(start, count)])):
            continue
        if count == 1:
            found[start] = True
        else:
            half = count // 2
            parts += [(start, half), (start + half, count - half)]
    return found


def _is_valid(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_text(kind: pa.DataType) -> bool:
    if is_text(kind):
        return True
    if pt.is_map(kind):
        return _has_text(kind.key_type) or _has_text(kind.item_type)
    if pt.is_struct(kind):
        return any(_has_text(field.type) for field in kind)
    return (pt.is_list(kind) or pt.is_large_list(kind)) and _has_text(kind.value_type)
