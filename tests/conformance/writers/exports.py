"""Exports of a whole table: Spark's writer of parquet, and PostgreSQL's `COPY … (FORMAT csv)`.

Sources:
- SPARK: https://spark.apache.org/docs/latest/sql-data-sources-parquet.html, `FileOutputCommitter` of Hadoop
  (`_SUCCESS` when a job has committed), names of parts of `HadoopMapReduceCommitProtocol`; a frame without rows
  leaves one part with its schema.
- COPY: https://www.postgresql.org/docs/current/sql-copy.html, "CSV Format": an unquoted NULL text is null, a value
  that equals it is quoted, quotation marks are doubled, line breaks are kept inside quotes; `HEADER`, `DELIMITER`,
  `FORCE_QUOTE`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conformance.delivery import Arrival, Delivery, File, Uncertain
from tests.conformance.history import PRECISION, SCALE, START, Column, History, Kind, Row

KINDS: tuple[Kind, ...] = ("text", "decimal", "float8", "bool", "timestamp", "date")
SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "format": ("parquet", "csv"),
    "parts": (1, 3),
    "compression": ("snappy", "gzip", "none"),
    "outputTimestampType": ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"),
    "NULL": ("", "NULL", "\\N"),
    "HEADER": (True, False),
    "DELIMITER": (",", "|", "\t"),
    "FORCE_QUOTE": (False, True),
    "complete": ("_SUCCESS", "count"),
}
_CSV_ONLY, _PARQUET_ONLY = ("NULL", "HEADER", "DELIMITER", "FORCE_QUOTE"), ("compression", "outputTimestampType")


def refusal(case: Mapping[str, Any]) -> str:
    """Why settings and events can't be combined, or make no difference together."""
    changed = {name for name, value in case.items() if name in SETTINGS and value != SETTINGS[name][0]}
    for other, names in (("csv", _PARQUET_ONLY), ("parquet", _CSV_ONLY)):
        if case.get("format") == other and changed & set(names):
            return f"no setting of {other}"
    if any(case.get(name) for name in ("unlogged", "failed_over", "incremental", "resumed", "reloaded")):
        return "an export reads no log"
    if case.get("arrival") == "once" and case.get("HEADER") is False and (case.get("added") or case.get("dropped")):
        return "lines of another table's columns, which only time tells"
    return ""


def write(history: History, settings: Mapping[str, Any]) -> Delivery:
    """An export of the table when it is captured first, and after each group of transactions."""
    arrivals = [_export(history.loaded, history.columns, 0, settings)]
    exported: Sequence[Row] = history.loaded
    for number, step in enumerate((step for step in history.steps if step.kind == "flush"), 1):
        arrivals.append(_export(step.rows, step.columns, number, settings))
        exported = step.rows
    right = {history.key(row): _told(row, history.last_columns, settings) for row in exported}
    doubts = tuple(_doubts(history, settings))
    return Delivery("exports", settings, history.keys, history.last_columns, tuple(arrivals), right, uncertain=doubts)


def _doubts(history: History, settings: Mapping[str, Any]) -> Iterator[Uncertain]:
    """The columns of lines without a header are those that the user names, for all exports at once."""
    changed = history.happens["added"] or history.happens["dropped"]
    if settings["format"] == "csv" and not settings["HEADER"] and changed:
        yield Uncertain(None, frozenset({"SNAPSHOT_HELD"}), "lines of another table's columns, which only time tells")


def _told(row: Row, columns: Sequence[Column], settings: Mapping[str, Any]) -> Row:
    """SPARK, spark.sql.parquet.outputTimestampType: TIMESTAMP_MILLIS cuts what is finer."""
    found = {column.name: row[column.name] for column in columns}
    if settings["format"] == "parquet" and settings["outputTimestampType"] == "TIMESTAMP_MILLIS":
        return {name: _millis(value) for name, value in found.items()}
    return found


def _millis(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000) if isinstance(value, datetime) else value


def _export(rows: Sequence[Row], columns: tuple[Column, ...], number: int, settings: Mapping[str, Any]) -> Arrival:
    folder = f"dt={START + timedelta(days=number):%Y-%m-%d}"
    files = [File(f"{folder}/{name}", data) for name, data in _parts(rows, columns, settings)]
    done = [File(f"{folder}/_SUCCESS", b"")] if settings["complete"] == "_SUCCESS" else []
    return Arrival((*files, *done), in_files=tuple(column.name for column in columns))


def _parts(rows: Sequence[Row], columns: Sequence[Column], settings: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """As many parts as are asked for, some of them without rows."""
    count = settings["parts"]
    for part in range(count):
        own = rows[part::count]
        if settings["format"] == "csv":
            yield f"part-{part:05d}.csv", _csv(own, columns, settings)
        else:
            ending = {"snappy": "snappy.parquet", "gzip": "gz.parquet", "none": "parquet"}[settings["compression"]]
            yield f"part-{part:05d}-c0ffee-c000.{ending}", _parquet(own, columns, settings)


def _parquet(rows: Sequence[Row], columns: Sequence[Column], settings: Mapping[str, Any]) -> bytes:
    stamp = settings["outputTimestampType"]
    unit = pa.timestamp("ms" if stamp == "TIMESTAMP_MILLIS" else "us")
    types: Mapping[Kind, pa.DataType] = {
        "int4": pa.int32(), "int8": pa.int64(), "decimal": pa.decimal128(PRECISION, SCALE), "float8": pa.float64(),
        "text": pa.string(), "bool": pa.bool_(), "timestamp": unit, "date": pa.date32(),
    }  # fmt: skip
    seen = [_told(row, columns, settings) for row in rows]
    table = pa.table({c.name: pa.array([row[c.name] for row in seen], types[c.kind]) for c in columns})
    out = io.BytesIO()
    pq.write_table(table, out, compression=settings["compression"], store_schema=False,
                   use_deprecated_int96_timestamps=stamp == "INT96")  # fmt: skip
    return out.getvalue()


def _csv(rows: Sequence[Row], columns: Sequence[Column], settings: Mapping[str, Any]) -> bytes:
    mark = settings["DELIMITER"]
    lines = [mark.join(column.name for column in columns)] if settings["HEADER"] else []
    lines += [mark.join(_field(row[column.name], settings) for column in columns) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def _field(value: Any, settings: Mapping[str, Any]) -> str:
    if value is None:
        return str(settings["NULL"])
    text = ("t" if value else "f") if isinstance(value, bool) else str(value)
    special = ('"', "\n", "\r", settings["DELIMITER"])
    if settings["FORCE_QUOTE"] or text == settings["NULL"] or any(each in text for each in special):
        return '"' + text.replace('"', '""') + '"'
    return text
