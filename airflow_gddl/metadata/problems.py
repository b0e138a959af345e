"""Values read from a file with their positions, checks of any value, and problems, which are safe to display."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from airflow_gddl.contract.alike import MANY, the_same_in
from airflow_gddl.contract.codes import DOCUMENT_INVALID, FIELD_VALUE, FILE_UNREADABLE, SECRET_LIKE, Code
from airflow_gddl.contract.connections import LENT
from airflow_gddl.contract.errors import FieldPath, SpecProblem, field_name


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


@dataclass(frozen=True)
class Refused:
    """Placeholder for an unreadable value (a tag, a duplicate name, too deep nesting)."""

    code: Code
    message: str
    remedy: str
    text: str | None = None
    """As written; null where it is not known, or too long."""

    def __repr__(self) -> str:
        return "(refused)"

    def problem(self, path: FieldPath = ()) -> SpecProblem:
        return SpecProblem(self.code, path, self if self.text is None else self.text, self.message, self.remedy)


@dataclass(frozen=True)
class Layer:
    """Values that one place sets.

    Attributes:
        values: mappings, lists, text, numbers, booleans, null, `Refused`; of a row or a section a mapping.
        locate: takes paths inside `values`.
    """

    file: str
    values: Any
    locate: Locate = lambda _: None


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
    return Refused(DOCUMENT_INVALID, "written twice in the same mapping", f"keep one {name!r:.60}")


TOO_DEEP = Refused(DOCUMENT_INVALID, "nested too deeply", "no field needs more than a few levels")


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


HIDDEN = "(hidden)"
REMEDY = (
    "remove it and change the secret; keep secrets in a secret store, an Airflow connection or an instance role, "
    "and name them with a field such as ..._env, ..._arn or ..._name"
)

_NAME = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|credential|(api|access|private|account|mask)[_.-]?key", re.IGNORECASE
)
# Connections of Airflow and of source databases as variables: their content holds a password, whatever they are called.
_CONNECTION_NAME = re.compile(r"(AIRFLOW_CONN|GDDL_SOURCE)_\w+", re.IGNORECASE)
# These say where a secret is, not what it is.
_REFERENCE_NAME = re.compile(r"[_.-](env|arn|name|scope|ref|path|file|provider|type|ttl|class)$", re.IGNORECASE)
_REFERENCE_VALUE = re.compile(r"\s*(\$\{[^}]*\}|\{\{[^}]*\}\})\s*")
_VALUE = re.compile(
    r"\b(AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|://[^/\s:@]*:[^/\s@]+@"
    r"|\bs3[an]?://[^/\s]*[:@]"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(gh[pousr]_[A-Za-z0-9]{20,}|dapi[0-9a-f]{32}|xox[abprs]-[A-Za-z0-9-]{10,})"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}"
    r"|\b(Bearer|Basic)\s{1,5}[A-Za-z0-9+/._~-]{20,}"
    # Whatever stands before such a name, as in `-Dfs.s3a.secret.key=` or `AWS_SECRET_ACCESS_KEY=`.
    r"|(passw(or)?d|passphrase|pwd|secret|token|(access|account|api|mask|private|secret|shared)[_.-]?key)"
    r"(\.[a-z0-9.-]{1,60}\.net)?\s{0,20}=\s{0,20}[^\s;,{$=]"
    r'|"(password|passwd|pwd|token|[a-z_]{0,40}secret[a-z_]{0,40})"\s{0,20}:\s{0,20}"[^"{$]',
    re.IGNORECASE,
)
# Below these, names are column names, and a column may well be called `password`.
_COLUMN_MAPS = (("mask",), ("column_descriptions",), ("options", "types"))
_SCANNED = 20_000


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a secret (only its first 20,000 characters are looked at)."""
    return _VALUE.search(text[:_SCANNED]) is not None


def named_secret(name: str) -> bool:
    """Whether a field of this name would hold a secret itself, not a reference to one."""
    if _CONNECTION_NAME.fullmatch(name) and name.upper() != LENT:
        return True
    return _NAME.search(name) is not None and _REFERENCE_NAME.search(name) is None


def find(value: object, path: FieldPath = ()) -> Iterator[FieldPath]:
    """Paths below `path` (the fields of a row, or of one section) whose name or value looks like a secret."""
    if isinstance(value, str):
        if looks_secret(value):
            yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            here = (*path, str(name))
            if looks_secret(str(name)) or (path not in _COLUMN_MAPS and _holds(str(name), item)):
                yield here
            else:
                yield from find(item, here)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from find(item, (*path, i))


def _holds(name: str, item: object) -> bool:
    if item is None or isinstance(item, bool) or not named_secret(name):
        return False
    return not (isinstance(item, str) and (not item or _REFERENCE_VALUE.fullmatch(item)))


MAX_TEXT = 10_000
MAX_ITEMS = 20_000
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def screen(values: Any) -> tuple[SpecProblem, ...]:
    """Problems of a row's (or a section's) own values. When there are secrets, only they are reported."""
    hidden = tuple(SpecProblem(SECRET_LIKE, path, _Hidden(), "looks like a secret", REMEDY) for path in find(values))
    return hidden or tuple(_walk(values, ()))


class _Hidden:
    def __repr__(self) -> str:
        return HIDDEN


def _walk(value: Any, path: FieldPath) -> Iterator[SpecProblem]:
    if isinstance(value, str):
        if len(value) > MAX_TEXT or _CONTROL.search(value):
            yield _text(value, path)
    elif isinstance(value, (dict, list)):
        if len(value) > MAX_ITEMS:
            yield SpecProblem(FIELD_VALUE, path, value, f"more than {MAX_ITEMS:,} entries", "name fewer")
            return
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for part, item in items:
            if isinstance(part, str) and (len(part) > MAX_TEXT or _CONTROL.search(part)):
                yield _text(part, (*path, part))
            yield from _walk(item, (*path, part))
    elif isinstance(value, Refused):
        yield value.problem(path)


def _text(text: str, path: FieldPath) -> SpecProblem:
    if len(text) > MAX_TEXT:
        return SpecProblem(FIELD_VALUE, path, text, f"longer than {MAX_TEXT:,} characters", "shorten it")
    what, remedy = "control characters or lone surrogates", "remove them"
    if path[-2:] in (("options", "csv_delimiter"), ("options", "csv_row_delimiter")) and text.isascii():
        numbers = "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)
        remedy = f"write control characters by their numbers, in single quotes: '{numbers}'"
    return SpecProblem(FIELD_VALUE, path, text, what, remedy)


SHOWN = 80
VARIABLE = "environment variable "
"""Start of a problem's `file` where an environment variable set the value."""


def _limited() -> reprlib.Repr:
    """A `repr` whose cost does not grow with the value."""
    limited = reprlib.Repr()
    limited.maxlevel, limited.maxdict, limited.maxlist, limited.maxtuple = 4, 8, 12, 12
    limited.maxstring = limited.maxother = limited.maxlong = SHOWN
    return limited


_LIMITED = _limited()
_FILE = re.compile(r"(?<![\w/.-])(?:tables|keys)/[^\s,;()]+\.(?:ya?ml|json|csv)\b")


def _under(folder: str, text: str) -> str:
    return _FILE.sub(lambda match: f"{folder.rstrip('/')}/{match[0]}", text)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem at one position.

    Attributes:
        code: stable identifier, e.g. `FIELD_UNKNOWN`.
        message: what is wrong; never holds the value.
        remedy: what to do about it.
        file: path below the metadata folder, with `/`; for settings also `environment variable GDDL_...`.
        line: from 1; null where a line means nothing or is not known.
        column: of the field's name or the list's item in the line, from 1; null where it is not known.
        table: the row's table as written; null when it has none that can be displayed.
        field: `options.types.amount`, `keys[1]`; empty when the whole row or file is meant.
        value: Python form of the value, 80 characters at most, secrets hidden; empty when there is none, or it was not
            readable.
    """

    code: str
    message: str
    remedy: str
    file: str
    line: int | None = None
    column: int | None = None
    table: str | None = None
    field: str = ""
    value: str = ""

    @property
    def place(self) -> str:
        """`file:line`, or the file alone."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def compiler_line(self, folder: str) -> str:
        """`path:line:column: CODE table.field: message (value) — remedy`, without the parts that are not known.

        Args:
            folder: metadata folder as the user named it; it goes before paths of files.
        """
        path = self.path(folder) or self.file
        place = ":".join(str(part) for part in (path, self.line, self.column) if part is not None)
        return f"{place}: {self.code}{' ' if self.about else ': '}{self.text_in(folder)}"

    def text_in(self, folder: str) -> str:
        """`text`, with the folder before each other metadata file that it names."""
        return replace(self, message=_under(folder, self.message), remedy=_under(folder, self.remedy)).text

    def path(self, folder: str) -> str | None:
        """Path of the file below the folder as the user named it; null where a variable set the value."""
        return None if self.file.startswith(VARIABLE) else f"{folder.rstrip('/')}/{self.file}"

    @property
    def text(self) -> str:
        """`table.field: message (value) — remedy`."""
        return f"{self.about}{': ' if self.about else ''}{self.said} — {self.remedy}"

    @property
    def said(self) -> str:
        """`message (value)`."""
        return f"{self.message} (value {self.value})" if self.value else self.message

    @property
    def about(self) -> str:
        """`table.field`, as far as they are known."""
        return ".".join(part for part in (self.table, self.field) if part)

    def __str__(self) -> str:
        about = " ".join(part for part in (self.table, self.field) if part)
        end = "" if self.remedy.endswith((".", "?")) else "."
        text = f"{self.place}: [{self.code}] {about + ': ' if about else ''}{self.said}."
        return " ".join(f"{text} Remedy: {self.remedy}{end}".split())


def grouped(problems: Iterable[Problem]) -> list[tuple[Problem, str]]:
    """Problems to show, and what to add to each: of more than `MANY` rows with the same problem, the first alone, with
    the number of the others and some of their names.
    """
    alike: dict[tuple[str, ...], list[Problem]] = {}
    for problem in problems:
        key = (problem.code, problem.message, problem.remedy, problem.field, problem.value)
        alike.setdefault(key, []).append(problem)
    made = []
    for group in alike.values():
        tables = list(dict.fromkeys(problem.table for problem in group[1:] if problem.table is not None))
        if len(tables) < MANY or len(tables) < len(group) - 1:  # few, or several in a row
            made += [(problem, "") for problem in group]
            continue
        made.append((group[0], the_same_in(tables, "rows")))
    return made


def unread(error: DocumentError | FileNotFoundError, file: str) -> Problem:
    """The problem of a file that can't be read as a whole."""
    if isinstance(error, FileNotFoundError):
        return Problem(code=FILE_UNREADABLE, message="listed, but missing", remedy="restore the file", file=file)
    line, column = error.position or (None, None)
    return Problem(code=error.code, message=error.message, remedy=error.remedy, file=file, line=line, column=column)


def show(value: object, path: FieldPath = ()) -> str:
    """`repr` of a value cut to 80 characters; hidden when it, or a part of it, looks like a secret; empty for one that
    was refused as it was read."""
    if isinstance(value, Refused):
        return ""
    named = any(isinstance(part, str) and named_secret(part) for part in path[-1:])
    if named or next(find(value), None) is not None:
        return HIDDEN
    text = repr(value[: SHOWN + 1]) if isinstance(value, str) else _LIMITED.repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def show_field(path: FieldPath) -> str:
    """The path as text; parts that look like secrets are hidden, long ones cut."""
    return field_name(tuple(part if isinstance(part, int) else show_name(part) for part in path))


def show_name(name: str) -> str:
    """A table or field name as it may be shown: one line, 80 characters at most, no secrets."""
    if looks_secret(name):
        return HIDDEN
    flat = name if name.isprintable() else repr(name)[1:-1]
    return flat if len(flat) <= SHOWN else f"{flat[: SHOWN - 3]}..."
