"""Plain values read from a file, with their positions and refused parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_gddl.contract.errors import FieldPath


class Position(NamedTuple):
    """Line and column in a file, both from 1; `column` null where only the line is known."""

    line: int
    column: int | None = None


START = Position(1, 1)
Locate = Callable[[FieldPath], Position | None]
"""Position of the deepest existing part of a path; null when positions are not known."""


class Mapped(dict[str, Any]):
    """A mapping with the position of each name."""

    __slots__ = ("positions",)

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[str, Position] = {}


class Listed(list[Any]):
    """A list with the position of each item."""

    __slots__ = ("positions",)

    def __init__(self) -> None:
        super().__init__()
        self.positions: list[Position] = []


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Placeholder for an unreadable value (a tag, a duplicate name, too deep nesting)."""

    code: str
    message: str
    remedy: str
    text: str | None = None
    """As written; null where it is not known, or too long."""

    def __repr__(self) -> str:
        return "(refused)"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file read: its value (mappings, lists, text, numbers, booleans, null, `Refused`) and their positions."""

    file: str
    value: Any
    locate: Locate


class DocumentError(Exception):
    """A file that can't be read as a whole."""

    def __init__(self, code: str, message: str, remedy: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.position = position


def duplicate(name: str) -> Refused:
    """Placeholder for a duplicate name in a mapping."""
    return Refused(code="NAME_TWICE", message="written twice in the same mapping", remedy=f"keep one {name!r:.60}")


def too_deep() -> Refused:
    return Refused(code="TOO_DEEP", message="nested too deeply", remedy="no field needs more than a few levels")


def position_of(value: Any, path: FieldPath) -> Position:
    """Follow a path through `Mapped` and `Listed` as far as it goes."""
    position = START
    for part in path:
        if isinstance(value, Mapped) and part in value.positions:
            position = value.positions[str(part)]
        elif isinstance(value, Listed) and isinstance(part, int) and part < len(value.positions):
            position = value.positions[part]
        else:
            break
        value = value[part]
    return position


def one_or_more(value: Any) -> Any:
    """Wrap a single text as a list of one, for lists of names; other values are unchanged."""
    return [value] if isinstance(value, str) else value
