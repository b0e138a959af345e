"""The text of `_rescued_data`: values that their columns can't hold, by column, and the files they are from.

`{"n":"many","_file_path":"..."}`; where values of several files are in it, `_file_path` is an object of column to file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_jobs.plan.columns import landed_name

FILE_PATH = "_file_path"
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Entry:
    """A rescued value: the column as the file names it, value and file as JSON; null: the file is not known."""

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


def text_of(found: Entries) -> str | None:
    """Null where there is no entry."""
    if not found:
        return None
    parts = [_member(each.name, each.value) for each in found.values()]
    files = {each.name: each.file for each in found.values() if each.file is not None}
    if len(set(files.values())) > 1:
        parts.append(_member(FILE_PATH, "{" + ",".join(_member(*each) for each in files.items()) + "}"))
    elif files:
        parts.append(_member(FILE_PATH, next(iter(files.values()))))
    return "{" + ",".join(parts) + "}"


def without_files(texts: pa.Array) -> pa.Array:
    """The texts without the files that the values are from, which differ where a change is delivered again."""
    if texts.null_count == len(texts):
        return texts
    found = [{name: replace(entry, file=None) for name, entry in entries(text).items()} for text in texts.to_pylist()]
    return pa.array(map(text_of, found), pa.string())


def overlaid(kept: Entries, own: Entries) -> dict[str, Entry]:
    """Entries that stay, and behind them those of a change, which replace them."""
    return {**{column: entry for column, entry in kept.items() if column not in own}, **own}


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
