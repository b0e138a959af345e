"""Values of one column as an Arrow array: of the kind that the metadata or the file states, else as JSON has them."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.debezium import DebeziumOptions
from spark_jobs.dialects.debezium.connect_types import Kind, kind_of, named_kind, text_of
from spark_jobs.dialects.debezium.fractions import Written

_NUMBERS = {32: pa.int32(), 64: pa.int64()}
_NOT_SUCH = (TypeError, ValueError, OverflowError, KeyError, AttributeError, pa.ArrowException)


@dataclass(frozen=True)
class Values:
    """Values of one column.

    Attributes:
        stated: the type that they have by their schema where a misfit is among them, so that all are text; null: that
            of the array.
    """

    array: pa.Array
    stated: pa.DataType | None = None

    @property
    def type(self) -> pa.DataType:
        return self.array.type if self.stated is None else self.stated


def array_of(values: Sequence[Any], kind: Kind | None) -> Values:
    """If a value is not of the kind, all are text; those are converted one by one when rows are decoded."""
    if kind is None:
        return _inferred(values)
    try:
        return Values(pa.array([None if value is None else kind.of(value) for value in values], kind.type))
    except _NOT_SUCH:
        found = text_array([_text(value, kind) for value in values])
        return Values(found, kind.type if is_read_from_text(kind.type) else None)


def is_read_from_text(kind: pa.DataType) -> bool:
    """Whether texts of this module are values of the type by the grammar of texts: no bytes, nothing nested."""
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_string(kind))


def text_array(values: Sequence[str | None]) -> pa.Array:
    """Texts; those with surrogates (`events.read_events`) as bytes that are not UTF-8, which `valid_text` finds."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        raw = pa.array([None if value is None else _bytes(value) for value in values], pa.binary())
        return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def kind_for(name: str, fields: Mapping[str, Mapping[str, Any]], options: DebeziumOptions) -> Kind | None:
    """What a column's values are: by the metadata, by the file; text where `types` says what they are cast to."""
    if (semantic := _named(options.semantic_types, name)) is not None:
        return named_kind(semantic, {})
    if name in fields:
        return kind_of(fields[name])
    return Kind(pa.string(), text_of) if _named(options.types, name) is not None else None


def unavailable_forms(options: DebeziumOptions) -> list[Any]:
    """Forms of the placeholder by the type of its column."""
    text = options.unavailable
    return [text, base64.b64encode(text.encode()).decode(), text.encode(), [text], list(text.encode()), {text: text},
            [(text, text)], f'{{"{text}":"{text}"}}']  # fmt: skip


def mentions_unavailable(text: str, options: DebeziumOptions) -> bool:
    """Whether the placeholder may be in a file at all, in any of its forms."""
    placeholder = options.unavailable.encode()
    numbers = ",".join(map(str, placeholder))
    short = text if " " not in text else text.replace(" ", "")
    return options.unavailable in text or base64.b64encode(placeholder).decode() in text or numbers in short


def _named(by_column: Mapping[str, str], name: str) -> str | None:
    return next((value for column, value in by_column.items() if column.lower() == name.lower()), None)


def texts(array: pa.Array) -> pa.Array:
    """The values as text: times in SQL format, nested values as JSON."""
    if pa.types.is_temporal(array.type):
        written = zip(array.cast(pa.string()).to_pylist(), array.cast(_NUMBERS[array.type.bit_width]), strict=True)
        values = [None if text is None else _time(text, number.as_py()) for text, number in written]
        return pa.array(values, pa.string())
    return pa.array([None if value is None else text_of(value) for value in array.to_pylist()], pa.string())


def _time(text: str, number: int) -> str:
    """Instants in ISO format; out of the calendar's range (e.g. `infinity`) as a number."""
    if text.startswith("<"):
        return str(number)
    return f"{text[:-1].replace(' ', 'T')}+00:00" if text.endswith("Z") else text


def _text(value: Any, kind: Kind) -> str | None:
    if value is None:
        return None
    try:
        found = kind.of(value)
        return texts(pa.array([found], kind.type))[0].as_py() if pa.types.is_temporal(kind.type) else text_of(found)
    except _NOT_SUCH:
        return text_of(value)


def _inferred(values: Sequence[Any]) -> Values:
    """JSON's own types: whole numbers, fractions, texts, truth, and arrays of one of them; all else as text.

    A number beyond the greatest double is a misfit.
    """
    held = [None if _is_too_great(value) else value for value in values]
    try:
        found = pa.array(held)
    except _NOT_SUCH:
        found = None
    texts = [None if value is None else text_of(value) for value in values]
    if found is None or "struct" in str(found.type):
        return Values(text_array(texts))
    if all(one is other for one, other in zip(held, values, strict=True)):
        return Values(found)
    number = pa.types.is_floating(found.type) or pa.types.is_integer(found.type) or pa.types.is_null(found.type)
    return Values(text_array(texts), pa.float64() if number else None)


def _is_too_great(value: Any) -> bool:
    """Whether a number of JSON, or one inside, is none of a double."""
    if isinstance(value, list):
        return any(map(_is_too_great, value))
    return isinstance(value, Written) and math.isinf(value)
