"""Documents of MongoDB's events: texts of extended JSON, whose fields become columns."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_jobs.rooms.dialects.debezium.connect_values import BeyondYears, text_of

Json = Any
KEY = "_id"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {"c": "I", "r": "I", "u": "I", "d": "D"}
"""A whole document replaces the stored row, so that a field which it lacks becomes None: no update does that."""


def is_of_documents(event: Json) -> bool:
    """Whether it is an event of MongoDB whose documents are texts: a transform may have made structs of them."""
    source = event.get("source") if isinstance(event, Mapping) else None
    if not isinstance(source, Mapping) or source.get("connector") != "mongodb" or not isinstance(event.get("op"), str):
        return False
    return not any(isinstance(event.get(side), Mapping) for side in ("before", "after"))


def document_of(event: Mapping[str, Json], key: Json) -> tuple[str, Mapping[str, Json]] | None:
    """
    Args:
        key: of the record, without wrappers: a struct whose `id` is the `_id` as a text of extended JSON.

    Returns:
        `I` (whole document), `U` (some of its fields) or `D`, and field to value; nested values are texts of JSON.
        Null where the event states no row: an update inside a nested value without the whole document, or a text that
        is no document.
    """
    op = event["op"]
    try:
        if op == "d":
            return "D", _fields(event.get("before")) | _key(key)
        if op in _KINDS and event.get("after") is not None:
            return _KINDS[op], _key(key) | _fields(event["after"])
        named = {name: value for name, value in _fields(event.get("before")).items() if name == KEY}
        return ("U", named | _changed(event["updateDescription"]) | _key(key)) if op == "u" else None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _key(key: Json) -> dict[str, Json]:
    text = key.get("id") if isinstance(key, Mapping) else None
    return {} if text is None else {KEY: _value(json.loads(text) if isinstance(text, str) else text)}


def _fields(document: Json) -> dict[str, Json]:
    if document is None:
        return {}
    members = json.loads(document)
    if not isinstance(members, Mapping):
        raise TypeError(document)
    return {name: _value(value) for name, value in members.items()}


def _changed(description: Json) -> dict[str, Json]:
    """Fields of an update without the whole document.

    Raises:
        ValueError: a part of a nested value changed, whose other parts are not stated.
        TypeError: there is no description.
    """
    if not isinstance(description, Mapping):
        raise TypeError(description)
    removed: Sequence[str] = description.get("removedFields") or ()
    changed = _fields(description.get("updatedFields")) | dict.fromkeys(removed)
    if description.get("truncatedArrays") or any("." in name for name in changed):
        raise ValueError(description)
    return changed


def _value(value: Json) -> Json:
    """A column's value; nested ones as text."""
    bare = _bare(value)
    return text_of(bare) if isinstance(bare, (Mapping, list)) else bare


def _bare(value: Json) -> Json:
    """Without the wrappers of extended JSON, in its canonical, relaxed or earlier strict form."""
    if isinstance(value, list):
        return [_bare(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    kind = next(iter(value), "")
    if kind in _WRAPPERS and set(value) <= {kind, "$type"}:
        return _WRAPPERS[kind](value[kind])
    return {name: _bare(part) for name, part in value.items()}


def _date(value: Json) -> datetime | BeyondYears:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return BeyondYears(value)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    milliseconds = int(value["$numberLong"]) if isinstance(value, Mapping) else int(value)
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return BeyondYears.of(milliseconds)


def _binary(value: Json) -> bytes:
    return base64.b64decode(value["base64"] if isinstance(value, Mapping) else value, validate=True)


class ObjectId(str):
    """An ObjectId as its text."""


class Uuid(str):
    """A UUID as its text."""


class DecimalText(str):
    """A decimal as its digits."""


_WRAPPERS: Mapping[str, Callable[[Any], Json]] = {
    "$oid": ObjectId, "$uuid": Uuid, "$symbol": str, "$numberDecimal": DecimalText, "$numberInt": int,
    "$numberLong": int, "$numberDouble": float, "$date": _date, "$binary": _binary,
}  # fmt: skip
"""A decimal is text, in all its digits; `options.types` makes it one."""
_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (ObjectId, "ObjectId"), (Uuid, "UUID"), (bool, "boolean"), ((int, float, DecimalText), "number"),
    ((datetime, BeyondYears), "date"), (bytes, "binary"),
)  # fmt: skip
_FORMS = (
    ("ObjectId", re.compile(r"[0-9a-f]{24}")), ("UUID", re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")),
    ("number", re.compile(r"[+-]?[0-9]*[.]?[0-9]+(E[+-]?[0-9]+)?", re.IGNORECASE)),
    ("boolean", re.compile("true|false")), ("date", re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T.*")),
)  # fmt: skip
"""Texts that values of other types have as keys."""
TEXT_OF = "text of "


def id_type(value: Json) -> str:
    """The type of a document's key, which BSON compares before the value; of a text that has the form of another type's
    also that one.
    """
    if (name := next((name for known, name in _TYPES if isinstance(value, known)), None)) is not None:
        return name
    form = next((name for name, form in _FORMS if isinstance(value, str) and form.fullmatch(value)), None)
    return "text" if form is None else f"{TEXT_OF}{form}"
