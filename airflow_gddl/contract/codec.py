"""Frozen dataclasses to JSON and back, strictly, with the standard library alone.

`decode` refuses unknown fields, missing fields and wrong types with `SPEC_INVALID`, naming the path to the value, so
that a job on a cluster without pydantic checks its spec as strictly as the catalog.

Documents that another version of this package may read (specifications, the ledger) are written by `to_document`: they
hold what differs from the default, and name the fields that a reader may ignore. See docs/releasing.md.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from airflow_gddl.contract.codes import SPEC_INVALID
from airflow_gddl.contract.errors import FatalError, GddlError

T = TypeVar("T")
ALWAYS = "always"
"""Key of a field's metadata: true writes the field into documents even where it has its default."""
IGNORABLE = "ignorable"
"""Key of a field's metadata: true lets a reader that does not know the field ignore it."""
TAG = "tag"
"""Key of a field's metadata: true lets the field's text tell which class of a union a document holds."""
IGNORED = "ignorable"
"""The field of a document that names these, as `Class.field`; see `JobSpec.ignorable`."""
_ANY = frozenset({"*"})
_UPGRADE = "if a newer airflow-gddl wrote this, install it here, too"
_SAME_VERSION = "if another version of airflow-gddl wrote this, install the same version on both sides"
# A folder of ten thousand rows compiles to half a million values, mostly of these types.
_SCALARS = frozenset((str, int, float, bool, type(None)))


def to_json(value: object) -> str:
    """One line of JSON that UTF-8 can encode; mappings are sorted so that equal values give equal bytes."""
    return _one_line(plain(value))


def to_document(value: object) -> str:
    """`to_json` without fields that have their defaults, so that a version without a field reads it while it is unused.

    Where the class has the field `ignorable`, it names the fields that such a version may ignore though they are used.
    """
    ignorable: set[str] = set()
    data = _encoded(value, ignorable)
    if ignorable and _names_ignorable(typing.cast("Hashable", type(value))):
        data[IGNORED] = sorted(ignorable)
    return _one_line(data)


@functools.cache
def _names_ignorable(cls: Hashable) -> bool:
    return dataclasses.is_dataclass(cls) and IGNORED in _field_names(cls)


def _one_line(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, as in file names that aren't UTF-8, are escaped and so kept
        return json.dumps(data, sort_keys=True, separators=(",", ":"))
    return text


def plain(value: Any) -> Any:
    """Dataclasses, mappings and tuples as dicts and lists, in field order."""
    return _encoded(value, None)


def compact(value: Any) -> Any:
    """`plain` without fields that have their defaults; `decode` reads both."""
    return _encoded(value, set())


def given(record: Any) -> dict[str, Any]:
    """Values of a dataclass's fields that differ from their defaults."""
    kind: type = type(record)
    return {
        name: value
        for name, default in _defaults(kind)
        if (value := getattr(record, name)) is not default and value != default
    }


def _encoded(value: Any, ignorable: set[str] | None) -> Any:
    """`plain`, or `compact`.

    Args:
        ignorable: takes the names of the fields marked `IGNORABLE` that differ from their defaults; None: also fields
            that have their defaults are wanted.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, (list, tuple)):
        return [one if type(one) in _SCALARS else _encoded(one, ignorable) for one in value]
    if isinstance(value, Mapping):
        content = {str(name): one for name, one in value.items()}
    elif not dataclasses.is_dataclass(kind):
        return value
    elif ignorable is None:
        content = {name: getattr(value, name) for name in _field_names(kind)}
    else:
        content = given(value)
        ignorable.update(f"{kind.__name__}.{name}" for name in _ignorable(kind) & content.keys())
    return {name: one if type(one) in _SCALARS else _encoded(one, ignorable) for name, one in content.items()}


@functools.cache
def _field_names(cls: Hashable) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(typing.cast("Any", cls)))


@functools.cache
def _defaults(cls: type) -> tuple[tuple[str, Any], ...]:
    """Fields and their defaults; `MISSING`, which no value equals, for those that documents always have."""
    members = dataclasses.fields(cls)
    return tuple((f.name, dataclasses.MISSING if f.metadata.get(ALWAYS) else _default(f)) for f in members)


@functools.cache
def _ignorable(cls: type) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(cls) if f.metadata.get(IGNORABLE))


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def from_json(cls: type[T], text: str) -> T:
    """`decode` of one line of JSON."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(cls.__name__, f"not JSON: {error}") from error
    return decode(cls, data)


def report_from_json(cls: type[T], text: str | bytes) -> T:
    """`from_json` of what was reported or noted, perhaps by a newer version: fields unknown here are ignored."""
    return _decoded(cls, json.loads(text), _ANY)


def from_json_or_none(cls: type[T], text: str | bytes) -> T | None:
    """`report_from_json` of a stored document; None: it is damaged."""
    try:
        return report_from_json(cls, text)
    except (ValueError, FatalError):
        return None


def decode(cls: type[T], data: Any) -> T:
    """Build `cls` from plain data; unknown fields are ignored where the document names them, as `Class.field`.

    Raises:
        FatalError: `SPEC_INVALID`.
    """
    named = data.get(IGNORED) if isinstance(data, Mapping) and _names_ignorable(typing.cast("Hashable", cls)) else None
    return _decoded(cls, data, frozenset(map(str, named) if isinstance(named, list) else ()))


def _decoded(cls: type[T], data: Any, ignorable: frozenset[str]) -> T:
    try:
        return typing.cast("T", _decoder(typing.cast("Hashable", cls), ignorable)(data))
    except _UnknownFieldError as error:
        where = cls.__name__ + error.path
        raise NewerDocumentError(SPEC_INVALID, error.what, where=where, remedy=error.remedy) from None
    except _MismatchError as error:
        raise _wrong(cls.__name__ + error.path, error.what, error.remedy) from None


class NewerDocumentError(FatalError):
    """A document has a field that is unknown here: misspelt, or written by a newer version."""


_Decoder = Callable[[Any], Any]
_KEPT: dict[_Decoder, frozenset[type]] = {}
"""Decoders of scalars and of null, each with the classes whose instances it returns as they are."""


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


class _UnknownFieldError(_MismatchError):
    """A field that its class does not have."""


@functools.cache
def _decoder(hint: Any, ignorable: frozenset[str]) -> _Decoder:
    """Built once a type: a job decodes the same few types for each of its tables.

    Args:
        ignorable: unknown fields, as `Class.field`, that are ignored; `*`: all.
    """
    if hint is Any:
        return lambda data: data
    if dataclasses.is_dataclass(hint):
        return _dataclass_decoder(typing.cast("type", hint), ignorable)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union_decoder(get_args(hint), ignorable)
    if origin is Literal:
        return _literal_decoder(get_args(hint))
    return _scalar_decoder(hint) if origin is None else _container_decoder(origin, get_args(hint), ignorable)


def _container_decoder(origin: Any, args: tuple[Any, ...], ignorable: frozenset[str]) -> _Decoder:
    if issubclass(origin, Mapping):
        return _mapping_decoder(_decoder(args[1], ignorable))
    return _list_decoder(origin, _decoder(args[0], ignorable))


def _scalar_decoder(kind: Any) -> _Decoder:
    accepted = (int, float) if kind is float else kind
    numeric = kind in (int, float)
    known = {type(None): "null", float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    wanted = known.get(kind, kind.__name__)

    def scalar(data: Any) -> Any:
        if not isinstance(data, accepted) or (numeric and isinstance(data, bool)):
            raise _unexpected(data, wanted)
        return float(data) if kind is float else data

    _KEPT[scalar] = frozenset((kind,))
    return scalar


def _literal_decoder(options: tuple[Any, ...]) -> _Decoder:
    def literal(data: Any) -> Any:
        if not isinstance(data, str) or data not in options:
            raise _unexpected(data, f"one of {options}")
        return data

    return literal


def _list_decoder(kind: Callable[[Iterable[Any]], Any], item: _Decoder) -> _Decoder:
    def items(data: Any) -> Any:
        if not isinstance(data, (list, tuple)):
            raise _unexpected(data, "a list")
        return kind(_decode_each(enumerate(data), item, "[{}]").values())

    return items


def _mapping_decoder(item: _Decoder) -> _Decoder:
    def mapping(data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise _unexpected(data, "an object")
        return {str(name): value for name, value in _decode_each(data.items(), item, ".{}").items()}

    return mapping


def _union_decoder(hints: tuple[Any, ...], ignorable: frozenset[str]) -> _Decoder:
    if tags := {tag: hint for hint in hints for tag in _tags(hint)}:
        return _tagged_decoder({tag: _decoder(hint, ignorable) for tag, hint in tags.items()}, _tag_name(hints[0]))
    options = [_decoder(hint, ignorable) for hint in hints]

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

    _KEPT[union] = frozenset(hints) & _SCALARS
    return union


def _tag_name(hint: Any) -> str:
    """The field of a class that tells it from others; empty: none."""
    members = dataclasses.fields(hint) if dataclasses.is_dataclass(hint) else ()
    return next((f.name for f in members if f.metadata.get(TAG)), "")


def _tags(hint: Any) -> tuple[str, ...]:
    name = _tag_name(hint)
    return get_args(_hints(hint)[name]) if name else ()


def _tagged_decoder(options: Mapping[str, _Decoder], name: str) -> _Decoder:
    """Decoder of a union of classes; the field with this name says which class it is."""

    def tagged(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _MismatchError(f"{data!r:.80} is not an object", remedy=_SAME_VERSION)
        if not isinstance(tag := data.get(name), str) or tag not in options:
            raise _MismatchError(f"{tag!r:.80} is not one of {tuple(options)}", f".{name}", _SAME_VERSION)
        return options[tag](data)

    return tagged


def _dataclass_decoder(cls: type, ignorable: frozenset[str]) -> _Decoder:
    hints = _hints(cls)
    required = [f.name for f in dataclasses.fields(cls) if _required(f)]

    def record(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _unexpected(data, "an object")
        unknown = data.keys() - hints.keys()
        refused = unknown if "*" not in ignorable else set()
        refused = {name for name in refused if f"{cls.__name__}.{name}" not in ignorable}
        if refused:
            name, known = min(refused), f"known fields: {', '.join(sorted(hints))}"
            raise _UnknownFieldError(f"unknown field {name!r}", f".{name}", f"{known}; {_UPGRADE}")
        decoders, values = _field_decoders(cls, ignorable), {}
        for name in (name for name in data if name not in unknown):
            decoder, value = decoders[name], data[name]
            try:  # a text of a field of texts, and so on, is the value itself
                values[name] = value if type(value) in _KEPT.get(decoder, ()) else decoder(value)
            except _MismatchError as error:
                raise error.below(f".{name}") from None
        for name in required:
            if name not in values:
                raise _MismatchError(f"missing field {name!r}", f".{name}")
        return cls(**values)

    return record


def _decode_each(items: Iterable[tuple[Any, Any]], decoder: _Decoder, step: str) -> dict[Any, Any]:
    """Decode each item of a mapping or list; errors name the path to the item.

    Args:
        step: of the path to an item, by its name or number.
    """
    decoded, kept = {}, _KEPT.get(decoder, ())
    for name, value in items:
        try:
            decoded[name] = value if type(value) in kept else decoder(value)
        except _MismatchError as error:
            raise error.below(step.format(name)) from None
    return decoded


@functools.cache
def _field_decoders(cls: type, ignorable: frozenset[str]) -> dict[str, _Decoder]:
    return {name: _decoder(hint, ignorable) for name, hint in _hints(cls).items()}


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _unexpected(data: Any, wanted: str) -> _MismatchError:
    return _MismatchError(f"{data!r:.80} is not {wanted}")


def of_format(cls: type[T], data: bytes) -> T:
    """`decode` of an object with a field `format`, which each release of another form changes.

    Raises:
        ValueError: it is damaged, or another release wrote it; the text says what is wrong.
    """
    try:
        record = decode(cls, json.loads(data))
    except GddlError as error:
        raise ValueError(error.what) from error
    if (written := vars(record)["format"]) != vars(cls)["format"]:
        raise ValueError(f"format {written} belongs to another release")
    return record


def _wrong(path: str, what: str, remedy: str = "") -> FatalError:
    return FatalError(SPEC_INVALID, what, where=path, remedy=remedy or "build the spec from the metadata")
