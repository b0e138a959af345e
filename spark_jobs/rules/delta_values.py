"""What data files of Delta say of rows: values of partition columns, and the change data feed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.rules.arrays import all_false, numbered, row_codes, table_codes
from spark_jobs.rules.convert import each

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""How folders spell null. Delta writes the empty text so, too."""
LONGEST_FOLDER = 255
"""Bytes of a folder's name that file systems allow."""
PartitionText = tuple[tuple[str, str | None], ...]
"""Partition columns in the table's order, each with its value as the log spells it."""

_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


def value_text(value: Any) -> str | None:
    """A value as `partitionValues` of Delta's log has it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def folder_name(column: str, text: str | None) -> str:
    """A folder's name as Hive and Spark spell it: special characters as `%` and two hexadecimal digits."""
    return f"{_escape(column)}={NULL_FOLDER if text is None else _escape(text)}"


def folder(partition: PartitionText) -> str:
    """Folders of a partition below the table's, with a slash at the end; empty for a table without partitions."""
    return "".join(f"{folder_name(column, text)}/" for column, text in partition)


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def split(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[PartitionText, pa.Table]]:
    """The rows of each partition, without its columns; rows of a table without partitions as they are."""
    if not columns:
        yield (), rows
        return
    codes = row_codes([rows.column(name) for name in columns], rows.num_rows)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1)) if rows.num_rows else np.zeros(0, np.int64)
    rest = rows.drop_columns(list(columns)).take(order)
    for start, end in pairwise((*starts.tolist(), rows.num_rows)):
        first = rows.slice(int(order[start]), 1)
        partition = tuple((name, value_text(first.column(name)[0].as_py())) for name in columns)
        yield partition, rest.slice(start, end - start)


def with_values(rows: pa.Table, values: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Rows of a data file with the values of its partition, in the table's columns."""
    for name, value in values.items():
        if name in schema.names:
            kind = schema.field(name).type
            rows = rows.drop_columns([name]) if name in rows.column_names else rows
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
    return rows.select(schema.names)


def unfit_texts(values: pa.Array, column: str) -> pa.Array:
    """Which texts no partition can hold, null where a text is null.

    These are the empty one and Hive's word for null, both read as null, and long ones.
    """
    return each(values, lambda text: _is_unfit(text, column), pa.bool_())


def _is_unfit(text: str, column: str) -> bool:
    if text in ("", NULL_FOLDER) or "\0" in text:
        return True
    return len(folder_name(column, text).encode("utf-8", "surrogatepass")) > LONGEST_FOLDER


CHANGE_TYPE = "_change_type"


def row_changes(before: pa.Table, after: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows that a reader of the feed gets, with `_change_type`; empty where both sides hold the same rows.

    Args:
        before, after: rows of one schema; equal rows on both sides cancel each other out, one by one.
        keys: columns that identify a row; a row with the same key on both sides is an update. Empty: no updates.
    """
    old, new = table_codes((before, after), after.column_names)
    removed, come = before.take(_surplus(old, new)), after.take(_surplus(new, old))
    kept_key, same_key = _with_common_keys(removed, come, keys)
    return pa.concat_tables(
        [
            _typed(removed, np.where(kept_key, "update_preimage", "delete")),
            _typed(come, np.where(same_key, "update_postimage", "insert")),
        ]
    )


def _surplus(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Numbers of the rows on one side that have no equal on the other; of several equal rows, the last ones."""
    size = max(int(mine.max(initial=-1)), int(theirs.max(initial=-1))) + 1
    others = np.bincount(theirs, minlength=size)
    return np.flatnonzero(numbered(mine, np.argsort(mine, kind="stable")) >= others[mine])


def _with_common_keys(removed: pa.Table, come: pa.Table, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of each side have a key that the other side has too."""
    if not keys:
        return all_false(removed.num_rows), all_false(come.num_rows)
    old, new = table_codes((removed, come), keys)
    return np.isin(old, new), np.isin(new, old)


def _typed(rows: pa.Table, types: np.ndarray) -> pa.Table:
    return rows.append_column(CHANGE_TYPE, pa.array(types.tolist(), pa.string()))
