"""Table rows from CSV: a line of field names, then a row a line.

Lists are separated by `|` or written as JSON, mappings as JSON. An empty cell is a field that is not set, `null` is
null.
"""

from __future__ import annotations

import csv
import io
import json
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, get_args, get_origin

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata import json_file
from airflow_gddl.metadata.problems import show_name
from airflow_gddl.metadata.screen import MAX_TEXT
from airflow_gddl.metadata.validation import TABLE
from airflow_gddl.metadata.values import DocumentError, Position, Refused

_LONGEST = 131_072
"""Default size limit of a cell in Python's `csv`."""
_SEPARATOR = re.compile(r"[;|\t]")
_REMEDY = "give each row as many cells as the header has; put cells with commas into double quotes"


@dataclass(frozen=True)
class CsvRow:
    """A row, its first line, and why it can't be read (null: it can)."""

    line: int
    values: Mapping[str, Any]
    fault: Refused | None = None


def read(text: str) -> list[CsvRow]:
    """The rows of a text; none for an empty one.

    Raises:
        DocumentError: `FIELD_UNKNOWN`, `NAME_TWICE` or `FIELD_MISSING`: the header is wrong.
    """
    lines = _lines(text)
    header = next(lines, None)
    if header is None:
        return []
    names = _header(header)
    return [_row(line, cells, names) for line, cells in lines]


def _lines(text: str) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Cells of each line that is not blank; an error for a line that can't be split; later lines are still read."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, error
            continue
        if any(cell.strip() for cell in cells):
            yield line, _trimmed(cells)


def _trimmed(cells: list[str]) -> list[str]:
    """Cells without blanks around them; spreadsheets leave empty ones at the end."""
    cells = [cell.strip() for cell in cells]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _header(header: tuple[int, list[str] | csv.Error]) -> list[str]:
    line, names = header
    if isinstance(names, csv.Error):
        raise DocumentError(
            "CSV_INVALID", f"not a header: {names}", "write the field names, separated by commas", Position(line)
        )
    for i, name in enumerate(names):
        if name not in TABLE.names:
            message = f"the header names an unknown field: {show_name(name) or 'an empty one'}"
            other = _SEPARATOR.search(name)
            remedy = f"separate the cells by commas, not by {other[0]!r}" if other else TABLE.unknown(name)
            raise DocumentError("FIELD_UNKNOWN", message, remedy, Position(line))
        if name in names[:i]:
            raise DocumentError("NAME_TWICE", f"{name} is repeated in the header", "keep one", Position(line))
    if "table" not in names:
        raise DocumentError("FIELD_MISSING", "the header has no table", "add a column named table", Position(line))
    return names


def _row(line: int, cells: list[str] | csv.Error, names: list[str]) -> CsvRow:
    if isinstance(cells, csv.Error) and "field limit" not in str(cells):
        remedy = "close each double quote, and double the ones inside a cell"
        return CsvRow(line, {}, Refused(code="CSV_INVALID", message=f"not a CSV line: {cells}", remedy=remedy))
    if isinstance(cells, csv.Error) or any(len(cell) > _LONGEST for cell in cells):
        message = f"longer than {MAX_TEXT:,} characters"
        return CsvRow(line, {}, Refused(code="VALUE_TOO_LONG", message=message, remedy="shorten it"))
    if len(cells) > len(names):
        message = f"{len(cells)} cells, but the header has {len(names)}"
        return CsvRow(line, {}, Refused(code="ROW_INVALID", message=message, remedy=_REMEDY))
    return CsvRow(line, {name: _value(name, cell) for name, cell in zip(names, cells, strict=False) if cell})


def _value(name: str, cell: str) -> Any:
    form = _FORMS[name]
    if cell == "null":
        return None
    if form == "flag":
        return {"true": True, "false": False}.get(cell.lower(), cell)
    if form == "mapping" or (form == "list" and cell[0] == "[") or (name == "schedule" and cell[0] == "{"):
        return _json(cell)
    return _list(cell) if form == "list" else cell


def _list(cell: str) -> list[str] | Refused:
    if "," not in cell:
        return [part.strip() for part in cell.split("|")]
    names = "|".join(part.strip() for part in cell.split(",") if part.strip())
    remedy = f"separate the names by |, e.g. {names}; one name that holds a comma is written {json.dumps([cell])}"
    return Refused(code="CELL_INVALID", message="must be a list, not one text with commas", remedy=remedy, text=cell)


def _json(cell: str) -> Any:
    try:
        return json_file.read(cell)
    except DocumentError as error:
        return Refused(code="CELL_INVALID", message=error.message, remedy='write JSON, e.g. {"a": "b"}')


def _form(hint: Any) -> str:
    options = get_args(hint) if get_origin(hint) not in {tuple, Mapping} else (hint,)
    kinds = {get_origin(option) or option for option in options or (hint,)}
    if str in kinds:
        return "text"
    if tuple in kinds:
        return "list"
    if bool in kinds:
        return "flag"
    # `Mapping` hints come with the origin of collections.abc.
    return "mapping" if any(kind is Mapping or is_dataclass(kind) for kind in kinds) else "text"


_HINTS = typing.get_type_hints(TableSpec)
_FORMS = {name: _form(_HINTS[name]) for name in TABLE.names}
