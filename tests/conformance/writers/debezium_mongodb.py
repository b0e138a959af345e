"""Debezium's connector for MongoDB: documents as texts of extended JSON.

Sources: io.debezium.connector.mongodb.MongoDbSourceInfoStructMaker, `JsonSerialization` (the key is always in the
relaxed form, documents by json.serialization.mode); documentation/modules/ROOT/pages/connectors/mongodb.adoc:
"Change streams capture mode" (which events have `before` and `after`), and that a whole document of an update is
looked up later, so that it may be newer than the update, or gone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar

from tests.conformance.delivery import Delivery
from tests.conformance.history import Change, Column, History, Key, Kind, Row, Step
from tests.conformance.writers import debezium
from tests.conformance.writers.connect import Form, form_of, micros
from tests.conformance.writers.debezium import Connector, Event, Placed

KINDS: tuple[Kind, ...] = ("text", "decimal", "float8", "bool", "timestamp", "bytes")
SETTINGS: Mapping[str, tuple[Any, ...]] = {
    **{name: debezium.SETTINGS[name] for name in
       ("schemas.enable", "tombstones.on.delete", "sink", "partitions", "flush.size")},
    "capture.mode": ("change_streams_update_full", "change_streams", "change_streams_update_full_with_pre_image",
                     "change_streams_with_pre_image"),
    "json.serialization.mode": ("legacy", "strict", "extended", "relaxed"),
    "looked up": ("at once", "later"),
}  # fmt: skip
"""`looked up`: when the connector asks for the whole document of an update; no setting."""


class MongoDb(Connector):
    """Changes of a transaction share the time of the cluster and its number."""

    name = "mongodb"
    kinds = KINDS
    flat: ClassVar[tuple[str, ...]] = ()

    def __init__(self, history: History, given: Mapping[str, Any]) -> None:
        super().__init__(history, given)
        self.second, self.order = 0, 0

    def snapshot_place(self) -> Mapping[str, Any]:
        return {"collection": "t", "ord": self.order, "lsid": None, "txnNumber": None, "wallTime": None}

    def placed(self, changes: Sequence[Change]) -> Sequence[Placed]:
        second = micros(self.at) // 1_000_000
        self.order = 1 if second != self.second else self.order + 1
        self.second = second
        inside = {"lsid": "a session", "txnNumber": 1} if len(changes) > 1 else {"lsid": None, "txnNumber": None}
        return [(change, {**self.snapshot_place(), **inside}) for change in changes]


class _Task(debezium.Task):
    """Documents in place of rows."""

    def _value(self, event: Event) -> dict[str, Any]:
        body = self._envelope(event)
        if not self.given["schemas.enable"]:
            return body
        texts = [{"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1, "field": side}
                 for side in ("before", "after")]  # fmt: skip
        source = debezium.struct("io.debezium.connector.mongo.Source",
                                 [debezium.guessed(n, v) for n, v in body["source"].items()])  # fmt: skip
        rest = [debezium.guessed(name, body[name]) for name in ("op", "ts_ms")]
        fields = [*texts, _description(), {**source, "field": "source"}, *rest]
        return {"schema": debezium.struct("p.d.t.Envelope", fields), "payload": body}

    def _envelope(self, event: Event) -> dict[str, Any]:
        mode = self.given["capture.mode"]
        pre = event.before if mode.endswith("pre_image") and event.op in "ud" else None
        whole = event.after if event.op != "u" or "full" in mode else None
        return {"before": self._document(pre, event), "after": self._document(whole, event),
                "updateDescription": self._changed(event), "source": self._source(event), "op": event.op,
                "ts_ms": micros(event.at) // 1000 + 7}  # fmt: skip

    def _source(self, event: Event) -> dict[str, Any]:
        """The cluster's time has seconds; `ord` numbers what is in one."""
        found = super()._source(event)
        second = found["ts_ms"] // 1000
        return {**found, "ts_ms": second * 1000, "ts_us": second * 1_000_000, "ts_ns": second * 1_000_000_000}

    def _document(self, row: Row | None, event: Event, mode: str = "") -> str | None:
        if row is None:
            return None
        shown = {_named(c.name): self._bson(row[c.name], mode) for c in event.columns if c.name in row}
        return json.dumps(shown, ensure_ascii=False, separators=(",", " : "))

    def _changed(self, event: Event) -> dict[str, Any] | None:
        """`updateDescription`: fields that were set, and those that were removed."""
        if event.op != "u" or event.changed is None:
            return None
        mode = self.given["json.serialization.mode"].replace("legacy", "relaxed")
        fields = self._document(event.changed, event, mode)
        return {"removedFields": None, "updatedFields": fields, "truncatedArrays": None}

    def _bson(self, value: Any, mode: str = "") -> Any:
        """MongoDB Extended JSON, version 1 (`strict`, and documents under `legacy`) or 2."""
        mode = mode or self.given["json.serialization.mode"]
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return value
        if isinstance(value, int):
            return value if mode == "relaxed" else {"$numberLong": str(value)}
        if isinstance(value, float):
            return {"$numberDouble": repr(value)} if mode == "extended" else value
        if isinstance(value, Decimal):
            return {"$numberDecimal": str(value)}
        if isinstance(value, bytes):
            text = base64.b64encode(value).decode()
            old = {"$binary": text, "$type": "00"}
            return {"$binary": {"base64": text, "subType": "00"}} if mode in ("extended", "relaxed") else old
        return {"$date": _date(value, mode)}

    def _keyed(self, event: Event) -> dict[str, Any]:
        name = self.history.keys[0]
        payload = {"id": json.dumps(self._bson((event.key or {})[name], "relaxed"), ensure_ascii=False)}
        if not self.given["schemas.enable"]:
            return payload
        return {"schema": debezium.struct("p.d.t.Key", [{"type": "string", "optional": False, "field": "id"}]),
                "payload": payload}  # fmt: skip

    def _seen(self, event: Event, column: Column) -> Any:
        value = super()._seen(event, column)
        return value.replace(microsecond=value.microsecond // 1000 * 1000) if isinstance(value, datetime) else value

    def _options(self) -> dict[str, Any]:
        decimals = [column.name for column in self.history.columns if column.kind == "decimal"]
        return {"types": dict.fromkeys(decimals, "decimal(12,2)")}

    def _looked_up(self, event: Event, step: Step) -> Event:
        """The whole document of an update as it is after its transaction, or null where it is gone by then."""
        changed = None
        if event.op == "u" and event.before is not None and event.after is not None:
            changed = {n: v for n, v in event.after.items() if n not in event.before or event.before[n] != v}
        event = replace(event, changed=changed)
        if self.given["looked up"] == "at once" or event.op != "u" or "full" not in self.given["capture.mode"]:
            return event
        key = self.history.key(event.after or {})
        rows = {self.history.key(row): row for row in step.rows}
        return replace(event, after=rows.get(key))

    def _streamed(self, step: Step) -> Iterator[Event]:
        for event in super()._streamed(step):
            yield self._looked_up(event, step)

    def _form(self, column: Column) -> Form:
        return form_of(column, self.given)


def _date(value: datetime, mode: str) -> Any:
    """Milliseconds since 1970: a number, `$numberLong`, or ISO 8601 in the relaxed form of years from 1970 to 9999."""
    millis = micros(value) // 1000
    if mode in ("legacy", "strict"):
        return millis
    if mode == "relaxed" and 1970 <= value.year <= 9999:
        return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    return {"$numberLong": str(millis)}


def _named(column: str) -> str:
    return "_id" if column in ("id", "code") else column


def _description() -> dict[str, Any]:
    """The schema of `updateDescription`; only `updatedFields` ever has a value here."""
    text = {"type": "string", "optional": True}
    removed = {"type": "array", "items": {**text, "optional": False}, "optional": True, "field": "removedFields"}
    updated = {**text, "name": "io.debezium.data.Json", "version": 1, "field": "updatedFields"}
    name = "io.debezium.connector.mongodb.changestream."
    sizes = [{**text, "optional": False, "field": "field"}, {"type": "int32", "optional": False, "field": "size"}]
    items = debezium.struct(f"{name}truncatedarray", sizes)
    cut = {"type": "array", "items": items, "optional": True, "field": "truncatedArrays"}
    described = debezium.struct(f"{name}updatedescription", [removed, updated, cut])
    return {**described, "optional": True, "field": "updateDescription"}


def write(history: History, given: Mapping[str, Any]) -> Delivery:
    """The files of the connector, its topic and a sink, with `_id` in place of the key."""
    whole = {**{name: values[0] for name, values in debezium.SETTINGS.items()}, **given}
    found = _Task(MongoDb(history, whole), history, whole).delivery()

    def renamed(rows: Mapping[Key, Row]) -> dict[Key, Row]:
        return {key: {_named(name): value for name, value in row.items()} for key, row in rows.items()}

    columns = tuple(replace(column, name=_named(column.name)) for column in found.columns)
    return replace(found, keys=("_id",), columns=columns, right=renamed(found.right), maybe=renamed(found.maybe))


def refusal(case: Mapping[str, Any]) -> str:
    """What a collection does not do, and what a delete needs."""
    if case.get("unlogged") or case.get("truncated") or case.get("failed_over"):
        return "no such event of a collection"
    if case.get("keys") == "two" or case.get("moved"):
        return "an _id is one field and never changes"
    if case.get("added") == "default":
        return "a field has no default"
    if (
        "capture.mode" in case
        and "pre_image" not in case["capture.mode"]
        and case.get("sink", "aiven with keys") != "aiven with keys"
    ):
        return "a delete has its key in the record's key alone"
    if case.get("looked up") == "later" and "full" not in case.get("capture.mode", "full"):
        return "no document is looked up"
    return ""
