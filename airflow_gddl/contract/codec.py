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
from collections.abc import Callable, Hashable, Iterable, Mapping
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
    try:
        return typing.cast("T", _decoder(typing.cast("Hashable", cls))(data))
    except _MismatchError as error:
        raise _wrong(cls.__name__ + error.path, error.what, error.remedy) from None


_Decoder = Callable[[Any], Any]


class _MismatchError(Exception):
    """A value that its type refuses.

    Attributes:
        path: to the value, from where the error has been raised to so far.
    """

    def __init__(self, what: str, path: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.path, self.remedy = what, path, remedy

    def below(self, step: str) -> _MismatchError:
        self.path = step + self.path
        return self


@functools.cache
def _decoder(hint: Any) -> _Decoder:
    """Built once a type: a job decodes the same few types for each of its tables."""
    if hint is Any:
        return lambda data: data
    if dataclasses.is_dataclass(hint):
        return _dataclass_decoder(typing.cast("type", hint))
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union_decoder(get_args(hint))
    if origin is Literal:
        return _literal_decoder(get_args(hint))
    return _scalar_decoder(hint) if origin is None else _container_decoder(origin, get_args(hint))


def _container_decoder(origin: Any, args: tuple[Any, ...]) -> _Decoder:
    if issubclass(origin, Mapping):
        return _mapping_decoder(args[1])
    return _list_decoder(origin, args[0])


def _scalar_decoder(kind: Any) -> _Decoder:
    accepted = (int, float) if kind is float else kind
    numeric = kind in (int, float)
    known = {type(None): "null", float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    wanted = known.get(kind, kind.__name__)

    def scalar(data: Any) -> Any:
        if not isinstance(data, accepted) or (numeric and isinstance(data, bool)):
            raise _unexpected(data, wanted)
        return float(data) if kind is float else data

    return scalar


def _literal_decoder(options: tuple[Any, ...]) -> _Decoder:
    def literal(data: Any) -> Any:
        if not isinstance(data, str) or data not in options:
            raise _unexpected(data, f"one of {options}")
        return data

    return literal


def _list_decoder(kind: Callable[[Iterable[Any]], Any], hint: Any) -> _Decoder:
    item = _decoder(hint)

    def items(data: Any) -> Any:
        if not isinstance(data, (list, tuple)):
            raise _unexpected(data, "a list")
        return kind(_decode_each(enumerate(data), lambda _: item, "[{}]").values())

    return items


def _mapping_decoder(hint: Any) -> _Decoder:
    item = _decoder(hint)

    def mapping(data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise _unexpected(data, "an object")
        return {str(name): value for name, value in _decode_each(data.items(), lambda _: item, ".{}").items()}

    return mapping


def _union_decoder(hints: tuple[Any, ...]) -> _Decoder:
    options = [_decoder(hint) for hint in hints]

    def union(data: Any) -> Any:
        if data is None and type(None) in hints:
            return None
        problems = []
        for option in options:
            try:
                return option(data)
            except _MismatchError as error:
                problems.append(error)
        raise problems[0] if data is not None else problems[-1]

    return union


def _dataclass_decoder(cls: type) -> _Decoder:
    hints = _hints(cls)
    required = [f.name for f in dataclasses.fields(cls) if _required(f)]

    def record(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _unexpected(data, "an object")
        unknown = data.keys() - hints.keys()
        if unknown:
            name, known = min(unknown), f"known fields: {', '.join(sorted(hints))}"
            raise _MismatchError(f"unknown field {name!r}", f".{name}", known)
        values = _decode_each(data.items(), _field_decoders(cls).__getitem__, ".{}")
        for name in required:
            if name not in values:
                raise _MismatchError(f"missing field {name!r}", f".{name}")
        return cls(**values)

    return record


def _decode_each(items: Iterable[tuple[Any, Any]], decoder: Callable[[Any], _Decoder], step: str) -> dict[Any, Any]:
    """
    Args:
        step: of the path to an item, by its name or number.
    """
    found = {}
    for name, value in items:
        try:
            found[name] = decoder(name)(value)
        except _MismatchError as error:
            raise error.below(step.format(name)) from None
    return found


@functools.cache
def _field_decoders(cls: type) -> dict[str, _Decoder]:
    return {name: _decoder(hint) for name, hint in _hints(cls).items()}


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _unexpected(data: Any, wanted: str) -> _MismatchError:
    return _MismatchError(f"{data!r:.80} is not {wanted}")


def _wrong(path: str, what: str, remedy: str = "") -> FatalError:
    return FatalError("SPEC_INVALID", what, where=path, remedy=remedy or "build the spec with the catalog")
