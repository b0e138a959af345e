"""Refuses events that have a part of a row, with null in place of what a change has not written.

Nothing tells such a null from one that was written, once an event is a row. Its connector does, or what it says of its
settings, or its cells: a value beside a note of whether the change has set it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

_OF_PARTS = ("cassandra", "scylla", "yugabytedb")
"""Connectors whose updates may have the changed columns alone, which their events don't say."""
_VALUES, _OF_ROWS = "value_capture_type", ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
"""Which values a change stream of Spanner has, and of which settings events have whole rows."""
_SET = frozenset({"value", "set"})
_CELLS = (_SET, _SET | {"deletion_ts"})


def require_whole(sources: Sequence[Mapping[str, Any]], has_cells: str | None) -> None:
    """
    Args:
        has_cells: a column with cells in place of values; None: there is none.

    Raises:
        ValueError: events have parts of rows.
    """
    for source in sources:
        connector, values = source.get("connector"), source.get(_VALUES)
        if connector in _OF_PARTS:
            what = (
                f"events of {connector} may have the columns alone that a change has written, null in place of others"
            )
            raise ValueError(f"{what}; load the table otherwise, e.g. from exports (mode: snapshots)")
        if connector == "spanner" and values not in _OF_ROWS:
            what = f"{_VALUES} of the change stream is {values}, so that updates have the changed columns alone"
            raise ValueError(f"{what}; set it to NEW_ROW, and have the rows written again")
    if has_cells is not None:
        what = (
            f"column {has_cells!r} has cells (a value, and whether the change has set it), so that null may be a value"
        )
        way_out = "have the connector write whole rows of plain values, and the rows written again"
        raise ValueError(f"{what} that a change has not written; {way_out}")


def column_of_cells(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """The first column with a cell; no database has a type of such a form."""
    return next((name for row in rows for name, value in row.items() if type(value) is dict and _is_cell(value)), None)


def _is_cell(value: Mapping[str, Any]) -> bool:
    return value.keys() in _CELLS and isinstance(value["set"], bool)


def is_cell_type(kind: pa.DataType) -> bool:
    """Whether a column of structs has cells."""
    return pt.is_struct(kind) and {field.name for field in kind} in _CELLS and pt.is_boolean(kind.field("set").type)
