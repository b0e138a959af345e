"""Events of MongoDB: documents as texts of extended JSON, with their fields as columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_jobs.dialects.debezium.connect_values import text_of

Json = Any

KEY = "_id"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {"c": "I", "r": "I", "u": "I", "d": "D"}
"""A whole document replaces the stored row, so that a field which it lacks becomes null: no update does that."""


@dataclass(frozen=True)
class Document:
    """A change of a document.

    Attributes:
        op: `I` (whole document), `U` (some of its fields), `D`.
        row: field to value; nested values are texts of JSON.
    """

    op: str
    row: Mapping[str, Json]


def is_of_documents(event: Json) -> bool:
    """Whether it is an event of MongoDB whose documents are texts: a transform may have made structs of them."""
    source = event.get("source") if isinstance(event, Mapping) else None
    if not isinstance(source, Mapping) or source.get("connector") != "mongodb" or not isinstance(event.get("op"), str):
        return False
    return not any(isinstance(event.get(side), Mapping) for side in ("before", "after"))


def document_of(event: Mapping[str, Json], key: Json) -> Document | None:
    """
    Args:
        key: of the record, without wrappers: a struct whose `id` is the `_id` as a text of extended JSON.

    Returns:
        Null where the event states no row: an update inside a nested value without the whole document, or a text that
        is no document.
    """
    op = event["op"]
    try:
        if op == "d":
            return Document("D", _fields(event.get("before")) | _key(key))
        if op in _KINDS and event.get("after") is not None:
            return Document(_KINDS[op], _key(key) | _fields(event["after"]))
        return Document("U", _changed(event["updateDescription"]) | _key(key)) if op == "u" else None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _key(key: Json) -> dict[str, Json]:
    text = key.get("id") if isinstance(key, Mapping) else None
    return {} if text is None else {KEY: _value(json.loads(text) if isinstance(text, str) else text)}


def _fields(document: Json) -> dict[str, Json]:
    if document is None:
        return {}
    found = json.loads(document)
    if not isinstance(found, Mapping):
        raise TypeError(document)
    return {name: _value(value) for name, value in found.items()}


def _changed(description: Json) -> dict[str, Json]:
    """Fields of an update without the whole document.

    Raises:
        ValueError: a part of a nested value changed, whose other parts are not stated.
        TypeError: there is no description.
    """
    if not isinstance(description, Mapping):
        raise TypeError(description)
    removed: Sequence[str] = description.get("removedFields") or ()
    found = _fields(description.get("updatedFields")) | dict.fromkeys(removed)
    if description.get("truncatedArrays") or any("." in name for name in found):
        raise ValueError(description)
    return found


def _value(value: Json) -> Json:
    """A column's value; nested ones as text."""
    found = _bare(value)
    return text_of(found) if isinstance(found, (Mapping, list)) else found


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


def _date(value: Json) -> datetime:
    if isinstance(value, str):
        found = datetime.fromisoformat(value)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    milliseconds = int(value["$numberLong"]) if isinstance(value, Mapping) else int(value)
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _binary(value: Json) -> bytes:
    return base64.b64decode(value["base64"] if isinstance(value, Mapping) else value, validate=True)


_WRAPPERS: Mapping[str, Callable[[Any], Json]] = {
    "$oid": str, "$uuid": str, "$symbol": str, "$numberDecimal": str, "$numberInt": int, "$numberLong": int,
    "$numberDouble": float, "$date": _date, "$binary": _binary,
}  # fmt: skip
"""A decimal is text, in all its digits; `options.types` makes it one."""
