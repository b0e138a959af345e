"""Checks of any value in any field: secrets, long texts, values that the file's reader refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem
from airflow_gddl.metadata import secrets
from airflow_gddl.metadata.values import Refused

MAX_TEXT = 10_000
MAX_ITEMS = 20_000
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def screen(values: Any) -> tuple[SpecProblem, ...]:
    """Problems of a row's (or a section's) own values. When there are secrets, only they are reported."""
    hidden = tuple(
        SpecProblem("SECRET_LIKE", path, _Hidden(), "looks like a secret", secrets.REMEDY)
        for path in secrets.find(values)
    )
    return hidden or tuple(_walk(values, ()))


class _Hidden:
    def __repr__(self) -> str:
        return secrets.HIDDEN


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
