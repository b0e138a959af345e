"""Error classes of both sides: a stable code, what, where and a remedy.

The class determines recovery, the code identifies the error. Codes are part of the public contract: they appear
in `JobResult.error.code`, in quarantine rows and in the documentation, and never change their meaning.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.codes import FIELD_VALUE, OPTION_INVALID, STATE_CONTENDED, Code

DOCUMENTATION = "https://github.com/airflow-gddl/airflow-gddl/blob/main/docs"


def documented(page: str, heading: str = "") -> str:
    """URL of a page of the documentation, for messages: pip installs none.

    Args:
        page: its path below `docs/`.
        heading: anchor of a heading on it; empty: the page.
    """
    return f"{DOCUMENTATION}/{page}" + (f"#{heading}" if heading else "")


class GddlError(Exception):
    """Base class of this project's errors; only its subclasses are raised.

    Args:
        code: stable upper-case identifier, e.g. ``SCHEMA_REFUSED``.
        what: what is wrong, with the offending value.
        where: file, line, table or step it concerns; empty when the message says it.
        remedy: what the reader can do about it; empty only when nothing can be done.
    """

    def __init__(self, code: Code, what: str, *, where: str = "", remedy: str = "") -> None:
        self.code = code
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        remedy = f"{_REMEDY}{self.remedy}" if self.remedy else ""
        return f"[{self.code}] {self.what}{where}{'' if self.what.endswith('.') else '.'}{remedy}"


_REMEDY = " Remedy: "
_LEAST = 80
_CUT = " …"


def brief(message: str, most: int) -> str:
    """An error's text in at most so many characters: the remedy at its end is whole, what is listed before is cut."""
    if len(message) <= most:
        return message
    what, mark, remedy = message.rpartition(_REMEDY)
    if not mark:
        return message[: most - len(_CUT)] + _CUT
    room = max(most - len(_CUT + mark + remedy), _LEAST)
    return (what[:room].rstrip() + _CUT + mark + remedy)[:most]


def coded(code: str, message: str) -> str:
    """The message with its code before it, once."""
    return message if message.startswith(f"[{code}]") else f"[{code}] {message}"


class FatalError(GddlError):
    """A retry fails with the same error until a user fixes the cause."""


class RetriableError(GddlError):
    """A transient error (a held claim, a busy store): the same call may succeed later."""


SWAP_TRIES = 50
"""How often an object that others change meanwhile is read again, and put if it is still the one that was read."""


def contended(path: str) -> RetriableError:
    """`STATE_CONTENDED`, for an object that others changed at each of these tries."""
    what = f"other writers kept changing it, {SWAP_TRIES} times"
    return RetriableError(STATE_CONTENDED, what, where=path, remedy="no data is lost; the next try writes it")


class QuarantinableError(GddlError):
    """Concerns one row or file, which is quarantined; processing continues."""


class MetadataError(FatalError):
    """Invalid metadata or arguments; exit status 2 on the command line."""


def invalid_option(what: str, remedy: str, where: str = "") -> MetadataError:
    """`OPTION_INVALID`."""
    return MetadataError(OPTION_INVALID, what, where=where, remedy=remedy)


FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Note:
    """What awaits a person.

    Attributes:
        table: `source:schema.name`.
        code: listed in docs/codes.md.
        command: says more, or decides.
    """

    table: str
    code: str
    text: str
    command: str = ""

    @property
    def line(self) -> str:
        return f"{self.table}: [{self.code}] {self.text}" + (f" ▸ {self.command}" if self.command else "")


@dataclass(frozen=True)
class SpecProblem:
    """A problem of a spec.

    Attributes:
        code: stable, e.g. `FIELD_VALUE`.
        path: names and list positions that lead to the value.
        value: the raw value; it must be truncated and screened for secrets before display.
        message: what is wrong, without the value.
        remedy: the way out.
    """

    code: Code
    path: FieldPath
    value: object
    message: str
    remedy: str

    @property
    def field(self) -> str:
        return field_name(self.path)


def value_at(spec: Any, path: FieldPath) -> Any:
    """The value of a spec, or of a mapping, at a path; None: nothing is there."""
    return functools.reduce(_part, path, spec)


def _part(value: Any, part: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    return value[part] if isinstance(part, int) else getattr(value, part, None)


def problem_at(spec: object, path: str | FieldPath, message: str, remedy: str, code: Code = FIELD_VALUE) -> SpecProblem:
    """The problem of the value that a spec has at a path; a name stands for the path of one field."""
    path = (path,) if isinstance(path, str) else path
    value = value_at(spec, path)
    return SpecProblem(code, path, list(value) if isinstance(value, tuple) else value, message, remedy)


def below(problems: Iterable[SpecProblem], *path: str) -> Iterator[SpecProblem]:
    """Problems of what is at a path of something, as that something's."""
    return (replace(problem, path=(*path, *problem.path)) for problem in problems)


def field_name(path: FieldPath) -> str:
    """`("options", "types", "a")` as `options.types.a`, `("keys", 1)` as `keys[1]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


OF_FILES = "FILE_"
"""How codes of whole files in quarantine begin."""
