"""The errors table of all engines: its columns, and the types stored with a record."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.spec import MaskMethod
from airflow_gddl.contract.sql_types import quoted
from airflow_gddl.contract.table_spec import HASHED
from spark_jobs.rooms.dialects.protocol import UNSUPPORTED

NANOS = "nanoseconds of "
"""Comment of a record's column that holds times as whole nanoseconds since 1970; their type follows."""

BYTES = "bytes of "
"""Comment of a record's column that holds the bytes of text that is not UTF-8; its type follows."""


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


FILE_PATH = "_file_path"
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Entry:
    """A rescued value: the column as the file names it, value and file as JSON; None: the file is not known."""

    name: str
    value: str
    file: str | None


Entries = Mapping[str, Entry]
"""By the column's name as it lands, in lower case."""


def entries(text: str | None) -> dict[str, Entry]:
    """What a text of the rescued column holds."""
    if text is None:
        return {}
    parts = dict(_members(text))
    files = parts.pop(FILE_PATH, None)
    by_column = dict(_members(files)) if files is not None and files.startswith("{") else None
    return {
        landed_name(name).lower(): Entry(name, value, files if by_column is None else by_column.get(name))
        for name, value in parts.items()
    }


def text_of(entries_of_row: Entries) -> str | None:
    """A row's entries as JSON text; None: it has none."""
    if not entries_of_row:
        return None
    parts = [_member(each.name, each.value) for each in entries_of_row.values()]
    files = {each.name: each.file for each in entries_of_row.values() if each.file is not None}
    if len(set(files.values())) > 1:
        parts.append(_member(FILE_PATH, "{" + ",".join(_member(*each) for each in files.items()) + "}"))
    elif files:
        parts.append(_member(FILE_PATH, next(iter(files.values()))))
    return "{" + ",".join(parts) + "}"


def without_files(texts: pa.Array) -> pa.Array:
    """The texts without the files that the values are from, which differ where a change is delivered again."""
    if texts.null_count == len(texts):
        return texts
    rows = [{name: replace(entry, file=None) for name, entry in entries(text).items()} for text in texts.to_pylist()]
    return pa.array(map(text_of, rows), pa.string())


def overlaid(kept: Entries, delivered: Entries) -> dict[str, Entry]:
    """Entries that stay, and behind them those of a change, which replace them."""
    return {**{column: entry for column, entry in kept.items() if column not in delivered}, **delivered}


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Name and JSON of each member of an object that was written without blanks."""
    at = 1
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        _, after = _DECODER.raw_decode(text, end + 1)
        yield name, text[end + 1 : after]
        at = after + (text[after] == ",")


def _member(name: str, value: str) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}:{value}"
