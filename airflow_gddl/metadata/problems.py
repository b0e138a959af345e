"""Problems of the metadata as frozen values, safe to display."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from airflow_gddl.contract.errors import FieldPath, field_name
from airflow_gddl.metadata import screen
from airflow_gddl.metadata.values import DocumentError, Refused

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
    return _FILE.sub(lambda found: f"{folder.rstrip('/')}/{found[0]}", text)


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
        value = f" (value {self.value})" if self.value else ""
        return f"{self.about}{': ' if self.about else ''}{self.message}{value} — {self.remedy}"

    @property
    def about(self) -> str:
        """`table.field`, as far as they are known."""
        return ".".join(part for part in (self.table, self.field) if part)

    def __str__(self) -> str:
        about = " ".join(part for part in (self.table, self.field) if part)
        value = f" (value {self.value})" if self.value else ""
        end = "" if self.remedy.endswith((".", "?")) else "."
        text = f"{self.place}: [{self.code}] {about + ': ' if about else ''}{self.message}{value}."
        return " ".join(f"{text} Remedy: {self.remedy}{end}".split())


MANY = 5
"""Equal problems that are shown one by one, at most."""
_NAMED = 3


def grouped(problems: Iterable[Problem]) -> list[tuple[Problem, str]]:
    """Problems to show, and what to add to each: of more than `MANY` rows with the same problem, the first alone, with
    the number of the others and some of their names.
    """
    alike: dict[tuple[str, ...], list[Problem]] = {}
    for problem in problems:
        key = (problem.code, problem.message, problem.remedy, problem.field, problem.value)
        alike.setdefault(key, []).append(problem)
    made = []
    for found in alike.values():
        tables = list(dict.fromkeys(problem.table for problem in found[1:] if problem.table is not None))
        if len(tables) < MANY or len(tables) < len(found) - 1:  # few, or several in a row
            made += [(problem, "") for problem in found]
            continue
        names = ", ".join(tables[:_NAMED])
        made.append((found[0], f"The same in {len(tables)} more rows: {names} and {len(tables) - _NAMED} others."))
    return made


def unread(error: DocumentError | FileNotFoundError, file: str) -> Problem:
    """The problem of a file that can't be read as a whole."""
    if isinstance(error, FileNotFoundError):
        return Problem(code="FILE_UNREADABLE", message="listed, but missing", remedy="restore the file", file=file)
    line, column = error.position or (None, None)
    return Problem(code=error.code, message=error.message, remedy=error.remedy, file=file, line=line, column=column)


def show(value: object, path: FieldPath = ()) -> str:
    """`repr` of a value cut to 80 characters; hidden when it, or a part of it, looks like a secret; empty for one that
    was refused as it was read."""
    if isinstance(value, Refused):
        return ""
    named = any(isinstance(part, str) and screen.named_secret(part) for part in path[-1:])
    if named or next(screen.find(value), None) is not None:
        return screen.HIDDEN
    text = repr(value[: SHOWN + 1]) if isinstance(value, str) else _LIMITED.repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def show_field(path: FieldPath) -> str:
    """The path as text; parts that look like secrets are hidden, long ones cut."""
    return field_name(tuple(part if isinstance(part, int) else show_name(part) for part in path))


def show_name(name: str) -> str:
    """A table or field name as it may be shown: one line, 80 characters at most, no secrets."""
    if screen.looks_secret(name):
        return screen.HIDDEN
    flat = name if name.isprintable() else repr(name)[1:-1]
    return flat if len(flat) <= SHOWN else f"{flat[: SHOWN - 3]}..."
