"""Values of a source database and of the lake as one text, where their types say the same; pure.

What both sides mean is compared, not how they write it: `1.50` is `1.5`, a moment is its UTC. Where types leave a
choice (blanks at the end of `char(n)`, a time without a zone against one with, a number without a scale) nothing is
chosen: such columns are not compared, and named.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from airflow_gddl.contract.sql_types import DecimalType, SqlType

Text = Callable[[Any], str]
_WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, kw_only=True)
class SourceType:
    """What a column of the source is, as far as it matters here.

    Attributes:
        kind: `whole`, `decimal`, `double`, `single`, `boolean`, `text`, `date`, `naive` and `aware` (times), `binary`;
            else its name in the database.
        scale: digits after the point of a `decimal`; null: the column doesn't say.
    """

    kind: str
    scale: int | None = None


def comparison(source: SourceType, lake: SqlType) -> Text | None:
    """How values of both sides become one text; None when these types don't compare."""
    name = "decimal" if isinstance(lake, DecimalType) else str(lake)
    if source.kind == "whole" and name in _WHOLE:
        return _whole
    if source.kind in ("whole", "decimal") and isinstance(lake, DecimalType):
        scale = 0 if source.kind == "whole" else source.scale
        return _decimal if scale is not None and scale <= lake.scale else None
    if source.kind == "decimal" and source.scale == 0 and name in _WHOLE:
        return _whole
    return _SAME.get((source.kind, name))


def _whole(value: Any) -> str:
    return str(int(value))


def _decimal(value: Any) -> str:
    text = format(Decimal(value), "f")  # all digits, where `normalize` would round to 28 of them
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _double(value: Any) -> str:
    number = float(value)
    if math.isnan(number):
        return "nan"
    return repr(number + 0.0)  # -0.0 equals 0.0


def _single(value: Any) -> str:
    return _double(struct.unpack("f", struct.pack("f", float(value)))[0])


def _moment(value: datetime | str) -> str:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    naive = found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo is not None else found
    return naive.isoformat(timespec="microseconds")


_SAME: dict[tuple[str, str], Text] = {
    ("double", "double"): _double,
    ("single", "float"): _single,
    ("boolean", "boolean"): lambda value: str(bool(value)),
    ("text", "string"): str,
    ("date", "date"): str,
    ("naive", "timestamp_ntz"): _moment,
    ("aware", "timestamp"): _moment,
    ("binary", "binary"): lambda value: bytes(value).hex(),
}


def digest(values: Sequence[Any], how: Sequence[Text]) -> int:
    """64 bits of a row; rows that compare as equal have the same."""
    found = hashlib.blake2b(digest_size=8)
    for value, text in zip(values, how, strict=True):
        if value is None:
            found.update(b"-")
        else:
            data = text(value).encode(errors="surrogatepass")
            found.update(b"%d:" % len(data) + data)
    return int.from_bytes(found.digest())
