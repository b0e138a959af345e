"""Which columns of an Arrow table are likely its key: by their names, and unique in its rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_LEADING = 6
_MOST_PARTS = 3
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KEY_NAME = re.compile(r"(^|_)(id|no|nr|num|number|key|code|seq|sequence|line|item|pos|position|uuid|guid)$")


def key_rank(column: str, table: str) -> int:
    """How likely a name is that of a key: 0: `id` or the table's own; 1: `order_id`, `line_no`, `code`; 2: others.

    Args:
        column: any case; `LineNo` counts as `line_no`.
        table: name without schema.
    """
    name, table = _WORD_START.sub("_", column).lower(), table.lower()
    table_ids = {f"{stem}{end}" for stem in (table, table.rstrip("s")) for end in ("_id", "id") if stem}
    if name == "id" or name in table_ids:
        return 0
    return 1 if _KEY_NAME.search(name) else 2


def key_columns(name: str, table: pa.Table) -> tuple[str, ...] | None:
    """Up to three of the six likeliest columns that are unique together; None: none are.

    Columns named like keys go before others, so that `order_id, line_no` is preferred to a price that happens to be
    unique; a key of several such columns has to include the first column.
    """
    return next((names for names in _candidates(name, table) if unique(table, names)), None)


def unique(table: pa.Table, names: tuple[str, ...]) -> bool:
    """Whether no two rows agree in all of these columns."""
    if len(names) == 1:
        return bool(pc.count_distinct(table[names[0]]).as_py() == table.num_rows)
    return bool(table.group_by(list(names)).aggregate([]).num_rows == table.num_rows)


def _candidates(name: str, table: pa.Table) -> Iterator[tuple[str, ...]]:
    """Likely ones first, and each set of columns after all of its subsets."""
    fit = [column for column in table.schema.names if _fits(table[column])]
    rank = {column: key_rank(column, name) for column in fit}
    leading = sorted(sorted(fit, key=rank.__getitem__)[:_LEADING], key=fit.index)
    sets = [names for width in range(1, _MOST_PARTS + 1) for names in itertools.combinations(leading, width)]

    def order(names: tuple[str, ...]) -> tuple[int, int, int]:
        worst, last = max(rank[column] for column in names), max(fit.index(column) for column in names)
        if len(names) == 1 and worst == 0:
            return 0, 0, 0
        if worst < 2 and (len(names) == 1 or names[0] == table.schema.names[0]):
            return 1, last, len(names)
        return 2, len(names), 0

    yield from sorted(sets, key=order)


def _fits(values: pa.ChunkedArray) -> bool:
    kind = values.type
    return not (values.null_count or pt.is_nested(kind) or pt.is_floating(kind) or pt.is_boolean(kind))
