"""Parses JSON text to plain values; line numbers are found on demand by parsing it as YAML."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from typing import Any

from airflow_gddl.contract.spec_problem import FieldPath
from airflow_gddl.metadata import yaml_file
from airflow_gddl.metadata.values import DocumentError, Locate, Position, Refused, duplicate, position_of, too_deep

_NUMBER = Refused(code="NUMBER_INVALID", message="a number out of range", remedy="no field needs such a number")


def read(text: str) -> Any:
    """The value of a text; null for an empty one.

    Raises:
        DocumentError: `JSON_INVALID`, with the position.
    """
    if not text.strip():
        return None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        remedy = "check commas, quotes and brackets at and above this line"
        raise DocumentError(
            "JSON_INVALID", f"not JSON: {error.msg}", remedy, Position(error.lineno, error.colno)
        ) from error
    except RecursionError as error:
        remedy = "no field needs more than a few levels"
        raise DocumentError("JSON_INVALID", "nested too deeply", remedy) from error
    return _shallow(value, 0)


def positions(text: str) -> Locate:
    """Positions in a JSON text, as far as it can be read as YAML; null elsewhere."""

    @functools.cache
    def tree() -> Any:
        try:
            return yaml_file.read(text)
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
    if depth > yaml_file.MAX_DEPTH:
        return too_deep()
    if isinstance(value, dict):
        value.update({k: _shallow(v, depth + 1) for k, v in value.items() if isinstance(v, (dict, list))})
    elif isinstance(value, list):
        value[:] = [_shallow(v, depth + 1) if isinstance(v, (dict, list)) else v for v in value]
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_int=_integer, parse_float=_float, parse_constant=lambda _: _NUMBER
)
