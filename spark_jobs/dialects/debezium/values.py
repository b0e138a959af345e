"""Values of one column as an Arrow array: of the kind that the metadata or the file states, else as JSON has them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.debezium import DebeziumOptions
from spark_jobs.dialects.debezium.connect_types import Kind, kind_of, named_kind, text_of

_NUMBERS = {32: pa.int32(), 64: pa.int64()}
_NOT_SUCH = (TypeError, ValueError, OverflowError, KeyError, AttributeError, pa.ArrowException)


def array_of(values: Sequence[Any], kind: Kind | None) -> pa.Array:
    """If a value is not of the kind, all are returned as text, and the table's schema decides about each."""
    if kind is None:
        return _inferred(values)
    try:
        return pa.array([None if value is None else kind.of(value) for value in values], kind.type)
    except _NOT_SUCH:
        return text_array([_text(value, kind) for value in values])


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


def _inferred(values: Sequence[Any]) -> pa.Array:
    """JSON's own types: whole numbers, fractions, texts, truth, and arrays of one of them; all else as text."""
    try:
        found = pa.array(values)
    except _NOT_SUCH:
        found = None
    if found is None or "struct" in str(found.type):
        return text_array([None if value is None else text_of(value) for value in values])
    return found
