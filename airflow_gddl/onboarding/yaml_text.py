"""Edits single values of a YAML text: other lines, comments and the order are kept. Pure.

The parser's marks give the position of a value. After an edit the caller reads the text again and refuses an edit with
other effects.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from airflow_gddl.metadata import files

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.$-]*")
# Text to us, but not to every reader of YAML 1.1.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def flow(value: Any) -> str:
    """A scalar, list or mapping in flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(name)}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return text(value) if isinstance(value, str) else str(value)


def text(value: str) -> str:
    """Text, plain where every reader takes it for that, else quoted."""
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS and files.scalar(value) == value:
        return value
    if value.isprintable() and value.isascii() and "'" not in value:
        return f"'{value}'"
    return '"' + "".join(_escaped(character) for character in value) + '"'


def comment(words: str) -> str:
    """Text of a comment: one line, without characters that YAML refuses."""
    return "".join(character if character.isprintable() else " " for character in words)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


Path = tuple[str | int, ...]
Edit = tuple[int, int, str]
_BEHIND = re.compile(r"[ \t]*(#[^\r\n]*)?")
_BEHIND_COMMA = re.compile(r"[ \t]*+,?+[ \t]*+(#[^\r\n]*)?")
_COMMA = re.compile(r"(?:[ \t]*,)?")


class UneditableError(Exception):
    """The format of the text allows no edit of single values; the message gives the reason."""


@dataclass
class YamlText:
    """A text and its edits; all positions refer to the original text.

    Raises:
        UneditableError: the text can't be read to the place of each value.
    """

    source: str
    _edits: list[Edit] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The parser in Python, not in C: its marks count characters. It refuses some texts that the one in C takes.
        try:
            self._root = yaml.compose(self.source, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = "" if error.problem_mark is None else f" (line {error.problem_mark.line + 1})"
            raise UneditableError(f"{error.problem}{line}") from error
        self._newline = "\r\n" if "\r\n" in self.source else "\n"
        self._added: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._removed: dict[int, tuple[Any, set[int]]] = {}

    def set(self, path: Path, value: Any) -> None:
        """Set a value: replace the existing one, else append it to its mapping.

        Raises:
            UneditableError: the mapping is not one, or there is none.
        """
        if len(path) > 1 and self._found(path[:-1]) is None:
            self.set(path[:-1], {path[-1]: value})
            return
        node = self._mapping(path[:-1])
        pair = _pair(node, str(path[-1]))
        if pair is None:
            added = self._added.setdefault(id(node), (node, {}))[1]
            there = added.get(str(path[-1]))
            if isinstance(there, dict) and isinstance(value, dict):
                value = {**there, **value}
            added[str(path[-1])] = value
        else:
            self._edits.append((pair[0].end_mark.index, self._end(pair[1]), f": {flow(value)}"))

    def remove(self, path: Path) -> None:
        """Remove a value and its name, and a nested mapping that becomes empty."""
        node = self._mapping(path[:-1])
        place = next((i for i, (key, _) in enumerate(node.value) if key.value == path[-1]), None)
        if place is None or (len(node.value) == 1 and len(path) == 1):
            raise UneditableError(f"{_shown(path)} does not exist")
        if len(node.value) == 1:
            self.remove(path[:-1])
        else:
            self._removed.setdefault(id(node), (node, set()))[1].add(place)

    def remark(self, path: Path, old: str, new: str) -> None:
        """Replace the comment after a value if it equals `old`; other comments are kept."""
        node = self._mapping(path[:-1])
        pair = _pair(node, str(path[-1]))
        end = self._end(pair[1]) if pair is not None else len(self.source)
        behind = f"  # {comment(old)}"
        rest = self.source[end:].split("\n", 1)[0].rstrip("\r")
        if old and rest == behind:
            self._edits.append((end, end + len(behind), f"  # {comment(new)}"))

    def append(self, path: Path, entries: Sequence[tuple[Any, str]]) -> None:
        """Rows behind the last one of the list at `path`, each with its comment (empty: none)."""
        node = self._found(path)
        if not _takes_lines(node, yaml.SequenceNode):
            raise UneditableError(f"{_shown(path)} is not a list with a line for each row")
        self._insert_lines(node, path, [f"- {flow(value)}{_remark(words)}" for value, words in entries])

    def extend(self, path: Path, entries: Sequence[tuple[str, Any, str]]) -> None:
        """Names with values behind the last one of the mapping at `path`, a line each, with comments."""
        node = self._found(path)
        if not _takes_lines(node, yaml.MappingNode):
            raise UneditableError(f"{_shown(path)} is not a mapping with a line for each name")
        lines = [f"{text(name)}: {flow(value)}{_remark(words)}" for name, value, words in entries]
        self._insert_lines(node, path, lines)

    def result(self) -> str:
        """The text with all edits made."""
        edits = [*self._edits, *(self._additions(node, added) for node, added in self._added.values())]
        edits += [edit for node, places in self._removed.values() for edit in self._removals(node, places)]
        made = self.source
        for start, end, new in sorted(edits, key=lambda edit: edit[:2], reverse=True):
            made = made[:start] + new + made[end:]
        return made

    def _additions(self, node: Any, added: Mapping[str, Any]) -> Edit:
        end = self._end(node.value[-1][1]) if node.value else node.start_mark.index + 1
        pairs = [f"{text(name)}: {flow(value)}" for name, value in added.items()]
        if node.flow_style:
            return end, end, f", {', '.join(pairs)}" if node.value else ", ".join(pairs)
        behind, indent = self._behind(end), " " * node.start_mark.column
        return behind, behind, "".join(f"{self._newline}{indent}{pair}" for pair in pairs)

    def _removals(self, node: Any, places: Collection[int]) -> Iterator[Edit]:
        """Runs of neighbours go together; names that stay keep one comma between them, and the comments about them."""
        pairs = node.value
        for first, last in _runs(sorted(places)):
            begins, ends = pairs[first][0].start_mark.index, self._end(pairs[last][1])
            if last + 1 < len(pairs) and (node.flow_style or first == 0):
                following, behind = pairs[last + 1][0].start_mark.index, self._behind(ends, _BEHIND_COMMA)
                yield begins, behind if "#" in self.source[behind:following] else following, ""
            elif node.flow_style:
                yield (*self._last(self._end(pairs[first - 1][1]), begins, ends), "")
            else:
                yield (*self._lines(begins, ends), "")

    def _last(self, before: int, begins: int, ends: int) -> tuple[int, int]:
        """The span of the last values of a mapping in flow style; a comment behind the value before them stays."""
        if "#" not in self.source[before:begins]:
            return before, ends
        return self.source.rindex("\n", before, begins), self._behind(ends, _COMMA)

    def _insert_lines(self, node: Any, path: Path, lines: Sequence[str]) -> None:
        indent = "  " if _is_empty(node) else " " * node.start_mark.column
        shown = "".join(f"{self._newline}{indent}{line}" for line in lines)
        if not _is_empty(node):
            last = node.value[-1]
            end = self._end(last[1] if isinstance(last, tuple) else last)
            behind = self._behind(end)
            self._edits.append((behind, behind, shown))
        else:  # `tables: []`
            pair = _pair(self._mapping(path[:-1]), str(path[-1]))
            if pair is None:
                raise UneditableError(f"{_shown(path)} does not exist")
            self._edits.append((pair[0].end_mark.index, self._end(node), f":{shown}"))

    def _end(self, node: Any) -> int:
        """End of a value; a collection in block style ends with its last value."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self._end(last[1] if isinstance(last, tuple) else last)
        end: int = node.end_mark.index
        block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        return len(self.source[:end].rstrip()) if block else end

    def _behind(self, end: int, what: re.Pattern[str] = _BEHIND) -> int:
        """Behind the comment on the line that a value ends on, or behind something else that may follow it."""
        hit = what.match(self.source, end)
        return end if hit is None else hit.end()

    def _lines(self, start: int, end: int) -> tuple[int, int]:
        """The whole lines of a span."""
        first = self.source.rfind("\n", 0, start) + 1
        after = self.source.find("\n", self._behind(end))
        return first, len(self.source) if after < 0 else after + 1

    def _found(self, path: Path) -> Any:
        """The node at a path; None: there is none."""
        node = self._root
        for part in path:
            node = None if node is None else _child(node, part)
        return node

    def _mapping(self, path: Path) -> Any:
        node = self._found(path)
        if not isinstance(node, yaml.MappingNode):
            raise UneditableError(f"{_shown(path)} is not a mapping")
        return node


def _child(node: Any, part: str | int) -> Any:
    if isinstance(part, int):
        return node.value[part] if isinstance(node, yaml.SequenceNode) and part < len(node.value) else None
    pair = _pair(node, part) if isinstance(node, yaml.MappingNode) else None
    return None if pair is None else pair[1]


def _pair(node: Any, name: str) -> tuple[Any, Any] | None:
    return next((pair for pair in node.value if pair[0].value == name), None)


def _takes_lines(node: Any, sort: type[yaml.CollectionNode]) -> bool:
    return node is not None and (_is_empty(node) or (isinstance(node, sort) and not node.flow_style))


def _is_empty(node: Any) -> bool:
    """An empty list or mapping, or null."""
    return not node.value or node.tag == "tag:yaml.org,2002:null"


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of whole numbers that follow each other."""
    for _, run in itertools.groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]


def _remark(words: str) -> str:
    return f"  # {comment(words)}" if words else ""


def _shown(path: Path) -> str:
    return ".".join(str(part) for part in path) or "the document"
