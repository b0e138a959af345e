"""The errors table of all engines: its columns, and the types stored with a record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airflow_gddl.contract.spec import MaskMethod
from airflow_gddl.contract.sql_types import quoted
from airflow_gddl.contract.table_spec import HASHED
from spark_jobs.dialects.arrow_types import UNSUPPORTED

NANOS = "nanoseconds of "
"""Comment of a record's column that holds times as whole nanoseconds since 1970; their type follows."""

BYTES = "bytes of "
"""Comment of a record's column that holds the bytes of text that is not UTF-8; its type follows."""

ROW_BITS = 40
"""Bits of a position that hold the row in its file; the ordinal of the file is above them."""
ROW_MASK = (1 << ROW_BITS) - 1

MISFIT_CODE = "CAST_FAILED"
"""Code of a record whose value does not fit the type of its column."""

COLUMNS: dict[str, str] = {
    "id": "string",
    "record": "string",
    "record_schema": "string",
    "code": "string",
    "reason": "string",
    "column": "string",
    "source_file": "string",
    "position": "bigint",
    "kind": "string",
    "generation": "int",
    "batch_id": "string",
    "occurred_at": "timestamp",
    "resolved_at": "timestamp",
}


def record_ddl(
    columns: Sequence[tuple[str, str]],
    masks: Mapping[str, MaskMethod],
    finer: Collection[str],
    unread: Collection[str] = (),
    withheld: Collection[str] = (),
) -> str:
    """The DDL to read a record's JSON back with: hashed columns are text; a comment has the type of what isn't JSON.

    Args:
        finer: columns of times with digits past the microsecond.
        unread: columns in which the record has text that is not UTF-8.
        withheld: columns that the record lacks: of no type, so that they are read back as null.
    """
    fields = []
    for column, kind in columns:
        hashed = masks.get(column) in HASHED
        text = "string" if hashed or kind == "void" or kind.startswith(UNSUPPORTED) else kind
        if column in withheld:
            text = "void"
        elif column in unread:
            text = f"binary COMMENT '{BYTES}{kind}'"
        elif column in finer and not hashed:
            text = f"decimal(38,0) COMMENT '{NANOS}{kind}'"
        fields.append(f"{quoted(column)} {text}")
    return ", ".join(fields)
