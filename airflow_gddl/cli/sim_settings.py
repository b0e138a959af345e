"""`NAME=VALUE` settings of a simulation: every scalar field of its specs, typed by the field itself.

Imported only by commands that simulate, since the simulator needs pyarrow.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.devtools.simulate import Delivery, OpMix, SchemaEvent, Troubles
from airflow_gddl.devtools.simulate.clock import in_milliseconds

T = TypeVar("T")
_GROUPS: tuple[type, ...] = (Delivery, Troubles, OpMix)
_START_REMEDY = "a time with its zone, e.g. 2026-01-31T08:00:00Z"
_ATTRIBUTE = re.compile(r"^\s*(\w+(?:, \w+)*): (.+)$")


def known_settings() -> Iterator[tuple[str, str, str, str]]:
    """What `--set` knows, in the order of the specs: name, type or the values that it may have, default, and
    meaning, empty where the name says all."""
    for group in _GROUPS:
        hints, texts = get_type_hints(group), _field_texts(group)
        for field in dataclasses.fields(group):
            yield field.name, _form(hints[field.name]), json.dumps(field.default), texts.get(field.name, "")


def build(group: type[T], assignments: Sequence[str]) -> T:
    """One spec from its assignments.

    Raises:
        MetadataError: `SIMULATE_SETTING_INVALID`: not `NAME=VALUE`, or a value of the wrong type.
    """
    hints = get_type_hints(group)
    given = {}
    for assignment in assignments:
        name, text = _split(assignment)
        if name in hints:
            given[name] = _value(hints[name], text)
    try:
        return decode(group, given)
    except FatalError as error:
        raise _invalid(error.what, error.where) from error


def check_names(assignments: Sequence[str]) -> None:
    """Refuse a name that no spec has.

    Raises:
        MetadataError: `SIMULATE_SETTING_INVALID`.
    """
    names = {name for name, *_ in known_settings()}
    for assignment in assignments:
        if _split(assignment)[0] not in names:
            raise _invalid(f"no setting is called {_split(assignment)[0]!r}", "--set")


def event(text: str) -> SchemaEvent:
    """`ROUND:KIND[:TABLE[:COLUMN]]`; an empty part counts as left out.

    Raises:
        MetadataError: `SIMULATE_SETTING_INVALID`.
    """
    parts = [part or None for part in text.split(":", 3)]
    try:
        given = dict(zip(("round", "kind", "table", "column"), [int(parts[0] or ""), *parts[1:]], strict=False))
        return decode(SchemaEvent, given)
    except (ValueError, FatalError) as error:
        kinds = ", ".join(get_args(get_type_hints(SchemaEvent)["kind"]))
        remedy = f"ROUND:KIND[:TABLE[:COLUMN]], e.g. 2:add_column; kinds: {kinds}"
        raise _invalid(f"{text!r} is not an event", "--event", remedy) from error


def start(text: str) -> datetime:
    """An ISO 8601 time with its zone, such as `2026-01-31T08:00:00Z`.

    Raises:
        MetadataError: `SIMULATE_SETTING_INVALID`.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _invalid(f"{text!r} is not a time", "--start", _START_REMEDY) from error
    if moment.tzinfo is None:
        raise _invalid(f"{text!r} has no time zone", "--start", _START_REMEDY)
    if not 1970 <= moment.year < 3000:
        raise _invalid(f"{text!r} is not of a year from 1970 to 2999", "--start", _START_REMEDY)
    return in_milliseconds(moment.astimezone(UTC))


def _split(assignment: str) -> tuple[str, str]:
    name, equals, text = assignment.partition("=")
    if not equals:
        raise _invalid(f"{assignment!r} is not NAME=VALUE", "--set")
    return name.strip().replace("-", "_"), text


def _value(hint: Any, text: str) -> Any:
    if hint not in (bool, int, float):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _form(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " | ".join(get_args(hint))
    named = {bool: "true | false", int: "whole number", float: "number"}
    return named.get(hint, "text")


def _field_texts(group: type) -> dict[str, str]:
    """Field name to its description in the class's docstring, written as `name: text` or `a, b: text`."""
    found: dict[str, str] = {}
    for line in (inspect.getdoc(group) or "").splitlines():
        match = _ATTRIBUTE.match(line)
        if match:
            found |= dict.fromkeys(match[1].split(", "), match[2])
    return found


def _invalid(what: str, where: str, remedy: str = "`gddl simulate --settings` lists them") -> MetadataError:
    return MetadataError("SIMULATE_SETTING_INVALID", what, where=where, remedy=remedy)
