"""A history as SQL on a real PostgreSQL, and the records that Debezium's embedded engine makes of it."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from spark_jobs.rooms.sources.capture.engine import Batch, Engine, Record
from spark_jobs.rooms.sources.capture.frames import own_topics
from tests.conformance.history import COLORS, PRECISION, SCALE, Change, History, Interval, Kind, Step
from tests.conformance.writers.debezium import added_fields
from tests.conformance.writers.debezium_postgres import DATABASE, Postgres
from tests.one_task.postgres import execute

SQL: Mapping[Kind, str] = {
    "int4": "integer", "int8": "bigint", "decimal": f"numeric({PRECISION},{SCALE})", "float8": "double precision",
    "text": "text", "bool": "boolean", "timestamp": "timestamp", "timestamptz": "timestamptz", "date": "date",
    "time": "time", "bytes": "bytea", "int2": "smallint", "float4": "real", "numeric": "numeric", "uuid": "uuid",
    "json": "json", "color": "s.color", "interval": "interval", "timestamp3": "timestamp(3)", "time3": "time(3)",
}  # fmt: skip
PREFIX, SLOT = "p", "conformance"
_SIGNALS, _SILENT_SECONDS = "s.signals", 90
_PROPERTIES: Mapping[str, str] = {
    "name": PREFIX, "topic.prefix": PREFIX, "plugin.name": "pgoutput", "slot.name": SLOT, "publication.name": SLOT,
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "publication.autocreate.mode": "disabled", "signal.data.collection": _SIGNALS,
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore", "offset.flush.interval.ms": "0",
    "database.hostname": "localhost", "database.port": "5432", "poll.interval.ms": "20", "errors.max.retries": "0",
}  # fmt: skip
_OF_CONNECTOR = (
    "decimal.handling.mode", "time.precision.mode", "binary.handling.mode", "interval.handling.mode",
    "unavailable.value.placeholder", "tombstones.on.delete", "skipped.operations", "provide.transaction.metadata",
)  # fmt: skip
_OF_CONVERTER = ("schemas.enable", "replace.null.with.default")


def properties_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Debezium's properties for settings of the model."""
    found = {name: _property(given[name]) for name in _OF_CONNECTOR}
    for side in ("key", "value"):
        found |= {f"{side}.converter.{name}": _property(given[name]) for name in _OF_CONVERTER}
    if given["unwrap"]:
        fields = (
            "op",
            *(f"source.{name}" for name in added_fields(Postgres)),
        )
        found |= {
            "transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.delete.tombstone.handling.mode": given["unwrap"],
            "transforms.unwrap.add.fields": ",".join(fields),
            "transforms.unwrap.replace.null.with.default": _property(given["replace.null.with.default"]),
        }  # fmt: skip
    return found


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class Played:
    """A history that is played step by step.

    Attributes:
        expected: how many records are awaited of the first snapshot, and of each step.
        records: what the engine has said of the table so far.
    """

    server: sa.Engine
    history: History
    given: Mapping[str, Any]
    expected: Sequence[int]
    records: list[Record] = field(default_factory=list)
    offsets: dict[str, str] = field(default_factory=dict)
    token: str = ""
    silent: int = 0

    @property
    def table(self) -> str:
        return f"s.{self.history.table}"

    def play(self) -> list[Record]:
        """
        Raises:
            TimeoutError: the engine says less than is expected.
        """
        self._create()
        wanted, steps = self.expected[0], list(zip(self.history.steps, self.expected[1:], strict=True))
        mode = "initial"
        while True:
            # Rows are read in the order of the heap.
            execute(self.server, f"CLUSTER {self.table} USING {self.history.table}_pkey")
            with self._engine(mode) as batches:
                self._read(batches, wanted)
                self._wait_for_stream()
                while steps and steps[0][0].kind != "reload":
                    step, count = steps.pop(0)
                    self._step(step)
                    self._read(batches, count)
                    if step.kind == "incremental" and not count:  # nothing says that it has ended
                        self._read_until_now(batches)
                self._read_until_now(batches)
            if not steps:
                return self.records
            mode, wanted = "always", steps.pop(0)[1]  # another snapshot is one of a new start of the engine

    def _create(self) -> None:
        columns = ", ".join(f"{_name(c.name)} {SQL[c.kind]}" for c in self.history.columns)
        keys = ", ".join(map(_name, self.history.keys))
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        execute(
            self.server, drop, "DROP SCHEMA IF EXISTS s CASCADE", "CREATE SCHEMA s",
            f"CREATE TYPE s.color AS ENUM {COLORS}",
            f"CREATE TABLE {self.table} ({columns}, PRIMARY KEY ({keys}))",
            f"ALTER TABLE {self.table} REPLICA IDENTITY {self.given['REPLICA IDENTITY']}",
            *([f"ALTER TABLE {self.table} ALTER note SET STORAGE EXTERNAL"] if self.given["unlogged"] else []),
            f"CREATE TABLE {_SIGNALS} (id text PRIMARY KEY, type text, data text)",
            f"DROP PUBLICATION IF EXISTS {SLOT}", f"CREATE PUBLICATION {SLOT} FOR TABLE {self.table}, {_SIGNALS}",
        )  # fmt: skip
        self._commit([Change("I", after=row) for row in self.history.loaded])
        execute(self.server, f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")

    @contextmanager
    def _engine(self, mode: str) -> Iterator[Iterator[Batch]]:
        url = self.server.url
        known = {"database.dbname": DATABASE, "database.user": str(url.username), "database.password": ""}
        properties = {
            **_PROPERTIES, **properties_of(self.given), **known, "snapshot.mode": mode,
            "table.include.list": self.table,
        }  # fmt: skip
        socket = f"{url.query['host']}/.s.PGSQL.5432"
        with Engine(properties, self.offsets, self._note_silence, os.environ, socket) as engine:
            yield engine.batches()
            engine.stop()

    def _read(self, batches: Iterator[Batch], count: int) -> None:
        """Read so many records, or more that come with them."""
        wanted = len(self.records) + count
        while len(self.records) < wanted:
            self._take(next(batches))

    def _read_until_now(self, batches: Iterator[Batch]) -> None:
        """Read on, as there may be more than is expected."""
        self.token = uuid.uuid4().hex
        execute(self.server, f"SELECT pg_logical_emit_message(false, '{self.token}', '')")
        while self.token:
            self._take(next(batches))

    def _take(self, batch: Batch) -> None:
        self.silent = 0
        self.records += [record for record in batch.records if record.topic == f"{PREFIX}.s.{self.history.table}"]
        self.offsets |= batch.offsets
        if any(r.topic == own_topics(PREFIX)[0] and self.token.encode() in (r.key or b"") for r in batch.records):
            self.token = ""

    def _wait_for_stream(self) -> None:
        """Snapshots have ended once the engine reads the slot."""
        query = sa.text("SELECT active FROM pg_replication_slots")
        with self.server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while not connection.execute(query).scalar():
                time.sleep(0.05)

    def _note_silence(self) -> None:
        """Called once a second while nothing comes."""
        self.silent += 1
        if self.silent > _SILENT_SECONDS:
            raise TimeoutError(f"the engine is silent after {len(self.records)} records")

    def _step(self, step: Step) -> None:
        if step.kind == "commit":
            self._commit(step.changes)
        elif step.kind == "add_column":
            column = step.columns[-1]
            default = f" DEFAULT '{column.default}'" if column.default is not None else ""
            execute(
                self.server, f"ALTER TABLE {self.table} ADD COLUMN {_name(column.name)} {SQL[column.kind]}{default}"
            )
        elif step.kind == "drop_column":
            left = {column.name for column in step.columns}
            for column in self.history.columns:
                if column.name not in left:
                    execute(self.server, f"ALTER TABLE {self.table} DROP COLUMN {_name(column.name)}")
        elif step.kind == "incremental":
            data = f'{{"data-collections"\\: ["{self.table}"], "type"\\: "incremental"}}'
            execute(self.server, f"INSERT INTO {_SIGNALS} VALUES ('{uuid.uuid4()}', 'execute-snapshot', '{data}')")

    def _commit(self, changes: Sequence[Change]) -> None:
        with self.server.begin() as connection:
            for change in changes:
                self._change(connection, change)

    def _change(self, connection: sa.Connection, change: Change) -> None:
        before, after = change.before or {}, change.after or {}
        where = " AND ".join(f"{_name(name)} = :before_{name}" for name in self.history.keys)
        values = {f"before_{name}": before[name] for name in self.history.keys if before} | dict(after)
        if change.op == "T":
            statement = f"TRUNCATE {self.table}"
        elif change.op == "I":
            names = ", ".join(map(_name, after))
            statement = f"INSERT INTO {self.table} ({names}) VALUES ({', '.join(f':{name}' for name in after)})"
        elif change.op == "D":
            statement = f"DELETE FROM {self.table} WHERE {where}"
        else:
            changed = [name for name in after if after[name] != before.get(name)] or [*self.history.keys]
            sets = ", ".join(f"{_name(name)} = :{name}" for name in changed)
            statement = f"UPDATE {self.table} SET {sets} WHERE {where}"
        values = {name: str(value) if isinstance(value, Interval) else value for name, value in values.items()}
        done = connection.execute(sa.text(statement), values)
        assert change.op == "T" or done.rowcount == 1, statement


def _name(name: str) -> str:
    return f'"{name}"'


_TIME = re.compile(r'("(?:__source_)?ts_(?:ms|us|ns)":)\d+')
_ID = re.compile(r'("(?:__source_)?(txId|lsn)":)(\d+)')
_SEQUENCE = re.compile(r'("(?:__source_)?sequence":"\[)(?:null|\\"(\d+)\\"),\\"(\d+)\\"')
_TRANSACTION = re.compile(r'("transaction":\{"id":")(\d+):(\d+)"')


def without_ids(texts: Sequence[str]) -> list[str]:
    """The records with `T` for each time, and the rank of each place and transaction in place of its number.

    A commit has the number of places before it.
    """
    places = sorted({int(n) for text in texts for n in _places(text)})
    transactions = sorted({int(m[3]) for text in texts for m in _ID.finditer(text) if m[2] == "txId"})
    rank = {"lsn": places.index, "txId": transactions.index}

    def sequence(found: re.Match[str]) -> str:
        commit = "null" if found[2] is None else f"C{sum(place < int(found[2]) for place in places)}"
        return f"{found[1]}{commit},L{places.index(int(found[3]))}"

    def transaction(found: re.Match[str]) -> str:
        return f'{found[1]}{transactions.index(int(found[2]))}:{places.index(int(found[3]))}"'

    masked = []
    for text in texts:
        plain = _TRANSACTION.sub(transaction, _SEQUENCE.sub(sequence, _TIME.sub(r"\1T", text)))
        masked.append(_ID.sub(lambda m: f"{m[1]}{rank[m[2]](int(m[3]))}", plain))
    return masked


def _places(text: str) -> Iterator[str]:
    yield from (found[3] for found in _ID.finditer(text) if found[2] == "lsn")
    yield from (found[3] for found in _SEQUENCE.finditer(text))
    yield from (found[3] for found in _TRANSACTION.finditer(text))
