"""What all of Debezium's connectors have in common: events, records of a topic, and the files of a sink.

Sources of the facts: pages of the connectors (documentation/modules/ROOT/pages/connectors) and
`transformations/event-flattening.adoc`, io.debezium.connector.SnapshotRecord,
io.debezium.pipeline.source.snapshot.incremental; of the sinks Confluent's S3 sink connector (names of objects) and
Aiven's (`file.name.template`, `format.output.fields`).
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from tests.conformance.delivery import Arrival, Delivery, Either, File, Uncertain
from tests.conformance.history import START, Change, Column, History, Key, Kind, Row, Step
from tests.conformance.writers.connect import Form, form_of, micros, written

SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "schemas.enable": (True, False),
    "replace.null.with.default": (True, False),
    "decimal.handling.mode": ("precise", "double", "string"),
    "time.precision.mode": ("adaptive", "connect", "isostring", "nanoseconds"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "unavailable.value.placeholder": ("__debezium_unavailable_value", "(unchanged)"),
    "tombstones.on.delete": (True, False),
    "skipped.operations": ("t", "none"),
    "provide.transaction.metadata": (False, True),
    "unwrap": ("", "rewrite", "drop"),
    "sink": ("confluent", "aiven", "aiven with keys"),
    "partitions": (1, 3),
    "flush.size": ("whole", "few"),
}
"""Settings of every connector, its converter, the transform ExtractNewRecordState (`unwrap`), the topic and the sink.
Not drawn: of time.precision.mode `structured` (a reader gets a struct, of which no kind here is a value) and
`microseconds` (which equals `adaptive` for columns of six digits)."""


def refusal(case: Mapping[str, Any]) -> str:
    """Why settings and events can't be combined, or make no difference together."""
    return next((why for why, holds in _RULES if holds(case)), "")


_RULES = (
    ("a decimal in base64 without its scale",
     lambda c: c.get("schemas.enable") is False and c.get("decimal.handling.mode") == "precise"),
    ("a placeholder needs values that are not logged",
     lambda c: c.get("unavailable.value.placeholder") == "(unchanged)" and c.get("unlogged") is False),
    ("the transform drops transactions and truncates (event-flattening.adoc)",
     lambda c: c.get("unwrap") and (c.get("provide.transaction.metadata") or c.get("skipped.operations") == "none")),
    ("no truncate is skipped", lambda c: c.get("skipped.operations") == "none" and c.get("truncated") is False),
    ("a rewritten delete has no key of its own", lambda c: c.get("unwrap") and c.get("sink") == "aiven with keys"),
)  # fmt: skip


@dataclass(frozen=True)
class Event:
    """Attributes:
    source: the block `source`, without the fields that all connectors have.
    columns: of the table when it happened; `order`: its number in the transaction.
    changed: columns that an update has changed, where a connector tells them.
    """

    op: str
    at: datetime
    columns: tuple[Column, ...]
    source: Mapping[str, Any]
    key: Row | None
    before: Row | None = None
    after: Row | None = None
    unlogged: frozenset[str] = frozenset()
    snapshot: str = "false"
    order: tuple[str, int] = ("", 0)
    changed: Row | None = None


@dataclass
class Told:
    """What the files tell, so far: rows by key, and rows that nothing has removed."""

    history: History
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    maybe: dict[Key, dict[str, Any]] = field(default_factory=dict)
    guessed: set[Key] = field(default_factory=set)


Placed = tuple[Change, Mapping[str, Any]]


class Connector(ABC):
    """A connector that follows one table.

    Attributes:
        settings: those of this connector, beside the common ones.
        kinds: of columns that its source has.
        flat: fields that `add.fields` needs beside `op,source.connector,source.ts_ms,source.snapshot` to order changes.
    """

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    kinds: ClassVar[tuple[Kind, ...]]
    flat: ClassVar[tuple[str, ...]]
    shows_old_rows: ClassVar[bool] = True

    def __init__(self, history: History, given: Mapping[str, Any]) -> None:
        self.history, self.given, self.table, self.at = history, given, history.table, START

    @abstractmethod
    def snapshot_place(self) -> Mapping[str, Any]:
        """The place of all rows of a snapshot that is taken now."""

    @abstractmethod
    def placed(self, changes: Sequence[Change]) -> Sequence[Placed]:
        """Changes of a transaction that commits `at` in the order of their delivery, with their places."""

    def incremental_place(self) -> Mapping[str, Any]:
        """The place of rows of an incremental snapshot whose window closes now."""
        return self.snapshot_place()

    def fail_over(self) -> None:
        """The source becomes another server. Most connectors follow a log whose places go on."""
        self.at = START  # until the next transaction

    def clock(self, source: Mapping[str, Any]) -> timedelta:  # noqa: ARG002 - of servers with clocks of their own
        """How much the clock is wrong by which a change has its time."""
        return timedelta(0)

    def doubts(self) -> Iterator[Uncertain]:
        """What can't be known because of this connector."""
        yield from ()

    def unlogged(self, change: Change) -> frozenset[str]:
        """Columns of an update that come as the placeholder."""
        return change.unlogged

    def before_of(self, change: Change) -> Row | None:
        """The block `before` of an update or delete."""
        return change.before

    def transaction_name(self, event: Event) -> str:
        """What the block `transaction` calls the event's transaction."""
        return f"tx{event.at.timestamp():.6f}"

    def source_fields(self, source: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Schemas of the connector's own fields of the block `source`."""
        return [guessed(name, value) for name, value in source.items()]


class Task:
    """A connector, its topic and a sink."""

    def __init__(self, connector: Connector, history: History, given: Mapping[str, Any]) -> None:
        self.connector, self.history, self.given = connector, history, given
        self.told = Told(history)
        self.offsets = [0] * given["partitions"]
        self.forms: dict[Column, Form] = {}

    def delivery(self) -> Delivery:
        groups = self._groups()
        arrivals = [self._landed(next(groups))]
        waiting: list[Event] = []
        for step, events in zip(self.history.steps, groups, strict=True):
            waiting += events
            if step.kind in ("flush", "reload") and waiting:
                arrivals.append(self._landed(waiting))
                waiting = []
        columns = tuple(Column(c.name, self._form(c).kind, c.default) for c in self.history.last_columns)
        return Delivery(
            writer=f"debezium_{self.connector.name}", table=self.history.table,
            settings={**self.given, "row_options": self._options()},
            keys=self.history.keys, columns=columns, arrivals=tuple(arrivals), right=self._right(),
            maybe=self.told.maybe, uncertain=tuple(self._doubts()),
        )  # fmt: skip

    def _options(self) -> dict[str, Any]:
        """What a user says of files whose events don't say it: names of types, and what else is not usual."""
        columns = {*self.history.columns, *self.history.last_columns}
        named = {c.name: self._form(c).schema["name"] for c in columns if "name" in self._form(c).schema}
        found: dict[str, Any] = {"unavailable": self.given["unavailable.value.placeholder"]}
        if not self.given["schemas.enable"]:
            found["semantic_types"] = named
        if self.given["unwrap"] == "drop":
            found["flat_deletes"] = "drop"
        return found

    # ---- events

    def messages(self) -> Iterator[list[tuple[str | None, str | None]]]:
        """Key and value of each record of the topic: of the first snapshot, then of each step."""
        for events in self._groups():
            yield [
                (None if event.key is None else written(self._keyed(event)), record and written(record))
                for event in events
                for record in self._records(event)
            ]

    def _groups(self) -> Iterator[list[Event]]:
        """Events of the first snapshot, then those of each step."""
        yield list(self._snapshot(self.history.loaded, self.history.columns, START - timedelta(minutes=10)))
        sent: list[Event] = []
        for step in self.history.steps:
            new = list(self._events(step, sent))
            sent += [event for event in new if event.snapshot == "false"]
            yield new

    def _events(self, step: Step, sent: Sequence[Event]) -> Iterator[Event]:
        if step.kind == "commit":
            yield from self._streamed(step)
        elif step.kind == "reload":
            yield from self._snapshot(step.rows, step.columns, step.at)
        elif step.kind == "incremental":
            yield from self._incremental(step)
        elif step.kind == "resume":
            yield from sent[-4:]  # delivery is at least once: after a crash events since the last offset come again
        elif step.kind == "failover":
            self.connector.fail_over()

    def _streamed(self, step: Step) -> Iterator[Event]:
        self.connector.at = step.at
        number = 0
        for change, place in self.connector.placed(step.changes):
            for event in self._of(change, step, place):
                number += 1
                self._take(event)
                yield replace(event, order=(self.connector.transaction_name(event), number))

    def _of(self, change: Change, step: Step, place: Mapping[str, Any]) -> Iterator[Event]:
        """Pages of the connectors, "Primary key updates": a delete of the old key, then an insert of the new one."""
        common: dict[str, Any] = {"at": step.at, "columns": step.columns, "source": place}
        row = change.row
        key = {name: row[name] for name in self.history.keys} if row else None
        if change.op == "T":
            if self.given["skipped.operations"] == "none" and not self.given["unwrap"]:
                yield Event("t", key=None, **common)
            else:
                self.told.maybe |= self.told.rows
                self.told.rows = {}
        elif change.op == "I":
            yield Event("c", key=key, after=row, **common)
        elif change.op == "D":
            yield Event("d", key=key, before=self.connector.before_of(change), **common)
        elif change.before is not None and self.history.key(change.before) != self.history.key(row):
            old = {name: change.before[name] for name in self.history.keys}
            yield Event("d", key=old, before=self.connector.before_of(Change("D", change.before)), **common)
            yield Event("c", key=key, after=row, unlogged=self.connector.unlogged(change), **common)
        else:
            before, unlogged = self.connector.before_of(change), self.connector.unlogged(change)
            yield Event("u", key=key, before=before, after=row, unlogged=unlogged, **common)

    def _snapshot(self, rows: Sequence[Row], columns: tuple[Column, ...], at: datetime) -> Iterator[Event]:
        """`SnapshotRecord`: the first and the last row are marked. Rows come in any order, here that of their keys."""
        place = self.connector.snapshot_place()
        if not rows:
            self.told.maybe |= self.told.rows  # no event tells that a table is empty
        self.told.rows = {}
        self.told.maybe = {} if rows else self.told.maybe
        for number, row in enumerate(sorted(rows, key=self.history.key)):
            mark = "last" if number == len(rows) - 1 else "first" if number == 0 else "true"
            yield self._read(row, columns, at, place, mark)

    def _incremental(self, step: Step) -> Iterator[Event]:
        """`AbstractIncrementalSnapshotChangeEventSource`: rows come as their window closes, in their keys' order."""
        place = self.connector.incremental_place()
        for row in sorted(step.rows, key=self.history.key):
            yield self._read(row, step.columns, step.at, place, "incremental")

    def _read(self, row: Row, columns: tuple[Column, ...], at: datetime, place: Mapping[str, Any], mark: str) -> Event:
        key = {name: row[name] for name in self.history.keys}
        event = Event("r", at, columns, place, key, after=row, snapshot=mark)
        self._take(event)
        return event

    # ---- what is right

    def _take(self, event: Event) -> None:
        rows = self.told.rows
        if event.op == "t":
            self.told.rows, self.told.maybe = {}, {}
            return
        assert event.key is not None
        key = tuple(event.key[name] for name in self.history.keys)
        if event.op == "d":
            gone = rows.pop(key, None)
            if self.given["unwrap"] == "drop" and gone is not None:
                self.told.maybe[key] = gone
            return
        self.told.maybe.pop(key, None)
        self.told.guessed.discard(key)
        row = {column.name: self._seen(event, column) for column in event.columns}
        for name in event.unlogged:
            if event.op == "u" and key in rows:
                row[name] = rows[key].get(name)
            else:  # a new key has no stored value
                row[name] = Either((row[name], None))
                self.told.guessed.add(key)
        rows[key] = row

    def _seen(self, event: Event, column: Column) -> Any:
        value = None if event.after is None else event.after.get(column.name)
        if value is None:
            # JsonConverter, replace.null.with.default: the default of the column is written in place of null.
            replaced = column.default is not None and self.given["replace.null.with.default"]
            return Either((None, column.default)) if replaced else None
        return self._form(column).told(value)

    def _right(self) -> dict[Key, Row]:
        filled = {c.name: Either((None, c.default)) for c in self.history.last_columns}
        return {key: {**filled, **row} for key, row in self.told.rows.items()}

    def _doubts(self) -> Iterator[Uncertain]:
        yield from self.connector.doubts()
        if self.told.guessed and self.given["unwrap"] == "drop":
            why = "a value that is not logged, of a key that is new or whose row was deleted unseen"
            yield Uncertain(
                frozenset(self.told.guessed), frozenset({"UPDATE_WITHOUT_PRIOR", "MOVED_ROW_INCOMPLETE"}), why
            )

    # ---- records

    def _form(self, column: Column) -> Form:
        if column not in self.forms:
            given = dict(self.given)
            if not given["schemas.enable"] and given["binary.handling.mode"] == "bytes":
                given["binary.handling.mode"] = "base64"  # JSON without a schema has a text, and nothing says of what
            self.forms[column] = form_of(column, given)
        return self.forms[column]

    def _row(self, row: Row | None, event: Event, hidden: frozenset[str] = frozenset()) -> dict[str, Any] | None:
        if row is None:
            return None
        return {c.name: self._cell(row.get(c.name), c, hidden) for c in event.columns}

    def _cell(self, value: Any, column: Column, hidden: frozenset[str]) -> Any:
        if column.name in hidden:
            return self.given["unavailable.value.placeholder"]
        if value is None:
            return column.default if self.given["replace.null.with.default"] else None
        return self._form(column).shown(value)

    def _source(self, event: Event) -> dict[str, Any]:
        """`AbstractSourceInfoStructMaker`, then the connector's own."""
        at = micros(event.at + self.connector.clock(event.source))
        # Of a streamed event `snapshot` is not set: the converter writes its default, `false`, or null.
        is_set = event.snapshot != "false" or self.given["replace.null.with.default"]
        common = {"version": "3.6.3.Final", "connector": self.connector.name, "name": "p", "ts_ms": at // 1000,
                  "snapshot": event.snapshot if is_set else None, "db": "d", "sequence": None,
                  "ts_us": at, "ts_ns": at * 1000}  # fmt: skip
        return {**common, **event.source}

    def _envelope(self, event: Event) -> dict[str, Any]:
        name, number = event.order
        counted = {"id": name, "total_order": number, "data_collection_order": number}
        at = micros(event.at) + 7000
        return {"before": self._row(event.before, event), "after": self._row(event.after, event, event.unlogged),
                "source": self._source(event),
                "transaction": counted if name and self.given["provide.transaction.metadata"] else None,
                "op": event.op, "ts_ms": at // 1000, "ts_us": at, "ts_ns": at * 1000}  # fmt: skip

    def _flat(self, event: Event) -> dict[str, Any]:
        """event-flattening.adoc: the row, with `add.fields` and, under `rewrite`, `__deleted`.

        The field `__source_snapshot` has no default, so that it is null in each streamed change.
        """
        row = self._row(event.after if event.op != "d" else event.before, event, event.unlogged) or {}
        source = {**self._source(event), "snapshot": None if event.snapshot == "false" else event.snapshot}
        added = {
            "__op": event.op,
            **{f"__source_{name}": source.get(name) for name in added_fields(type(self.connector))},
        }
        deleted = {"__deleted": str(event.op == "d").lower()} if self.given["unwrap"] == "rewrite" else {}
        return {**row, **deleted, **added}

    def _value(self, event: Event) -> dict[str, Any]:
        flat = bool(self.given["unwrap"])
        body = self._flat(event) if flat else self._envelope(event)
        if not self.given["schemas.enable"]:
            return body
        columns = [self._field(column) for column in event.columns]
        block = self._source(event)
        own = self.connector.source_fields({n: v for n, v in block.items() if n not in _SOURCE_NAMES})
        if flat:
            known = {each["field"]: each for each in (*_SOURCE, *own)}
            added = [_flattened(known[name]) for name in added_fields(type(self.connector))]
            texts = ("__deleted", "__op") if self.given["unwrap"] == "rewrite" else ("__op",)
            fields = [*columns, *(_simple(name, "string") for name in texts), *added]
            return {"schema": struct(f"p.s.{self.history.table}.Value", fields), "payload": body}
        row = struct(f"p.s.{self.history.table}.Value", columns)
        sides = [{**row, "optional": True, "field": side} for side in ("before", "after")]
        source = struct(f"io.debezium.connector.{self.connector.name}.Source", [*_SOURCE, *own])
        fields = [*sides, {**source, "version": 1, "field": "source"}, _TRANSACTION, *_TAIL]
        return {"schema": {**struct(f"p.s.{self.history.table}.Envelope", fields), "version": 2}, "payload": body}

    def _field(self, column: Column) -> dict[str, Any]:
        schema = self._form(column).schema
        literal = {name: schema[name] for name in ("type", "fields") if name in schema}
        default = {} if column.default is None else {"default": column.default}
        optional = {"optional": column.name not in self.history.keys}
        return {
            **literal,
            **optional,
            **{n: v for n, v in schema.items() if n not in literal},
            **default,
            "field": column.name,
        }

    # ---- files

    def _landed(self, events: Sequence[Event]) -> Arrival:
        """Files of these events; a topic's partition is chosen by the key of a record."""
        parts: list[list[Event]] = [[] for _ in self.offsets]
        for event in events:
            parts[self._partition(event)].append(event)
        files = [file for number, part in enumerate(parts) for file in self._files(number, part)]
        return Arrival(tuple(files))

    def _partition(self, event: Event) -> int:
        return 0 if event.key is None else zlib.crc32(repr(event.key).encode()) % len(self.offsets)

    def _files(self, partition: int, events: Sequence[Event]) -> Iterator[File]:
        size = 3 if self.given["flush.size"] == "few" else max(len(events), 1)
        for first in range(0, len(events), size):
            start, lines = self.offsets[partition], []
            for event in events[first : first + size]:
                for record in self._records(event):
                    lines.append(self._line(event, record, self.offsets[partition]))
                    self.offsets[partition] += 1
            kept = [line for line in lines if line is not None]
            if kept:
                yield File(self._name(partition, start), "".join(f"{line}\n" for line in kept).encode())

    def _records(self, event: Event) -> Iterator[dict[str, Any] | None]:
        """The event, and a tombstone behind a delete."""
        if event.op == "d" and self.given["unwrap"] == "drop":
            return
        yield self._value(event)
        if event.op == "d" and self.given["tombstones.on.delete"] and not self.given["unwrap"]:
            yield None

    def _line(self, event: Event, record: dict[str, Any] | None, offset: int) -> str | None:
        if self.given["sink"] == "aiven with keys":
            key = None if event.key is None else self._keyed(event)
            return written({"key": key, "value": record, "offset": offset})
        # Confluent's behavior.on.null.values=ignore leaves tombstones out; Aiven's writes null.
        return None if record is None and self.given["sink"] == "confluent" else written(record)

    def _keyed(self, event: Event) -> dict[str, Any]:
        columns = [column for column in event.columns if column.name in self.history.keys]
        payload = {c.name: self._form(c).shown((event.key or {})[c.name]) for c in columns}
        if not self.given["schemas.enable"]:
            return payload
        return {
            "schema": struct(f"p.s.{self.history.table}.Key", [self._field(c) for c in columns]),
            "payload": payload,
        }

    def _name(self, partition: int, offset: int) -> str:
        if self.given["sink"] == "confluent":
            return f"partition={partition}/{self.history.table}+{partition}+{offset:010d}.json"
        return f"{self.history.table}-{partition}-{offset}.jsonl"


def added_fields(connector: type[Connector]) -> tuple[str, ...]:
    """Fields of the block `source` that `add.fields` names."""
    return ("connector", "ts_ms", "snapshot", "db", "table", *connector.flat)


def struct(name: str, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": False, "name": name}


def guessed(name: str, value: Any) -> dict[str, Any]:
    """The schema of a field that Debezium adds: a text or a whole number."""
    kind = "int64" if isinstance(value, int) else "string"
    return {"type": kind, "optional": True, "field": name}


def _simple(name: str, literal: str, *, optional: bool = True) -> dict[str, Any]:
    return {"type": literal, "optional": optional, "field": name}


def _flattened(source: Mapping[str, Any]) -> dict[str, Any]:
    """A field of the block `source` beside the columns: optional, without its default."""
    kept = {name: value for name, value in source.items() if name != "default"}
    return {**kept, "optional": True, "field": f"__source_{source['field']}"}


_MARKS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_SOURCE = (
    *(_simple(name, "string", optional=False) for name in ("version", "connector", "name")),
    _simple("ts_ms", "int64", optional=False),
    {"type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1,
     "parameters": {"allowed": _MARKS}, "default": "false", "field": "snapshot"},
    _simple("db", "string", optional=False), _simple("sequence", "string"),
    _simple("ts_us", "int64"), _simple("ts_ns", "int64"),
)  # fmt: skip
"""Fields of the block `source` of every connector."""
_SOURCE_NAMES = frozenset(each["field"] for each in _SOURCE)
_TAIL = (_simple("op", "string", optional=False), *(_simple(f"ts_{unit}", "int64") for unit in ("ms", "us", "ns")))
_TRANSACTION: Mapping[str, Any] = {
    "type": "struct",
    "fields": [_simple("id", "string", optional=False), _simple("total_order", "int64", optional=False),
               _simple("data_collection_order", "int64", optional=False)],
    "optional": True, "name": "event.block", "version": 1, "field": "transaction",
}  # fmt: skip


def write(make: type[Connector], history: History, given: Mapping[str, Any]) -> Delivery:
    """The files of a connector, its topic and a sink."""
    return Task(make(history, given), history, given).delivery()
