"""What a job that people write by hand reads of change files: the last change of each key, and its columns.

It does what the guides of the tools show: rows of an `Op` column, or `before` and `after` of an event; the newest by
the first column that orders changes; nothing else.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conformance.delivery import Arrival, Delivery, File
from tests.conformance.history import PRECISION, SCALE, Kind

TYPES: Mapping[Kind, pa.DataType] = {
    "int4": pa.int32(), "int8": pa.int64(), "decimal": pa.decimal128(PRECISION, SCALE), "float8": pa.float64(),
    "text": pa.string(), "bool": pa.bool_(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"),
    "date": pa.date32(), "time": pa.string(), "longtime": pa.string(), "bytes": pa.binary(),
    "numeric": pa.string(), "timestamp3": pa.timestamp("us"), "time3": pa.string(),
}  # fmt: skip
_UNITS = {"connect": timedelta(milliseconds=1), "nanoseconds": timedelta(0)}
"""Of times in events; 0: nanoseconds, which a timedelta can't be. Microseconds in other modes."""
_ORDERS = ("AR_H_CHANGE_SEQ", "dms_timestamp", "committed")


@dataclass(frozen=True)
class Read:
    """Attributes:
    deleted: whether the row is gone; `order`: what the newest change is found by.
    """

    deleted: bool
    order: tuple[Any, ...]
    row: Mapping[str, Any]


def newest(delivery: Delivery, arrival: Arrival) -> list[Read]:
    """The last change of each key in these files."""
    found: dict[tuple[Any, ...], Read] = {}
    for read in every(delivery, arrival):
        key = tuple(read.row[name] for name in delivery.keys)
        if key not in found or found[key].order <= read.order:
            found[key] = read
    return list(found.values())


def every(delivery: Delivery, arrival: Arrival) -> Iterator[Read]:
    """All changes in these files: full loads first, then files by name."""
    for file in sorted(arrival.files, key=lambda file: (not file.path.startswith("LOAD"), file.path)):
        yield from _rows(delivery, arrival, file)


def text_of(read: Read) -> str:
    """Its order as one text, for programs that order changes by one column."""
    return "".join(f"{part:020d}" if isinstance(part, int) else part for part in read.order)


def table_of(delivery: Delivery, reads: list[Read]) -> pa.Table:
    """Columns of the source's table and `_deleted`."""
    columns = {c.name: pa.array([r.row.get(c.name) for r in reads], TYPES[c.kind]) for c in delivery.columns}
    return pa.table({**columns, "_deleted": pa.array([read.deleted for read in reads], pa.bool_())})


def _rows(delivery: Delivery, arrival: Arrival, file: File) -> Iterator[Read]:
    if file.path.endswith("_SUCCESS"):
        return
    if delivery.writer.startswith("debezium"):
        yield from _events(delivery, file)
        return
    kinds = {column.name: column.kind for column in delivery.columns}
    for row in _of_lines(delivery.settings, arrival, file):
        order = next((str(row[name]) for name in _ORDERS if row.get(name) is not None), "")
        values = {name: _typed(kinds[name], value) for name, value in row.items() if name in kinds}
        yield Read(row.get("Op") == "D", (order,), values)


def _of_lines(settings: Mapping[str, Any], arrival: Arrival, file: File) -> Iterator[dict[str, Any]]:
    if settings.get("DataFormat", settings.get("format")) == "parquet":
        yield from pq.read_table(io.BytesIO(file.data)).to_pylist()
        return
    text = (gzip.decompress(file.data) if file.path.endswith(".gz") else file.data).decode()
    form = settings if "CsvDelimiter" in settings else _named_by_dms(settings)
    quoting = csv.QUOTE_MINIMAL if form["Rfc4180"] else csv.QUOTE_NONE
    lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=form["CsvDelimiter"], quoting=quoting))
    names = lines.pop(0) if form["AddColumnName"] and lines else list(arrival.in_files)
    for line in lines:
        own = ["Op", *names] if len(line) == len(names) + 1 else names
        yield {n: None if v == form["CsvNullValue"] else v for n, v in zip(own, line, strict=True)}


def _named_by_dms(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an export by the names that DMS has for them."""
    return {"CsvDelimiter": settings["DELIMITER"], "AddColumnName": settings["HEADER"],
            "CsvNullValue": settings["NULL"], "Rfc4180": True}  # fmt: skip


def _events(delivery: Delivery, file: File) -> Iterator[Read]:
    kinds = {column.name: column.kind for column in delivery.columns}
    for line in file.data.decode().splitlines():
        body = json.loads(line)
        body = body["value"] if body and "offset" in body else body
        body = body["payload"] if body and "payload" in body else body
        if body is None or body.get("op") == "t":
            continue
        flat = "op" not in body
        row = body if flat else body["after"] or body["before"]
        source = {n.removeprefix("__source_"): v for n, v in body.items()} if flat else body["source"]
        deleted = body.get("__deleted") == "true" or body.get("op", body.get("__op")) == "d"
        order = (source["ts_ms"], source.get("lsn") or source.get("pos") or 0)
        unit = _UNITS.get(delivery.settings.get("time.precision.mode", ""), timedelta(microseconds=1))
        yield Read(deleted, order, {n: _of_event(kinds[n], v, unit) for n, v in row.items() if n in kinds})


def _typed(kind: Kind, value: Any) -> Any:
    """A text of CSV as a value."""
    if not isinstance(value, str) or kind == "text":
        return value
    if kind == "bool":
        return value in ("true", "t")
    parsed = {"decimal": Decimal, "float8": float, "date": date.fromisoformat, "timestamp": datetime.fromisoformat}
    return parsed.get(kind, int)(value)


def _of_event(kind: Kind, value: Any, unit: timedelta) -> Any:
    """A value of Connect, by the kind of its column and the way it looks. Times are whole numbers of the unit."""
    if value is None or kind in ("text", "int4", "int8", "float8", "bool"):
        return value
    if kind in ("bytes", "decimal"):
        return base64.b64decode(value) if kind == "bytes" else _decimal(value)
    if kind == "numeric":
        return str(_decimal(value["value"], value["scale"]) if isinstance(value, dict) else value)
    if isinstance(value, str):
        return _of_iso(kind, value)
    if kind in ("timestamp3", "time3"):
        unit = unit and timedelta(milliseconds=1)
    if kind == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + (timedelta(microseconds=value // 1000) if not unit else value * unit)
    forms = {"timestamptz": moment, **dict.fromkeys(("timestamp", "timestamp3"), moment.replace(tzinfo=None))}
    return forms.get(kind, f"{moment:%H:%M:%S.%f}")


def _of_iso(kind: Kind, value: str) -> Any:
    if kind == "date":
        return date.fromisoformat(value.removesuffix("Z"))
    return value if kind in ("time", "time3", "longtime") else datetime.fromisoformat(value)


def _decimal(value: str, scale: int = SCALE) -> Decimal:
    try:
        return Decimal(value)
    except ArithmeticError:
        digits = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))
