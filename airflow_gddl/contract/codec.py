"""Frozen dataclasses to JSON and back, strictly, with the standard library alone.

`decode` refuses unknown fields, missing fields and wrong types with `SPEC_INVALID`, naming the path to the value, so
that a job on a cluster without pydantic checks its spec as strictly as the catalog.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from airflow_gddl.contract.errors import FatalError

T = TypeVar("T")
OMIT_DEFAULT = "omit_default"
"""Key of a field's metadata: true leaves the field out of the JSON while it has its default."""
# A folder of ten thousand rows compiles to half a million values, mostly of these types.
_SCALARS = frozenset((str, int, float, bool, type(None)))


def to_json(value: object) -> str:
    """One line of JSON that UTF-8 can encode; mappings are sorted so that equal values give equal bytes."""
    text = json.dumps(plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, as in file names that aren't UTF-8, are escaped and so kept
        return json.dumps(plain(value), sort_keys=True, separators=(",", ":"))
    return text


def plain(value: Any) -> Any:
    """Dataclasses, mappings and tuples as dicts and lists, in field order."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if dataclasses.is_dataclass(kind):
        left_out = {name for name, default in _omitted(kind) if getattr(value, name) == default}
        return {name: plain(getattr(value, name)) for name in _field_names(kind) if name not in left_out}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


@functools.cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


@functools.cache
def _omitted(cls: type) -> tuple[tuple[str, Any], ...]:
    """Fields with the metadata `OMIT_DEFAULT`, and their defaults."""
    return tuple((f.name, f.default) for f in dataclasses.fields(cls) if f.metadata.get(OMIT_DEFAULT))


def from_json(cls: type[T], text: str) -> T:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(cls.__name__, f"not JSON: {error}") from error
    return decode(cls, data)


def from_json_or_none(cls: type[T], text: str | bytes) -> T | None:
    """`from_json` of a stored document; null when it is damaged."""
    try:
        return decode(cls, json.loads(text))
    except (ValueError, FatalError):
        return None


def decode(cls: type[T], data: Any) -> T:
    """Build `cls` from plain data.

    Raises:
        FatalError: `SPEC_INVALID`.
    """
    return typing.cast("T", _decode(cls, data, cls.__name__))


def _decode(hint: Any, data: Any, path: str) -> Any:
    if hint is Any:
        return data
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(typing.cast("type", hint), data, path)
    if get_origin(hint) is None:
        return _decode_scalar(hint, data, path)
    return _decode_generic(hint, data, path)


def _decode_generic(hint: Any, data: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(hint), data, path)
    if origin is Literal:
        return _expect(data in get_args(hint) and isinstance(data, str), data, path, f"one of {get_args(hint)}")
    if origin in (tuple, list):
        _expect(isinstance(data, (list, tuple)), data, path, "a list")
        return origin(_decode(get_args(hint)[0], item, f"{path}[{i}]") for i, item in enumerate(data))
    if issubclass(typing.cast("type", origin), Mapping):
        _expect(isinstance(data, Mapping), data, path, "an object")
        return {str(k): _decode(get_args(hint)[1], v, f"{path}.{k}") for k, v in data.items()}
    return _decode_scalar(hint, data, path)


def _decode_scalar(hint: Any, data: Any, path: str) -> Any:
    if hint is type(None):
        return _expect(data is None, data, path, "null")
    if hint is float:
        return float(_expect(isinstance(data, (int, float)) and not isinstance(data, bool), data, path, "a number"))
    if hint is int:
        return _expect(isinstance(data, int) and not isinstance(data, bool), data, path, "a whole number")
    return _expect(isinstance(data, hint), data, path, {str: "text", bool: "true or false"}.get(hint, hint.__name__))


def _decode_union(options: tuple[Any, ...], data: Any, path: str) -> Any:
    problems = []
    for option in options:
        try:
            return _decode(option, data, path)
        except FatalError as error:
            problems.append(error)
    raise problems[0] if data is not None else problems[-1]


def _decode_dataclass(cls: type, data: Any, path: str) -> Any:
    _expect(isinstance(data, Mapping), data, path, "an object")
    hints = _hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise _wrong(
            f"{path}.{unknown[0]}", f"unknown field {unknown[0]!r}", f"known fields: {', '.join(sorted(hints))}"
        )
    values = {name: _decode(hints[name], value, f"{path}.{name}") for name, value in data.items()}
    missing = [f.name for f in dataclasses.fields(cls) if _required(f) and f.name not in values]
    if missing:
        raise _wrong(f"{path}.{missing[0]}", f"missing field {missing[0]!r}")
    return cls(**values)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _expect(good: bool, data: Any, path: str, wanted: str) -> Any:
    if not good:
        raise _wrong(path, f"{data!r:.80} is not {wanted}")
    return data


def _wrong(path: str, what: str, remedy: str = "") -> FatalError:
    return FatalError("SPEC_INVALID", what, where=path, remedy=remedy or "build the spec with the catalog")
