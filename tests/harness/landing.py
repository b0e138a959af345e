"""Writes landing files from rows: parquet and CSV, plain or gzipped, as DMS would.

The suffix of the name chooses the form: `.parquet`, `.csv`, and both with `.gz` for a gzip stream around the file.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Codec = Literal["snappy", "gzip", "zstd", "none"]


@dataclass(frozen=True, kw_only=True)
class FileForm:
    """How a file is written.

    Attributes:
        codec: compression inside parquet.
        int96: timestamps in parquet as INT96, which Spark, Impala and older AWS DMS write.
        header, delimiter, null: of CSV.
        cut: bytes taken off the end, for files whose writing broke off.
    """

    codec: Codec = "snappy"
    int96: bool = False
    header: bool = False
    delimiter: str = ","
    null: str = "NULL"
    cut: int = 0


PLAIN = FileForm()


def arrow_type(text: str) -> pa.DataType:
    """`int32`, `string`, `timestamp[us]`, `timestamp[us, UTC]`, `decimal(38,10)`, `list<int32>`, `struct<a:int32>`."""
    text = text.strip()
    if match := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", text):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := re.fullmatch(r"decimal256\((\d+),\s*(\d+)\)", text):
        return pa.decimal256(int(match[1]), int(match[2]))
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns),\s*(\S+)\]", text):
        return pa.timestamp(match[1], tz=match[2])
    if match := re.fullmatch(r"list<(.+)>", text):
        return pa.list_(arrow_type(match[1]))
    if match := re.fullmatch(r"struct<(.+)>", text):
        parts = (part.split(":", 1) for part in _split(match[1]))
        return pa.struct([pa.field(name.strip(), arrow_type(kind)) for name, kind in parts])
    return pa.type_for_alias(text)


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "<([") - (char in ">)]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def to_table(rows: Sequence[Mapping[str, Any]], columns: Iterable[str], types: Mapping[str, str]) -> pa.Table:
    """Rows as an Arrow table; a column without a type gets the one its values suggest, text when all are null."""
    arrays, fields = [], []
    for name in columns:
        values = [row.get(name) for row in rows]
        kind = arrow_type(types[name]) if name in types else _suggested(values)
        arrays.append(pa.array([_typed(value, kind) for value in values], kind))
        fields.append(pa.field(name, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _suggested(values: Iterable[Any]) -> pa.DataType:
    found = next((value for value in values if value is not None), "")
    return pa.array([found]).type


def _typed(value: Any, kind: pa.DataType) -> Any:
    """Text of a time, date, decimal, floating-point number or binary as such; everything else as it is."""
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {field.name: _typed(value.get(field.name), field.type) for field in kind}
    if value is not None and pa.types.is_decimal(kind):
        return Decimal(str(value))
    if value is not None and pa.types.is_float16(kind):
        return np.float16(value)  # pyarrow takes Python's floats since a later version than the oldest one supported
    return _of_text(value, kind) if isinstance(value, str) else value


def _of_text(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(text)
    if pa.types.is_time(kind):
        return time_of_day.fromisoformat(text)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_floating(kind):
        return float(text)
    return text.encode() if pa.types.is_binary(kind) else text


def write(folder: Path, name: str, table: pa.Table, form: FileForm = PLAIN) -> Path:
    """Write the table below the folder, subfolders in the name included; the same input gives the same bytes."""
    data = _csv(table, form) if ".csv" in name else _parquet(table, form)
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    return write_bytes(folder, name, data[: len(data) - form.cut])


def write_bytes(folder: Path, name: str, data: bytes) -> Path:
    """The file appears whole, as an object of a CDC service does: jobs that run meanwhile never see a part of it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_bytes(data)
    beside.replace(path)
    return path


def _parquet(table: pa.Table, form: FileForm) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=form.codec, use_deprecated_int96_timestamps=form.int96)
    return sink.getvalue()


def _csv(table: pa.Table, form: FileForm) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter=form.delimiter, lineterminator="\n")
    if form.header:
        writer.writerow(table.column_names)
    for row in table.to_pylist():
        writer.writerow([form.null if value is None else csv_text(value) for value in row.values()])
    return sink.getvalue().encode()


def csv_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def written_before(path: Path) -> None:
    """As a file that was written an hour ago."""
    then = time.time() - 3600
    os.utime(path, (then, then))
