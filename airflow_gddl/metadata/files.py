"""Files of the metadata as plain values with positions: YAML, JSON and CSV."""

from __future__ import annotations

import csv
import difflib
import functools
import io
import json
import math
import re
import typing
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import PurePosixPath
from typing import Any, get_args, get_origin

import yaml

from airflow_gddl.contract.codes import (
    DOCUMENT_INVALID,
    FIELD_MISSING,
    FIELD_UNKNOWN,
    FIELD_VALUE,
    FILE_TOO_LARGE,
    FILE_UNREADABLE,
    ROW_INVALID,
)
from airflow_gddl.contract.errors import FieldPath
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.folder import ENDINGS, FOLDERS, JSON_ENDINGS, MAX_BYTES, Folder
from airflow_gddl.metadata.problems import (
    MAX_TEXT,
    START,
    TOO_DEEP,
    DocumentError,
    Layer,
    Listed,
    Locate,
    Mapped,
    Position,
    Refused,
    duplicate,
    position_of,
    show_name,
)
from airflow_gddl.metadata.validation import TABLE

_NUMBER = Refused(FIELD_VALUE, "a number out of range", "no field needs such a number")


def read_json(text: str) -> Any:
    """The value of a text; null for an empty one.

    Raises:
        DocumentError: `DOCUMENT_INVALID`, with the position.
    """
    if not text.strip():
        return None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        remedy = "check commas, quotes and brackets at and above this line"
        raise DocumentError(
            DOCUMENT_INVALID, f"not JSON: {error.msg}", remedy, Position(error.lineno, error.colno)
        ) from error
    except RecursionError as error:
        raise DocumentError(TOO_DEEP.code, TOO_DEEP.message, TOO_DEEP.remedy) from error
    return _shallow(value, 0)


def positions(text: str) -> Locate:
    """Positions in a JSON text, as far as it can be read as YAML; null elsewhere."""

    @functools.cache
    def tree() -> Any:
        try:
            return read_yaml(text)
        except (DocumentError, UnicodeError):
            return None

    def locate(path: FieldPath) -> Position | None:
        value = tree()
        return None if value is None else position_of(value, path)

    return locate


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        times = Counter(name for name, _ in pairs)
        value.update({name: duplicate(name) for name, count in times.items() if count > 1})
    return value


def _integer(digits: str) -> int | Refused:
    return int(digits) if len(digits) <= 19 else _NUMBER


def _float(digits: str) -> float | Refused:
    value = float(digits)
    return value if math.isfinite(value) else _NUMBER


def _shallow(value: Any, depth: int) -> Any:
    """Cut deep nesting in place, so that callers can recurse."""
    if depth > MAX_DEPTH:
        return TOO_DEEP
    if isinstance(value, dict):
        value.update({k: _shallow(v, depth + 1) for k, v in value.items() if isinstance(v, (dict, list))})
    elif isinstance(value, list):
        value[:] = [_shallow(v, depth + 1) if isinstance(v, (dict, list)) else v for v in value]
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_int=_integer, parse_float=_float, parse_constant=lambda _: _NUMBER
)


MAX_DEPTH = 24
# The parser's time is quadratic in the nesting depth.
STOP_DEPTH = 500
MAX_ALIASED = 20_000

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, or the one in Python where PyYAML was built without it; both give the same."""
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "seq", "map")}
_TEXT_TAGS = {"!", "tag:yaml.org,2002:str"}
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,2})?")
_TAG = Refused(DOCUMENT_INVALID, "a tag; metadata is plain data", "remove the tag (!...)")
_ALIAS = Refused(
    DOCUMENT_INVALID,
    "an alias that is undefined, recursive, or one of too many",
    "write the value out, or put it into `defaults`",
)
_MERGE = Refused(DOCUMENT_INVALID, "merge keys (<<) are not read", "put shared fields into `defaults`")
_COMPLEX = Refused(DOCUMENT_INVALID, "a name that is not text", "write a plain field name")


def read_yaml(text: str) -> Any:
    """The one document of a text; null for an empty one.

    Raises:
        DocumentError: `DOCUMENT_INVALID`, with the position.
    """
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _marked(error, text) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        position = Position(line, error.position - text.rfind("\n", 0, error.position))
        raise DocumentError(DOCUMENT_INVALID, "a character that YAML does not allow", "remove it", position) from error
    return builder.root


def scalar(text: str) -> str | int | float | bool | None:
    """What a plain (unquoted) scalar means."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


@dataclass
class _Open:
    """An open collection. `name`: the field whose value is next; null: a name is next."""

    value: Mapped | Listed
    anchor: str | None
    counted: int
    name: str | None = None
    position: Position = START


@dataclass
class _Builder:
    root: Any = None
    documents: int = 0
    counted: int = 0
    aliased: int = 0
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def take(self, event: Any) -> None:
        position = Position(event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, position)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._start(event, position)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            done = self.stack.pop()
            if done.anchor:
                self.anchors[done.anchor] = (done.value, self.counted - done.counted + 1)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event, position)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise DocumentError(DOCUMENT_INVALID, "a second document (---)", "write one document a file", position)

    def _scalar(self, event: Any, position: Position) -> None:
        self.counted += 1
        if self._names_next():
            self._name(event, position)
            return
        value: Any = event.value
        if event.tag is None:
            value = scalar(value) if event.implicit[0] else value
        elif event.tag in _TAGS:
            value = scalar(value)
        elif event.tag not in _TEXT_TAGS:
            value = _TAG
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)
        self._put(value, position)

    def _start(self, event: Any, position: Position) -> None:
        self.counted += 1
        if len(self.stack) >= STOP_DEPTH:
            raise DocumentError(TOO_DEEP.code, TOO_DEEP.message, TOO_DEEP.remedy, position)
        value = Mapped() if isinstance(event, yaml.MappingStartEvent) else Listed()
        if self._names_next():
            self._name(None, position)
        elif len(self.stack) >= MAX_DEPTH:
            self._put(TOO_DEEP, position)
        else:
            self._put(_TAG if event.tag is not None and event.tag not in _TAGS else value, position)
        self.stack.append(_Open(value, event.anchor, self.counted))

    def _alias(self, event: Any, position: Position) -> None:
        if self._names_next():
            self._name(None, position)
            return
        value, weight = self.anchors.get(event.anchor, (_ALIAS, 1))
        self.counted += weight
        self.aliased += weight
        self._put(value if self.aliased <= MAX_ALIASED else _ALIAS, position)

    def _names_next(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, Mapped) and self.stack[-1].name is None

    def _name(self, event: Any, position: Position) -> None:
        """Take the name of a field; null stands for a name that is a collection or an alias."""
        top = self.stack[-1]
        name = "?" if event is None else str(event.value)
        top.name, top.position = name, position
        if isinstance(top.value, Mapped) and event is None:
            top.value[name] = _COMPLEX
        elif isinstance(top.value, Mapped) and name == "<<" and event.implicit[0]:
            top.value[name] = _MERGE

    def _put(self, value: Any, position: Position) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.value, Listed):
            top.value.append(value)
            top.value.positions.append(position)
            return
        name, top.name = str(top.name), None
        there = top.value.get(name)
        if not isinstance(there, Refused):
            top.value[name] = duplicate(name) if name in top.value else value
        top.value.positions[name] = top.position


def _marked(error: yaml.MarkedYAMLError, text: str) -> DocumentError:
    mark = error.problem_mark or error.context_mark
    position = None if mark is None else Position(mark.line + 1, mark.column + 1)
    message = f"not YAML: {error.problem or 'it cannot be parsed'}"
    return DocumentError(DOCUMENT_INVALID, message, _remedy(_character(mark, text)), position)


def _character(mark: yaml.Mark | None, text: str) -> str:
    if mark is None:
        return ""
    lines = text.split("\n", mark.line + 1)
    return lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""


def _remedy(character: str) -> str:
    if character and character in "@`%*&!|>":
        return f"a value can't start with {character} unquoted: quote it, e.g. schedule: '@hourly'"
    if character == "\t":
        return "indent with blanks, not tabs"
    return "check the indentation, colons, quotes and brackets at and above this line"


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


def read_csv(text: str) -> list[CsvRow]:
    """The rows of a text; none for an empty one.

    Raises:
        DocumentError: `FIELD_UNKNOWN`, `DOCUMENT_INVALID` or `FIELD_MISSING`: the header is wrong.
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
            DOCUMENT_INVALID, f"not a header: {names}", "write the field names, separated by commas", Position(line)
        )
    for i, name in enumerate(names):
        if name not in TABLE.names:
            message = f"the header names an unknown field: {show_name(name) or 'an empty one'}"
            other = _SEPARATOR.search(name)
            remedy = f"separate the cells by commas, not by {other[0]!r}" if other else TABLE.unknown(name)
            raise DocumentError(FIELD_UNKNOWN, message, remedy, Position(line))
        if name in names[:i]:
            raise DocumentError(DOCUMENT_INVALID, f"{name} is repeated in the header", "keep one", Position(line))
    if "table" not in names:
        raise DocumentError(FIELD_MISSING, "the header has no table", "add a column named table", Position(line))
    return names


def _row(line: int, cells: list[str] | csv.Error, names: list[str]) -> CsvRow:
    if isinstance(cells, csv.Error) and "field limit" not in str(cells):
        remedy = "close each double quote, and double the ones inside a cell"
        return CsvRow(line, {}, Refused(DOCUMENT_INVALID, f"not a CSV line: {cells}", remedy))
    if isinstance(cells, csv.Error) or any(len(cell) > _LONGEST for cell in cells):
        message = f"longer than {MAX_TEXT:,} characters"
        return CsvRow(line, {}, Refused(FIELD_VALUE, message, "shorten it"))
    if len(cells) > len(names):
        message = f"{len(cells)} cells, but the header has {len(names)}"
        return CsvRow(line, {}, Refused(ROW_INVALID, message, _REMEDY))
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
    return Refused(FIELD_VALUE, "must be a list, not one text with commas", remedy, text=cell)


def _json(cell: str) -> Any:
    try:
        return read_json(cell)
    except DocumentError as error:
        return Refused(FIELD_VALUE, error.message, 'write JSON, e.g. {"a": "b"}')


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


def read_text(folder: Folder, name: str) -> str:
    """Text of a file, without byte order mark.

    Raises:
        DocumentError: `FILE_UNREADABLE`, `FILE_TOO_LARGE` or `DOCUMENT_INVALID`.
        FileNotFoundError: there is no such file.
    """
    try:
        content = folder.read(name)
    except FileNotFoundError:
        raise
    except OSError as error:
        message = f"the file can't be read: {error.strerror or type(error).__name__}"
        raise DocumentError(FILE_UNREADABLE, message, "put a readable file there, or remove it") from error
    if len(content) > MAX_BYTES:
        message = f"larger than {MAX_BYTES // 1024**2} MB"
        raise DocumentError(FILE_TOO_LARGE, message, "split it; a file of 10,000 rows has 1 to 5 MB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DocumentError(DOCUMENT_INVALID, "not UTF-8", "save it as UTF-8", Position(line)) from error


def read_document(folder: Folder, name: str) -> Layer:
    """The value of a YAML or JSON file.

    Raises:
        DocumentError: of `read_text`, `DOCUMENT_INVALID`.
        FileNotFoundError: there is no such file.
    """
    text = read_text(folder, name)
    if PurePosixPath(name).suffix.lower() in JSON_ENDINGS:
        return Layer(name, read_json(text), positions(text))
    value = read_yaml(text)
    return Layer(name, value, functools.partial(position_of, value))


def having_ending(names: list[str], endings: tuple[str, ...]) -> list[str]:
    return [name for name in names if PurePosixPath(name).suffix.lower() in endings]


_OTHER_FORMATS = (".txt", ".tsv", ".toml", ".xls", ".xlsx", ".ods")
"""Of tables, which are not read; elsewhere such a file may be a note."""


def passed_over(names: list[str], endings: tuple[str, ...]) -> tuple[str, ...]:
    """Names that look like metadata but are not read: `a.yaml.bak`, `a.yaml~`, another format, links to folders."""
    read = set(having_ending(names, endings))
    others = [name for name in names if name not in read]
    return tuple(
        name
        for name in others
        if _looks_like_metadata(name) or (name.startswith("tables/") and name.lower().endswith(_OTHER_FORMATS))
    )


def misplaced(names: list[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Files that look like metadata but are not where it is read, each with a remedy; one for each unknown folder.

    Args:
        names: of all files of the metadata folder.
        known: the settings' file, and the folders that may hold such files.
    """
    tops: dict[str, list[str]] = {}
    for name in names:
        if _looks_like_metadata(name) and (top := name.split("/", 1)[0]) not in known:
            tops.setdefault(top, []).append(name)
    for top, files in tops.items():
        is_folder = "/" in files[0]
        near = difflib.get_close_matches(top, FOLDERS if is_folder else [one for one in known if "." in one], n=1)
        ask = f"did you mean {near[0]}{'/' * is_folder}?" if near else f"move it below {' or '.join(FOLDERS)}/, or away"
        more = f" ({len(files)} such files in {top}/)" if len(files) > 1 else ""
        yield files[0], f"{ask}{more}"


def _looks_like_metadata(name: str) -> bool:
    return name.endswith("/") or any(part.rstrip("~").lower() in ENDINGS for part in PurePosixPath(name).suffixes)
