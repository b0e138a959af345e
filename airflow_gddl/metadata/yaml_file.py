"""Parses YAML text to plain values with positions, from the parser's events.

No tags, no merge keys, no objects. Plain scalars follow YAML 1.2's core rules, so that a column called `no`, `on` or
`y` is text, and only `true`, `false` and `null` (or nothing) are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from airflow_gddl.metadata.values import START, DocumentError, Listed, Mapped, Position, Refused, duplicate, too_deep

MAX_DEPTH = 24
# The parser's time is quadratic in the nesting depth.
STOP_DEPTH = 500
MAX_ALIASED = 20_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "seq", "map")}
_TEXT_TAGS = {"!", "tag:yaml.org,2002:str"}
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,2})?")
_TAG = Refused(code="TAG_REFUSED", message="a tag; metadata is plain data", remedy="remove the tag (!...)")
_ALIAS = Refused(
    code="ALIAS_REFUSED",
    message="an alias that is undefined, recursive, or one of too many",
    remedy="write the value out, or put it into `defaults`",
)
_MERGE = Refused(
    code="MERGE_REFUSED", message="merge keys (<<) are not read", remedy="put shared fields into `defaults`"
)
_COMPLEX = Refused(code="NAME_INVALID", message="a name that is not text", remedy="write a plain field name")


def read(text: str) -> Any:
    """The one document of a text; null for an empty one.

    Raises:
        DocumentError: `YAML_INVALID`, with the position.
    """
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _marked(error, text) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        position = Position(line, error.position - text.rfind("\n", 0, error.position))
        raise DocumentError("YAML_INVALID", "a character that YAML does not allow", "remove it", position) from error
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
                raise DocumentError("YAML_INVALID", "a second document (---)", "write one document a file", position)

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
            raise DocumentError("YAML_INVALID", "nested too deeply", "no field needs more than a few levels", position)
        value = Mapped() if isinstance(event, yaml.MappingStartEvent) else Listed()
        if self._names_next():
            self._name(None, position)
        elif len(self.stack) >= MAX_DEPTH:
            self._put(too_deep(), position)
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
    return DocumentError("YAML_INVALID", message, _remedy(_character(mark, text)), position)


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
