"""Values as text and as JSON, to the letter as Spark writes them: for masks, records, rescued values and samples."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.sql_types import ArrayType, DecimalType, MapType, ScalarType, SqlType, StructType
from spark_jobs.rules.years import python_values

WIDE = Context(prec=80)
"""For decimals of 38 digits; Python's usual context has 28."""
MICROS, MILLIS = "microseconds", "milliseconds"


def as_text(value: Any, kind: SqlType) -> str:
    """A scalar cast to text; not null."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return real_text(value, single=str(kind) == "float")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return _moment_text(value)
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _moment_text(value: datetime) -> str:
    whole = value.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    return f"{whole}.{value.microsecond:06d}".rstrip("0") if value.microsecond else whole


def real_text(value: float, *, single: bool) -> str:
    """As Java writes a float or double: its shortest digits, an exponent below 10^-3 and from 10^7 on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    shortest = str(pa.scalar(value, pa.float32()).cast(pa.string()).as_py()) if single else repr(value)
    sign, digits, scale = Decimal(shortest).as_tuple()
    exponent = cast("int", scale)  # text only of infinite values
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = exponent + len(digits)  # value = 0.text * 10^point
    mark = "-" if sign else ""
    if text == "0":
        return f"{mark}0.0"
    if -3 < point <= 7:
        padded = "0" * max(0, 1 - point) + text.ljust(point, "0")
        whole = padded[: max(1, point)]
        return f"{mark}{whole}.{padded[max(1, point) :] or '0'}"
    return f"{mark}{text[0]}.{text[1:] or '0'}E{point - 1}"


Json = Callable[[Any], str]


def json_writer(kind: SqlType, *, nulls: bool = False, times: str = MICROS) -> Json:
    """Writes a value of a type, not null, as `to_json` does.

    Args:
        nulls: write fields that are null; else leave them out.
        times: precision of times.
    """
    if isinstance(kind, StructType):
        fields = [(f.name, json_writer(f.type, nulls=nulls, times=times)) for f in kind.fields]
        return lambda value: object_json(((n, value.get(n), w) for n, w in fields), nulls=nulls)
    if isinstance(kind, ArrayType):
        item = json_writer(kind.element, nulls=nulls, times=times)
        return lambda value: "[" + ",".join("null" if v is None else item(v) for v in value) + "]"
    if isinstance(kind, MapType):
        inner, key = json_writer(kind.value, nulls=nulls, times=times), kind.key
        return lambda value: (
            "{" + ",".join(f"{_quoted(as_text(k, key))}:{'null' if v is None else inner(v)}" for k, v in value) + "}"
        )
    return _scalar_writer(kind, times)


def object_json(fields: Iterable[tuple[str, Any, Json]], *, nulls: bool) -> str:
    """An object of (name, value, writer)."""
    parts = [
        f"{_quoted(name)}:{'null' if value is None else write(value)}"
        for name, value, write in fields
        if nulls or value is not None
    ]
    return "{" + ",".join(parts) + "}"


def _scalar_writer(kind: SqlType, times: str) -> Json:
    if isinstance(kind, DecimalType):
        return str
    name = kind.name if isinstance(kind, ScalarType) else ""
    writers: dict[str, Json] = {
        "float": lambda value: _real_json(real_text(value, single=True)),
        "double": lambda value: _real_json(real_text(value, single=False)),
        "timestamp": lambda value: _quoted(_iso(value, times) + "Z"),
        "timestamp_ntz": lambda value: _quoted(_iso(value, times)),
        "binary": lambda value: _quoted(base64.b64encode(value).decode()),
        "boolean": lambda value: str(value).lower(),
        "string": _quoted,
        "date": lambda value: _quoted(_beyond(value, "D") if isinstance(value, int) else str(value)),
    }
    return writers.get(name, str)


def _real_json(text: str) -> str:
    return _quoted(text) if text[-1] in "Ny" else text


def _iso(value: datetime | int, times: str) -> str:
    if isinstance(value, int):
        return _beyond(value, "us")
    naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if times == MILLIS:
        return naive.isoformat(timespec="milliseconds" if naive.microsecond // 1000 else "seconds")
    return naive.isoformat(timespec="microseconds")


def utc_text(moment: datetime) -> str:
    """ISO 8601 with microseconds and `Z` of a time in UTC, with or without a zone."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def read_json(value: Any, kind: SqlType) -> Any:
    """A parsed JSON value (numbers with a point as Decimal) back as a value of the type, for Arrow to take."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {f.name: read_json(value.get(f.name), f.type) for f in kind.fields}
    if isinstance(kind, ArrayType):
        return [read_json(v, kind.element) for v in value]
    if isinstance(kind, MapType):
        return [(_key(k, kind.key), read_json(v, kind.value)) for k, v in value.items()]
    return _read_scalar(value, kind)


def _read_scalar(value: Any, kind: SqlType) -> Any:
    if isinstance(kind, DecimalType):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=WIDE)
    readers: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "double": float,
        "timestamp": lambda text: _read_time(text, datetime.fromisoformat, "us"),
        "timestamp_ntz": lambda text: _read_time(text, datetime.fromisoformat, "us"),
        "date": lambda text: _read_time(text, date.fromisoformat, "D"),
        "binary": base64.b64decode,
    }
    read = readers.get(str(kind))
    return value if read is None else read(value)


def _beyond(number: int, unit: Literal["D", "us"]) -> str:
    return str(np.datetime64(number, unit))


def _read_time(text: str, read: Callable[[str], Any], unit: Literal["D", "us"]) -> Any:
    """Of a year outside 1 to 9999 as the number that Arrow takes for it."""
    try:
        return read(text)
    except ValueError:
        return int(np.datetime64(text.removesuffix("Z"), unit).astype(np.int64))


def _key(text: str, kind: SqlType) -> Any:
    return text if str(kind) == "string" else read_json(json.loads(text, parse_float=Decimal), kind)


def rows_json(columns: Sequence[tuple[str, pa.Array, SqlType]], *, nulls: bool) -> list[str]:
    """A JSON object for each row."""
    parts = [(name, python_values(values), json_writer(kind, nulls=nulls)) for name, values, kind in columns]
    count = len(parts[0][1]) if parts else 0
    return [object_json(((n, values[i], write) for n, values, write in parts), nulls=nulls) for i in range(count)]
