"""Rows of the errors table: bad rows with their original as JSON, and their way back into raw rows for a replay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.sql_types import DecimalType, ScalarType, SqlType, parse_type, unsupported_part
from spark_jobs.plan.selection import withholds
from spark_jobs.rules.arrays import is_text
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.delivery import STRING, DeliveredColumns
from spark_jobs.rules.errors_table import BYTES, NANOS, ROW_BITS, record_ddl
from spark_jobs.rules.read import RawGroup
from spark_jobs.rules.value_text import json_writer, read_json, rows_json

_TEXT = json_writer(STRING)
_BINARY = ScalarType("binary")
_NANOS = DecimalType(38, 0)


@dataclass(frozen=True)
class Record:
    """A row as it was delivered, masked, without what the row's selection leaves out: JSON, and the DDL to read it."""

    json: str
    schema: str


def records(columns: DeliveredColumns, bad: Sequence[int]) -> tuple[Record, ...]:
    """The records of rows by their numbers."""
    found: dict[int, Record] = {}
    for unread, rows in _by_unread(columns, bad).items():
        found |= dict(zip(rows, _alike(columns, rows, unread), strict=True))
    return tuple(found[row] for row in bad)


def _by_unread(columns: DeliveredColumns, bad: Sequence[int]) -> dict[frozenset[str], list[int]]:
    """Rows by the columns in which they have text that is not UTF-8."""
    hidden = {*columns.how.masks, *columns.how.withheld}
    unread = {n: v for n, v in columns.group.invalid.items() if n not in hidden}
    parts: dict[frozenset[str], list[int]] = {}
    for row in bad:
        parts.setdefault(frozenset(n for n, v in unread.items() if v[row].is_valid), []).append(row)
    return parts


def _alike(columns: DeliveredColumns, rows: Sequence[int], unread: frozenset[str]) -> list[Record]:
    group, how = columns.group, columns.how
    at = pa.array(rows, pa.int64())
    kept = [(name, kind) for name, kind in how.types.items() if name not in how.withheld]
    shown = [(name, *_shown(columns, name, kind, at, unread)) for name, kind in kept]
    ddl = record_ddl(how.raw, how.masks, group.past, unread, how.withheld)
    texts = rows_json(shown, nulls=True)
    if group.malformed is not None:
        lines = group.malformed.take(at).to_pylist()
        texts = [text if line is None else _malformed(columns, text, line, [name for name, _ in kept])
                 for text, line in zip(texts, lines, strict=True)]  # fmt: skip
    return [Record(text, ddl) for text in texts]


def _malformed(columns: DeliveredColumns, text: str, line: str, names: Sequence[str]) -> str:
    """The record of a malformed row: its values, of unknown columns, may be some that must not be stored."""
    if withholds(columns.how.dialect.spec):
        return rows_json([(name, pa.nulls(1, pa.string()), STRING) for name in names], nulls=True)[0]
    return f'{{"line":{_TEXT(line)}}}' if columns.group.translated else text


def _shown(
    columns: DeliveredColumns, name: str, kind: SqlType, at: pa.Array, unread: frozenset[str]
) -> tuple[pa.Array, SqlType]:
    """Values of a column as the record shows them; text that is not UTF-8 as its bytes."""
    group, method = columns.group, columns.how.masks.get(name)
    if method == "null" and not group.already_masked:
        return pa.nulls(len(at), arrow_type(STRING)), STRING
    if method is not None and not group.already_masked:
        return columns.hashed(name, at), STRING
    if name in unread:
        values = group.invalid[name].take(at)
        return (values.cast(pa.binary()) if is_text(values.type) else pa.nulls(len(at), pa.binary())), _BINARY
    if name in group.past:
        return _whole_nanos(group.columns[name].take(at), group.past[name].take(at)), _NANOS
    return group.columns[name].take(at), STRING if unsupported_part(kind) else kind


def _whole_nanos(times: pa.Array, past: pa.Array) -> pa.Array:
    """Nanoseconds since 1970, more than 64 bits hold before 1677 and after 2262."""
    pairs = zip(times.cast(pa.int64()).to_pylist(), past.to_pylist(), strict=True)
    return pa.array(
        [None if micros is None else micros * 1000 + (rest or 0) for micros, rest in pairs], arrow_type(_NANOS)
    )


def _micros_and_past(nanos: Sequence[int | Decimal | None], kind: SqlType) -> tuple[pa.Array, pa.Array]:
    """Times of a type, and the nanoseconds past their microsecond."""
    whole = [None if number is None else divmod(int(number), 1000) for number in nanos]
    micros = pa.array([None if pair is None else pair[0] for pair in whole], pa.int64())
    return micros.cast(arrow_type(kind)), pa.array([None if pair is None else pair[1] for pair in whole], pa.int64())


@dataclass(frozen=True, kw_only=True)
class ReplayGroup:
    """Unresolved rows of one record schema (DDL) and kind, as raw rows; columns by name and SQL type."""

    raw: RawGroup
    kind: str
    schema: str
    columns: tuple[tuple[str, str], ...]


def replayed(rows: Sequence[Mapping[str, Any]], ordinals: Mapping[str, int]) -> list[ReplayGroup]:
    """Rows of the errors table with a record, as raw rows.

    Args:
        rows: with `record`, `record_schema`, `code`, `kind`, `source_file`, `position`, `generation`.
        ordinals: source file to its place in the batch.
    """
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["kind"], row["record_schema"]), []).append(row)
    return [_replayed(kind, ddl, found[kind, ddl], ordinals) for kind, ddl in sorted(found)]


def _replayed(kind: str, ddl: str, rows: Sequence[Mapping[str, Any]], ordinals: Mapping[str, int]) -> ReplayGroup:
    fields = record_columns(ddl)
    texts = [json.loads(r["record"], parse_float=Decimal) for r in rows]
    columns, invalid, past = {}, {}, {}
    for column in fields:
        if column.is_nanos:
            found = _micros_and_past([t.get(column.name) for t in texts], parse_type(column.kind))
            columns[column.name], past[column.name] = found
            continue
        kept = parse_type(column.stored)
        values = pa.array([read_json(t.get(column.name), kept) for t in texts], arrow_type(kept))
        if column.is_bytes:
            invalid[column.name] = values
            values = pa.nulls(len(rows), arrow_type(parse_type(column.kind)))
        columns[column.name] = values
    lines = [r["record"] if r["code"] == "ROW_MALFORMED" else None for r in rows]
    raw = RawGroup(
        columns=columns,
        rows=len(rows),
        source=pa.array([r["source_file"] for r in rows], pa.string()),
        position=pa.array([(ordinals[r["source_file"]] << ROW_BITS) + r["position"] for r in rows], pa.int64()),
        generation=pa.array([r["generation"] for r in rows], pa.int32()),
        malformed=pa.array(lines, pa.string()) if any(lines) else None,
        past=past,
        already_masked=True,
        invalid=invalid,
    )
    return ReplayGroup(raw=raw, kind=kind, schema=ddl, columns=landed_columns(ddl))


def landed_columns(ddl: str) -> tuple[tuple[str, str], ...]:
    """Name and SQL type of the columns of a record, as its file had them."""
    return tuple((field.name, field.kind) for field in record_columns(ddl))


@dataclass(frozen=True, kw_only=True)
class RecordColumn:
    """A column of a record.

    Attributes:
        kind: its SQL type in the file; `stored`: the one in the record.
        is_nanos: times, stored as whole nanoseconds.
        is_bytes: text that is not UTF-8, stored as its bytes.
    """

    name: str
    kind: str
    stored: str
    is_nanos: bool = False
    is_bytes: bool = False


def record_columns(ddl: str) -> list[RecordColumn]:
    """The columns that a record's DDL reports."""
    found = []
    for name, rest in split_ddl(ddl):
        stored, _, comment = rest.partition(" COMMENT '")
        comment = comment.rstrip("'")
        nanos, as_bytes = comment.startswith(NANOS), comment.startswith(BYTES)
        kind = comment.removeprefix(NANOS).removeprefix(BYTES) if nanos or as_bytes else stored
        found.append(RecordColumn(name=name, kind=kind, stored=stored, is_nanos=nanos, is_bytes=as_bytes))
    return found


def split_ddl(ddl: str) -> list[tuple[str, str]]:
    """Name and all that follows it, at commas outside brackets, quotes and backticks."""
    parts, depth, inside, start = [], 0, "", 0
    for at, char in enumerate(ddl):
        if inside:
            inside = "" if char == inside else inside
        elif char in "`'":
            inside = char
        elif char == "," and depth == 0:
            parts.append(ddl[start:at].strip())
            start = at + 1
        else:
            depth += (char in "<(") - (char in ">)")
    parts.append(ddl[start:].strip())
    found = []
    for part in filter(None, parts):
        end = re.match(r"`((?:[^`]|``)+)` ", part)
        if end is not None:  # `record_ddl` quotes every name
            found.append((end[1].replace("``", "`"), part[end.end() :]))
    return found
