"""Statistics of a data file in Delta's format: rows, nulls and bounds of the indexed columns.

Either every indexed column with a value has both bounds, or no column of the file has any: a reader that finds
bounds of some columns only may take the others' for null, and then skips the file (see `engines.skipping`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.engines.skipping import ColumnPath
from spark_jobs.rules.years import outside_years

LONGEST = 64
"""Characters of a text's bounds; longer ones are truncated, the upper one rounded up."""
_LAST = "\U0010ffff"
_encode = json.JSONEncoder(ensure_ascii=False).encode


def statistics(rows: pa.Table, indexed: Sequence[ColumnPath]) -> str:
    """JSON for an `add` action.

    Args:
        indexed: columns, and fields of structs; those that the rows lack are ignored.
    """
    nulls: dict[str, Any] = {}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    bounded = True
    for path in indexed:
        values = _values(rows, path)
        if values is None:
            continue
        _put(nulls, path, values.null_count)
        if values.null_count == len(values) or not _has_bounds(values.type):
            continue
        ends = _bounds(values)
        bounded = bounded and ends is not None
        if ends is not None:
            _put(lows, path, ends[0])
            _put(highs, path, ends[1])
    bounds = {"minValues": lows, "maxValues": highs} if bounded else {}
    return _json({"numRecords": rows.num_rows, **bounds, "nullCount": nulls})


def file_statistics(rows: pa.Table) -> bool | list[str]:
    """Columns of which the data file keeps statistics: not of those with NaN, whose bounds pyarrow would use."""
    odd = {
        field.name
        for field, values in zip(rows.schema, rows.columns, strict=True)
        if pt.is_floating(field.type) and pc.any(pc.is_nan(values)).as_py()
    }
    return [f.name for f in rows.schema if f.name not in odd and not pt.is_nested(f.type)] if odd else True


def _values(rows: pa.Table, path: ColumnPath) -> pa.ChunkedArray | None:
    if path[0] not in rows.schema.names:
        return None
    values = rows.column(path[0])
    for part in path[1:]:
        if not pt.is_struct(values.type) or values.type.get_field_index(part) < 0:
            return None
        values = pc.struct_field(values, part)
    return values


def _has_bounds(kind: pa.DataType) -> bool:
    """Readers expect no bounds of the other types."""
    return not (pt.is_nested(kind) or pt.is_binary(kind) or pt.is_null(kind))


def _bounds(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Least and greatest value as JSON takes them; null where they can't be written."""
    kind = values.type
    if pt.is_date(kind) or pt.is_timestamp(kind):
        return _times(values)
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if isinstance(low, str):
        return _texts(low, high)
    if pt.is_floating(kind):
        finite = math.isfinite(low) and math.isfinite(high) and not pc.any(pc.is_nan(values)).as_py()
        return (low, high) if finite else None
    return low, high


def _times(values: pa.ChunkedArray) -> tuple[str, str] | None:
    """Null where one is outside the years 1 to 9999, which many readers, e.g. Python, can't represent."""
    if outside_years(values) is not None:
        return None
    ends = pc.min_max(values)
    return _time(ends["min"].as_py()), _time(ends["max"].as_py())


def _time(moment: date | datetime) -> str:
    if not isinstance(moment, datetime):
        return moment.isoformat()
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    return text if moment.tzinfo is None else f"{text}Z"


def _texts(low: str, high: str) -> tuple[str, str] | None:
    if len(high) > LONGEST:
        if high[LONGEST] == _LAST:
            return None
        high = high[:LONGEST] + _LAST
    return low[:LONGEST], high


def _put(into: dict[str, Any], path: ColumnPath, value: Any) -> None:
    for part in path[:-1]:
        into = into.setdefault(part, {})
    into[path[-1]] = value


def _json(value: Any) -> str:
    """Like `json.dumps`, with decimals as numbers."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_encode(key)}:{_json(part)}" for key, part in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else _encode(value)
