"""Statistics of a data file, as Delta's log keeps them: rows, and the range of columns that help to find rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.table.table_schema import GDDL

_OURS = ("sequence", "op", "source_file", "batch_id", "generation")
_LONGEST = 256


def statistics(rows: pa.Table, indexed: Sequence[str]) -> str:
    """JSON for an `add` action.

    Only whole numbers, dates and text that isn't long: of these the least and greatest value can be told exactly.
    """
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for column in indexed:
        at = rows.schema.get_field_index(column)
        if at >= 0:
            _note(found, (column,), rows.column(at))
    if rows.num_rows and GDDL in rows.schema.names:
        struct = rows.column(GDDL)
        for name in _OURS:
            if struct.type.get_field_index(name) >= 0:
                _note(found, (GDDL, name), pc.struct_field(struct, name))
    return json.dumps({"numRecords": rows.num_rows, **found})


def _note(found: dict[str, dict[str, Any]], path: tuple[str, ...], values: pa.ChunkedArray) -> None:
    kind = values.type
    if not (pt.is_integer(kind) or pt.is_date32(kind) or pt.is_string(kind)):
        return
    _put(found["nullCount"], path, values.null_count)
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or (isinstance(low, str) and max(len(low), len(high)) > _LONGEST):
        return
    _put(found["minValues"], path, low if isinstance(low, int | str) else low.isoformat())
    _put(found["maxValues"], path, high if isinstance(high, int | str) else high.isoformat())


def _put(into: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        into = into.setdefault(part, {})
    into[path[-1]] = value
