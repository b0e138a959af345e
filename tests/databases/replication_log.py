"""Changes in PostgreSQL's logical replication log (`pgoutput`, protocol version 1) as rows of change files. Pure.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.sql_types import MAX_PRECISION

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_NUMERIC = 1700
_TYPES: Mapping[int, pa.DataType] = {
    16: pa.bool_(), 17: pa.binary(), 20: pa.int64(), 21: pa.int16(), 23: pa.int32(), 700: pa.float32(),
    701: pa.float64(), 1082: pa.date32(), 1114: pa.timestamp("us"), 1184: pa.timestamp("us", tz="UTC"),
}  # fmt: skip
"""By the number of a type in `pg_type`; others are text. As `actions.source_rows.arrow_type` has them."""


@dataclass(frozen=True)
class LoggedColumn:
    """A column as the log describes it; `is_key`: part of the replica identity."""

    name: str
    type: pa.DataType
    is_key: bool


@dataclass(frozen=True)
class LoggedTable:
    """A table as the log describes it from some place on."""

    schema: str
    name: str
    columns: tuple[LoggedColumn, ...]

    @property
    def title(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class LoggedChange:
    """A change of one row.

    Attributes:
        op: `I`, `U`, `D`, or `T` for a truncate, whose row is empty.
        row: texts by column; a column that is absent was not carried.
        sequence: 35 digits: the place of its transaction's commit in the log, and its number in the transaction.
    """

    table: LoggedTable
    op: str
    row: Mapping[str, str | None]
    sequence: str
    committed: datetime


class _Message:
    """Reads a message from its second byte on."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 1

    def number(self, size: int) -> int:
        found = int.from_bytes(self._data[self._at : self._at + size], "big", signed=size == 8)
        self._at += size
        return found

    def text(self) -> str:
        end = self._data.index(0, self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found

    def letter(self) -> str:
        self._at += 1
        return chr(self._data[self._at - 1])

    def row(self) -> list[Any]:
        """Values of a row: text, null, or `...` for one that was not changed and is not carried."""
        found: list[Any] = []
        for _ in range(self.number(2)):
            kind = self.letter()
            if kind == "t":
                size = self.number(4)
                found.append(self._data[self._at : self._at + size].decode())
                self._at += size
            else:
                found.append(None if kind == "n" else ...)
        return found


@dataclass
class ReplicationLog:
    """Reads messages in order; keeps the tables that they have described."""

    _tables: dict[int, LoggedTable] = field(default_factory=dict)
    _place: int = 0
    _committed: datetime = _EPOCH
    _count: int = 0

    def read(self, messages: Iterable[bytes]) -> Iterator[LoggedChange]:
        for data in messages:
            message, kind = _Message(data), chr(data[0])
            if kind == "B":
                self._place, micros = message.number(8), message.number(8)
                self._committed, self._count = _EPOCH + timedelta(microseconds=micros), 0
            elif kind == "R":
                number, table = _relation(message)
                self._tables[number] = table
            elif kind in "IUD":
                yield from self._change(kind, self._tables[message.number(4)], message)
            elif kind == "T":
                count, _ = message.number(4), message.number(1)
                for _ in range(count):
                    yield self._next(self._tables[message.number(4)], "T", {})

    def _change(self, kind: str, table: LoggedTable, message: _Message) -> Iterator[LoggedChange]:
        mark, before = message.letter(), None
        if mark in "KO":
            before = message.row()
            mark = message.letter() if kind == "U" else ""
        if kind == "D":
            yield self._next(table, "D", _named(table, before or [], keys_only=True))
            return
        row = message.row()
        if before is not None and mark == "N":
            row = [old if new is ... else new for new, old in zip(row, before, strict=True)]
            old_key, new_key = (_named(table, values, keys_only=True) for values in (before, row))
            if kind == "U" and old_key != new_key:
                yield self._next(table, "D", old_key)
        yield self._next(table, kind, _named(table, row))

    def _next(self, table: LoggedTable, op: str, row: Mapping[str, str | None]) -> LoggedChange:
        self._count += 1
        return LoggedChange(table, op, row, f"{self._place:020d}{self._count:015d}", self._committed)


def _named(table: LoggedTable, row: list[Any], *, keys_only: bool = False) -> dict[str, str | None]:
    pairs = zip(table.columns, row, strict=True) if row else ()
    return {column.name: value for column, value in pairs if value is not ... and (column.is_key or not keys_only)}


def _relation(message: _Message) -> tuple[int, LoggedTable]:
    number, schema, name = message.number(4), message.text(), message.text()
    message.letter()  # the replica identity
    columns = []
    for _ in range(message.number(2)):
        flags, column = message.number(1), message.text()
        kind, modifier = message.number(4), message.number(4)
        columns.append(LoggedColumn(column, _type_of(kind, modifier), bool(flags & 1)))
    return number, LoggedTable(schema or "pg_catalog", name, tuple(columns))


def _type_of(kind: int, modifier: int) -> pa.DataType:
    if kind != _NUMERIC:
        return _TYPES.get(kind, pa.string())
    if modifier in (-1, 0xFFFFFFFF):
        return pa.string()
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    return pa.decimal128(precision, scale) if scale <= precision <= MAX_PRECISION else pa.string()
