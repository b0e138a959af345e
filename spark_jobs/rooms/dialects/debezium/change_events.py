"""JSON files into change events: lines, concatenated objects or an array; in Connect's wrapper, a sink's, or none.

Events of MongoDB hold documents as texts of extended JSON; their fields become columns.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.flat_events import FlatForm
from airflow_gddl.contract.names import landed_name
from spark_jobs.plan.schema_evolution import ColumnDefault
from spark_jobs.rooms.dialects.debezium.connect_values import (
    Values,
    array_of,
    fraction,
    joined,
    json_of,
    kind_for,
    text_of,
)
from spark_jobs.rooms.dialects.debezium.documents import KEY, document_of, id_type, is_of_documents
from spark_jobs.rooms.dialects.debezium.technical import Translated, number_in_transaction, with_technical
from spark_jobs.rooms.dialects.debezium.unavailable import Unavailable, may_lack_values
from spark_jobs.rooms.dialects.debezium.whole_rows import column_of_cells, require_whole
from spark_jobs.rooms.dialects.protocol import TRUNCATE

Json = Any
Schema = Mapping[str, Any]

OPERATIONS = {"c": "I", "r": "I", "u": "U", "d": "D"}
DECODER = json.JSONDecoder(parse_float=fraction)
_ZERO_DECIMAL = "AA=="
_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_WRAPPER, _PAYLOAD = '{"schema":{', ',"payload":'


@dataclass(frozen=True)
class Event:
    """A change.

    Attributes:
        op: `I`, `U`, `D`; another operation as delivered, in upper case; None: no event.
        row: the row after the change; of a delete the known columns of the row before, and the key that the record
            has beside the event; may be empty.
        source: its position in the source's log.
        before: of an update the known columns of the row before; may be empty.
        fields: Connect schemas of the columns, by this record's own schema; empty where it has none.
        number: see `number_in_transaction`.
        is_read: it is a row that a snapshot has read.
    """

    op: str | None
    row: Mapping[str, Json] = field(default_factory=dict)
    source: Mapping[str, Json] = field(default_factory=dict)
    before: Mapping[str, Json] = field(default_factory=dict)
    fields: Mapping[str, Schema] = field(default_factory=dict)
    number: str | None = None
    is_read: bool = False


NO_EVENT = Event(None)
FLAT = FlatForm()


@dataclass(frozen=True)
class Events:
    """The records of a file in order, without tombstones.

    Attributes:
        broken: index in `events` to the original text of an invalid event; `events` has `NO_EVENT` there.
        versions: the `fields` of events, each once, and no empty ones.
        text: all of the file; None: it is none.
    """

    events: Sequence[Event]
    broken: Mapping[int, str]
    versions: Sequence[Mapping[str, Schema]]
    text: str | None = None

    @cached_property
    def malformed(self) -> pa.Array | None:
        """See `Probed.malformed`."""
        if not self.broken:
            return None
        return pa.array([self.broken.get(at) for at in range(len(self.events))], pa.string())


def read_events(data: bytes, keys: Sequence[str] = (), flat: FlatForm = FLAT) -> Events:
    """
    Args:
        keys: key columns of the table, which a delete may have in the key of its record alone.

    Raises:
        ValueError: it ends inside a record, or holds no event though it has records.
        FatalError: flat events lack fields, see `FlatForm.require`.
    """
    # With surrogates for bytes that are not UTF-8. JSON itself can hold one half of a surrogate pair.
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    may_be_cut = _SURROGATE.search(text) is not None or not _in_utf8(text)
    return replace(events_of(_records(text, flat), keys, flat, may_be_cut=may_be_cut), text=text)


def events_of(
    records: Iterable[tuple[str | None, Record]], keys: Sequence[str], flat: FlatForm, *, may_be_cut: bool = False
) -> Events:
    """As `read_events`.

    Args:
        records: original text (None: not at hand) and record.
        may_be_cut: texts may hold what UTF-8 has no form for.
    """
    events: list[Event] = []
    broken: dict[int, str] = {}
    schemas, lives = _Schemas(flat), Lives(events)
    for original, record in records:
        value = record.value
        if value is None and not lives.has(unwrapped(record.key, flat).value):
            continue
        event = None if value is None else _event(record, keys, schemas)
        if event is None or (may_be_cut and not _is_encodable(event)):
            event = None
            shown = {"key": record.key, "value": None} if value is None else value
            written = original if original is not None else json_of(shown)
            broken[len(events)] = written.encode("utf-8", "backslashreplace").decode()
        events.append(event or NO_EVENT)
    if broken and len(broken) == len(events):
        raise ValueError(
            f"none of its {len(events)} records is a change event of Debezium; rows that ExtractNewRecordState has "
            "made of events need its settings add.fields and delete.tombstone.handling.mode=rewrite"
        )
    return with_one_spelling(Events(events, broken, schemas.versions))


class Lives:
    """Which rows of a file's events live: a tombstone of one of them comes without its delete.

    Debezium writes a tombstone behind each delete, also where a filter leaves deletes out.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        """
        Args:
            events: read so far; the list grows.
        """
        self._events = events
        self._seen = 0
        self._names: tuple[str, ...] = ()
        self._newest: dict[str, str | None] = {}

    def has(self, key: Json) -> bool:
        """Whether the newest event with these values, the key of a record, is no delete; false where there is none."""
        if not isinstance(key, Mapping) or not key:
            return False
        names = tuple(key)
        wanted = _values(key, names)
        if self._events and self._events[-1].op == "D" and _values(self._events[-1].row, names) == wanted:
            return False  # as each tombstone of a usual file
        if names != self._names:
            self._names, self._newest, self._seen = names, {}, 0
        for event in self._events[self._seen :]:
            if event.op == TRUNCATE:
                self._newest.clear()
            elif event.op in OPERATIONS.values():
                self._newest[_values(event.row, names)] = event.op
        self._seen = len(self._events)
        return self._newest.get(wanted, "D") != "D"


def _values(row: Mapping[str, Json], names: Sequence[str]) -> str:
    return json.dumps([row.get(name) for name in names], default=text_of)


def with_one_spelling(events: Events) -> Events:
    """Events in which a column whose name changes by case, or by characters that Delta refuses, has its first name.

    Names that no row has together are one column, so that what protects it by one of them holds in each row.
    """
    shapes: dict[tuple[str, ...], None] = {}
    for event in events.events:
        shapes.update(dict.fromkeys((tuple(event.row), tuple(event.before))))
    shapes.update(dict.fromkeys(map(tuple, events.versions)))
    alike: dict[str, dict[str, None]] = {}
    for name in itertools.chain.from_iterable(shapes):
        alike.setdefault(landed_name(name).lower(), {})[name] = None
    spelled = {
        other: next(iter(names)) for names in alike.values()
        if len(names) > 1 and not any(len(names.keys() & set(shape)) > 1 for shape in shapes) for other in names
    }  # fmt: skip
    if not spelled:
        return events

    def renamed(row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {spelled.get(name, name): value for name, value in row.items()}

    versions = {id(fields): renamed(fields) for fields in events.versions}
    found = [
        replace(one, row=renamed(one.row), before=renamed(one.before), fields=versions.get(id(one.fields), one.fields))
        for one in events.events
    ]
    return replace(events, events=found, versions=list(versions.values()))


def _event(record: Record, keys: Sequence[str], schemas: _Schemas) -> Event | None:
    if is_of_documents(record.value) and record.value["op"] in OPERATIONS:
        document = document_of(record.value, unwrapped(record.key, schemas.flat).value)
        return None if document is None else Event(*document, record.value["source"])
    event = event_of(record.value, schemas.fields(record.schema), schemas.flat)
    return event if event is None or event.op != "D" else _with_key(event, record.key, keys, schemas)


def event_of(value: Json, fields: Mapping[str, Schema], flat: FlatForm = FLAT) -> Event | None:
    """Null if it is no event: no `op`, no `source`, or not the `before` or `after` that the operation needs.

    Raises:
        FatalError: see `FlatForm.require`.
    """
    if isinstance(value, Mapping) and flat.is_flat(value):
        value = flat.enveloped(value)
    if not isinstance(value, Mapping) or not isinstance(value.get("op"), str):
        return None
    op, source, before = value["op"], value.get("source"), value.get("before")
    row = before if op == "d" else value.get("after")
    if not isinstance(source, Mapping):
        return None
    if op in OPERATIONS and not isinstance(row, Mapping) and (op != "d" or row is not None):
        return None
    row = row if isinstance(row, Mapping) else {}
    before = before if op == "u" and isinstance(before, Mapping) else {}
    number = number_in_transaction(value.get("transaction"))
    return Event(OPERATIONS.get(op, op.upper()), row, source, before, fields, number, op == "r")


def _with_key(event: Event, key: Json, keys: Sequence[str], schemas: _Schemas) -> Event:
    """A delete with key columns of its record's key, a struct in Connect's wrapper or not, which its row lacks.

    Where the record has another key than the table, and its row says nothing else, key columns are not known.
    """
    bare = unwrapped(key, schemas.flat)
    wanted = {name.lower() for name in keys}
    given = bare.value if isinstance(bare.value, Mapping) else {}
    named = {name.lower() for name in given}
    others = [value for name, value in event.row.items() if name.lower() not in named]
    if given and wanted - named and all(map(_is_filler, others)):
        event = replace(event, row={name: value for name, value in event.row.items() if name.lower() in named})
    parts = {name: value for name, value in given.items() if name.lower() in wanted and event.row.get(name) is None}
    if not parts:
        return event
    described = {"fields": [{**(bare.schema or {}), "field": "before"}]}
    return replace(event, row={**event.row, **parts}, fields=event.fields or schemas.fields(described))


def _is_filler(value: Json) -> bool:
    """Whether Debezium may have written a value for a column that the log did not have: null, or its type's zero.

    PostgreSQL logs of a deleted row the columns of its replica identity alone.
    """
    return value is None or value in (0, "", _ZERO_DECIMAL, "1970-01-01T00:00:00Z", "00:00:00Z")


def _is_encodable(event: Event) -> bool:
    """Whether UTF-8 can hold the names, the operation and nested values; other texts are looked at in their columns."""
    nested = [value for row in (event.row, event.before) for value in row.values() if not isinstance(value, str)]
    return _in_utf8(json.dumps([event.op, *event.row, *event.before, nested], ensure_ascii=False, default=str))


def _in_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Schemas:
    """The distinct schemas of records."""

    def __init__(self, flat: FlatForm) -> None:
        self.flat = flat
        self._known: list[tuple[Schema, Mapping[str, Schema]]] = []

    @property
    def versions(self) -> list[Mapping[str, Schema]]:
        return [fields for _, fields in self._known]

    def fields(self, schema: Schema | None) -> Mapping[str, Schema]:
        """Of the columns; the same object for equal schemas."""
        if schema is None:
            return NO_EVENT.fields
        for known, fields in reversed(self._known):
            if schema is known or schema == known:
                return fields
        self._known.append((schema, row_fields(schema, self.flat)))
        return self._known[-1][1]


@dataclass(frozen=True)
class Record:
    """Value without wrappers (None: a tombstone), its Connect schema (None: none), and the key that a sink adds."""

    value: Json
    schema: Schema | None = None
    key: Json = None


def _records(text: str, flat: FlatForm) -> Iterator[tuple[str | None, Record]]:
    """Original text (None: not at hand) and record."""
    if text.lstrip()[:1] == "[":
        for value in DECODER.decode(text):
            yield None, unwrapped(value, flat)
        return
    wrapper = _Wrapper()
    lines = text.split("\n")
    for number, line in enumerate(lines):
        stripped = line.strip()
        if not stripped:
            continue
        try:
            quick = wrapper.read(stripped)
            records = [(stripped, quick)] if quick is not None else list(_concatenated(stripped, flat))
        except json.JSONDecodeError as error:
            if number == len(lines) - 1:
                raise ValueError(f"the file ends inside a record: {error}") from error
            records = [(stripped, Record(""))]
        except (ValueError, RecursionError):  # a number of too many digits, or nested too deeply to be read
            records = [(stripped, Record(""))]
        yield from records


def _concatenated(line: str, flat: FlatForm) -> Iterator[tuple[str, Record]]:
    """Firehose writes objects without separators: each with its own text."""
    at = 0
    while at < len(line):
        value, end = DECODER.raw_decode(line, at)
        yield line[at:end], unwrapped(value, flat)
        at = _SPACE.match(line, end).end()  # type: ignore[union-attr]  # it matches nothing, too


class _Wrapper:
    """Connect repeats a topic's schema in every line, several times the event's size: it is parsed once."""

    def __init__(self) -> None:
        self._prefix = ""
        self._schema: Schema | None = None

    def read(self, line: str) -> Record | None:
        """Null for a line that is not wrapped, or not so tersely."""
        if not line.startswith(_WRAPPER):
            return None
        if not self._prefix or not line.startswith(self._prefix):
            schema, end = json.JSONDecoder().raw_decode(line, len(_WRAPPER) - 1)
            if not line.startswith(_PAYLOAD, end):
                return None
            self._prefix, self._schema = line[: end + len(_PAYLOAD)], schema
        if not line.endswith("}"):
            raise json.JSONDecodeError("no closing brace", line, len(line))
        return Record(DECODER.decode(line[len(self._prefix) : -1]), self._schema)


def unwrapped(value: Json, flat: FlatForm) -> Record:
    """Unwrap Connect's `schema` and `payload`, and the `key`, `value`, `offset` that sinks add to records."""
    schema, key = None, None
    if isinstance(value, str):  # of a converter that knows only texts
        value = _parsed(value)
    while isinstance(value, Mapping) and "op" not in value and not flat.is_flat(value):
        if "payload" in value:
            schema, value = value.get("schema"), value["payload"]
        elif "value" in value:
            key, value = value.get("key"), value["value"]
        else:
            break
    return Record(value, schema if isinstance(schema, Mapping) else None, key)


def _parsed(text: str) -> Json:
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError:
        return text


def row_fields(schema: Schema, flat: FlatForm) -> dict[str, Schema]:
    """Schemas of the columns: of an envelope those of `after`, or of `before`."""
    parts = named_parts(schema)
    if flat.is_flat(parts):
        return {name: parts[name] for name in flat.columns(parts).row}
    return named_parts(parts.get("after") or parts.get("before") or {})


def named_parts(schema: Schema) -> dict[str, Schema]:
    named = [part for part in schema.get("fields") or () if isinstance(part.get("field"), str)]
    return {part["field"]: part for part in named if _in_utf8(part["field"])}


_ABSENT = object()


def table_of(
    events: Events, options: DebeziumOptions, before_images: str | None = None, keys: Sequence[str] = ()
) -> Translated:
    """A row for each event, and a row of nulls for each invalid record.

    Args:
        keys: see `read_events`; a key is always sent.
        before_images: prefix of the columns of rows before updates; None: these are left out.

    Raises:
        ValueError: see `require_whole` and `with_technical`.
    """
    table = _Table(events, options)
    rows = [event.row for event in events.events]
    require_whole([event.source for event in events.events], column_of_cells(rows))
    data: dict[str, Values] = {}
    kept: dict[str, Sequence[bool]] = {}
    wanted = {name.lower() for name in keys}
    for name in _names(rows, events.versions):
        values = [row.get(name, _ABSENT) for row in rows]
        # Only in an update a missing column is unchanged.
        flags = [value is _ABSENT and event.op == "U" for value, event in zip(values, events.events, strict=True)]
        values, hits = table.sent(values, is_key=name.lower() in wanted)
        if hits:
            flags = [flag or hit for flag, hit in zip(flags, hits, strict=True)]
        if any(flags):
            kept[name] = flags
        data[name] = table.column(name, values)
    images = {} if before_images is None else table.images(before_images)
    made = with_technical([e.op for e in events.events], {**data, **images}, [e.source for e in events.events], kept)
    return replace(
        made, id_types=_id_types(events), numbers=tuple(event.number for event in events.events),
        defaults=defaults_of(events),
    )  # fmt: skip


def defaults_of(events: Events) -> tuple[ColumnDefault, ...]:
    """Defaults that the records' schemas state; of nullable columns with how many rows have them, or null."""
    found = []
    for fields in events.versions:
        rows = [event.row for event in events.events if event.fields is fields and event.op not in (None, "D")]
        for name, part in fields.items():
            if (default := part.get("default")) is not None:
                values = [row[name] for row in rows if name in row] if part.get("optional") else ()
                found.append(default_of(name, default, values))
    return tuple(found)


def default_of(name: str, default: Json, values: Sequence[Json]) -> ColumnDefault:
    """
    Args:
        values: of a nullable column; none of another one.
    """
    text = text_of(default)
    alike = sum(value is not None and text_of(value) == text for value in values)
    return ColumnDefault(name, text, alike, sum(value is None for value in values))


def _id_types(events: Events) -> tuple[str, ...]:
    """Of the keys of documents; none of other rows."""
    ids = (event.row.get(KEY) for event in events.events if event.source.get("connector") == "mongodb")
    return tuple(dict.fromkeys(id_type(value) for value in ids if value is not None))


class _Table:
    """Columns of a file's events."""

    def __init__(self, events: Events, options: DebeziumOptions) -> None:
        self._found: Sequence[Event] = events.events
        self._versions = events.versions
        self._options = options
        self._unavailable = Unavailable(options.placeholder)
        there = events.text is None or self._unavailable.may_be_in(events.text)
        self._forms = self._unavailable.forms if there else []
        self._may_lack = [may_lack_values(event.source, is_read=event.is_read) for event in events.events]

    def sent(self, values: Sequence[Any], *, is_key: bool = False) -> tuple[list[Any], Sequence[bool]]:
        """The values, null where absent or a placeholder, and the mask of placeholders, if there can be any."""
        forms, spelled = self._forms, self._unavailable.is_spelled_by
        nested = any(isinstance(value, (list, dict)) for value in values)
        hits = [may_lack and (value in forms or spelled(value)) for value, may_lack in
                zip(values, self._may_lack, strict=True)] if (forms or nested) and not is_key else ()  # fmt: skip
        values = [None if hit else value for value, hit in zip(values, hits, strict=True)] if hits else values
        return [None if value is _ABSENT else value for value in values], hits

    def images(self, prefix: str) -> dict[str, Values]:
        """The rows before updates, where they are given."""
        rows = [event.before for event in self._found]
        names = _names(rows, self._versions) if any(rows) else ()
        return {f"{prefix}{name}": self.column(name, self.sent([row.get(name) for row in rows])[0]) for name in names}

    def column(self, name: str, values: Sequence[Any]) -> Values:
        """Each value by the schema of its own record: a column's type may change in the middle of a file."""
        given = [version[name] for version in self._versions if name in version]
        if all(part == given[0] for part in given):
            return array_of(values, kind_for(name, {name: given[0]} if given else {}, self._options))
        places: dict[int, list[int]] = {}
        for at, event in enumerate(self._found):
            places.setdefault(id(event.fields), []).append(at)
        parts = []
        for rows in places.values():
            kind = kind_for(name, self._found[rows[0]].fields, self._options)
            parts.append(array_of([values[at] for at in rows], kind))
        return joined(parts, list(places.values()))


def _names(rows: Sequence[Mapping[str, Any]], versions: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """In the order of the schemas, then in order of delivery."""
    names: dict[str, None] = {}
    for version in versions:
        names.update(dict.fromkeys(version))
    for row in rows:
        if not row.keys() <= names.keys():
            names.update(dict.fromkeys(row))
    return tuple(names)
