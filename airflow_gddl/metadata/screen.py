"""Checks of any value in any field: secrets, long texts, values that the file's reader refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_gddl.contract.connections import LENT
from airflow_gddl.contract.errors import FieldPath, SpecProblem
from airflow_gddl.metadata.values import Refused

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
    hidden = tuple(SpecProblem("SECRET_LIKE", path, _Hidden(), "looks like a secret", REMEDY) for path in find(values))
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
            yield SpecProblem("VALUE_TOO_LONG", path, value, f"more than {MAX_ITEMS:,} entries", "name fewer")
            return
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for part, item in items:
            if isinstance(part, str) and (len(part) > MAX_TEXT or _CONTROL.search(part)):
                yield _text(part, (*path, part))
            yield from _walk(item, (*path, part))
    elif isinstance(value, Refused):
        yield SpecProblem(value.code, path, value if value.text is None else value.text, value.message, value.remedy)


def _text(text: str, path: FieldPath) -> SpecProblem:
    if len(text) > MAX_TEXT:
        return SpecProblem("VALUE_TOO_LONG", path, text, f"longer than {MAX_TEXT:,} characters", "shorten it")
    return SpecProblem("TEXT_INVALID", path, text, "control characters or lone surrogates", "remove them")
