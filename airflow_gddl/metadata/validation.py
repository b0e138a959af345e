"""Builds the contract's dataclasses of plain values, and checks a spec that has valid types.

Values that the contract's own decoder takes need no pydantic, which finds out what is wrong with others: its import
takes longer than a hundred good rows.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

from airflow_gddl.contract import durations
from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.codes import FIELD_MISSING, FIELD_REFUSED, FIELD_TYPE, FIELD_UNKNOWN, FIELD_VALUE
from airflow_gddl.contract.errors import FatalError, FieldPath, SpecProblem, below, problem_at
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.row_checks import DURATIONS, WAITS, Checks, check_table, check_values
from airflow_gddl.contract.shares import share_remedy
from airflow_gddl.contract.table_spec import (
    Expectation,
    InitialLoad,
    LandingRetention,
    SchemaEvolution,
    SchemaGate,
    TableSpec,
)
from airflow_gddl.metadata.cron import SCHEDULES, cron_fault
from airflow_gddl.metadata.expression_text import expression_problems
from airflow_gddl.metadata.problems import looks_secret, one_or_more

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

T = TypeVar("T")

_FLAG_OR_NUMBER = "flag_or_number"
_TYPES = {
    _FLAG_OR_NUMBER: ("true, false or a number", "write true or false, or digits alone, without quotes"),
    "string_type": ("text", "write text; quote what looks like a number, a date or true/false"),
    "bool_type": ("true or false", "write true or false, without quotes"),
    "float_type": ("a number", "write digits alone, without quotes, e.g. 0.5"),
    "int_from_float": ("a whole number", "write digits alone, without quotes"),
    "int_type": ("a whole number", "write digits alone, without quotes"),
    "tuple_type": ("a list", "write a list in brackets, e.g. [a, b]"),
    "dict_type": ("a mapping", "write name: value pairs, e.g. {a: b}"),
    "dataclass_type": ("a mapping", "write name: value pairs, e.g. {a: b}"),
}
EXAMPLES = {
    "schema_evolution": "{new_column: fail}",
    "rename": "{ORDER_ID: id}",
    "derive": "{day: date(created)}",
    "expect": "{qty_ok: {rule: qty > 0, on: warn, at_most: 0.01}}",
    "table_properties": "{delta.logRetentionDuration: interval 60 days}",
    "tags": "{domain: sales}",
    "column_descriptions": "{amount: in euros}",
    "landing_retention": "{after: 30d, action: move, to: s3://raw/ingested}",
}
"""Of a row's fields that are mappings, as docs/metadata.md has them."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$.-]*")
_WORDS = ("null", "true", "false")
_SCHEDULE = "write a cron line, @hourly, continuous, {assets: [name]} or null; quote cron lines and presets"


class FieldShape(Generic[T]):
    """Builds one class from plain values, strictly: without coercion between text, numbers and booleans.

    Args:
        remedies: by field, remedy for a value of the wrong type.
        synonyms: by common names in other tools, the field's name here.
        resolved: fields that follow from others, never written in metadata.
        comma_refused: a text with a comma is refused where a list is expected, instead of meaning one name.
    """

    def __init__(
        self,
        cls: type[T],
        *,
        remedies: Mapping[str, Callable[[object], str]] | None = None,
        synonyms: Mapping[str, str] | None = None,
        resolved: Collection[str] = (),
        comma_refused: bool = False,
    ) -> None:
        self.comma_refused = comma_refused
        self._remedies, self._synonyms = remedies or {}, synonyms or {}
        self.cls = cls
        self.name = cls.__name__
        self.resolved = frozenset(resolved)
        field_names = (f.name for f in fields(cls))  # type: ignore[arg-type] # always a dataclass here
        self.names = tuple(name for name in field_names if name not in self.resolved)

    @functools.cached_property
    def adapter(self) -> TypeAdapter[T]:
        from pydantic import TypeAdapter  # noqa: PLC0415 - see the module

        return TypeAdapter(self.cls)

    @functools.cached_property
    def _lists(self) -> frozenset[str]:
        hints = typing.get_type_hints(self.cls).items()
        return frozenset(
            name for name, hint in hints if any(get_origin(one) is tuple for one in (hint, *get_args(hint)))
        )

    @functools.cached_property
    def _flags_or_numbers(self) -> frozenset[str]:
        """Fields that take `true` and `false` or a number: pydantic has a problem for each of the two."""
        hints = ((name, get_args(hint)) for name, hint in typing.get_type_hints(self.cls).items())
        return frozenset(name for name, kinds in hints if bool in kinds and {int, float} & {*kinds})

    def build(self, values: Mapping[str, Any], *above: str) -> T | tuple[SpecProblem, ...]:
        """The instance, or what is wrong with the values, whose path is `above`."""
        refused = sorted(self.resolved & values.keys())
        joined = sorted(name for name in self._lists & values.keys() if self._is_joined(values[name]))
        problems = [self._unknown((name,), values[name]) for name in refused]
        problems += [joined_names((name,), values[name]) for name in joined]
        sound = {name: value for name, value in self.listed(values).items() if name not in refused}
        # JSON, not Python, mode: it takes lists for tuples though it is strict, and leaves plain values.
        text = json.dumps(sound | dict.fromkeys(joined, ()))
        built = self._decoded(text) or self._validated(text, above)
        problems += built if isinstance(built, tuple) else ()
        return tuple(below(problems, *above)) if problems or isinstance(built, tuple) else built

    def _decoded(self, text: str) -> T | None:
        """The instance as jobs read it; null where they would not, and of other packages' classes, which may have rules
        of pydantic."""
        if not self.cls.__module__.startswith("airflow_gddl."):
            return None
        try:
            return decode(self.cls, json.loads(text))
        except FatalError:
            return None

    def _validated(self, text: str, above: FieldPath) -> T | tuple[SpecProblem, ...]:
        from pydantic import ValidationError  # noqa: PLC0415 - see the module

        try:
            return self.adapter.validate_json(text, strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=True)
            by_path = {problem.path: problem for problem in (self._problem(detail, above) for detail in details)}
            return tuple(by_path.values())

    def _is_joined(self, value: object) -> bool:
        return self.comma_refused and isinstance(value, str) and "," in value

    def listed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values, a single text as a list of one where the field is a list and the text may be one name."""
        return {n: one_or_more(v) if n in self._lists and not self._is_joined(v) else v for n, v in values.items()}

    def unknown(self, name: str) -> str:
        """Remedy for an unknown field name."""
        meant = self._synonyms.get(name.lower())
        return f"the field is `{meant}`" if meant else near(name, self.names)

    def _problem(self, detail: ErrorDetails, above: FieldPath) -> SpecProblem:
        here, kind, value = detail["loc"], detail["type"], detail["input"]
        if here and here[0] in self._flags_or_numbers:
            here, kind = here[:1], _FLAG_OR_NUMBER
        if here[:1] == ("schedule",):
            return SpecProblem(FIELD_TYPE, ("schedule",), value, "not a schedule", _SCHEDULE)
        if kind == "missing":
            return SpecProblem(FIELD_MISSING, here, None, "must be given", f"add {_as_written((*above, *here))}")
        if kind == "unexpected_keyword_argument":
            return self._unknown(here, value)
        if kind == "literal_error":
            allowed = str(detail.get("ctx", {}).get("expected", ""))
            remedy = meant(value, re.findall(r"'([^']*)'", allowed), f"write one of {allowed}")
            return SpecProblem(FIELD_VALUE, here, value, f"must be {allowed}", remedy)
        plain = detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        wanted, remedy = _TYPES.get(kind, (plain, "see the JSON Schema in metadata/schema"))
        if kind in ("dict_type", "dataclass_type") and here and here[0] in EXAMPLES:
            remedy = f"write e.g. {here[0]}: {EXAMPLES[str(here[0])]}"
        if (remedy_of := self._remedies.get(str(here[-1]))) is not None:
            remedy = remedy_of(value)
        return SpecProblem(FIELD_TYPE, here, value, f"must be {wanted}", remedy)

    def _unknown(self, here: FieldPath, value: Any) -> SpecProblem:
        name, inner = str(here[-1]), _INNER.get(str(here[0])) if len(here) > 1 else None
        remedy = near(name, inner) if inner else self.unknown(name)
        return SpecProblem(FIELD_UNKNOWN, here, value, "no such field", remedy)


ENTRY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""Form of names that sections give their entries; that of a tier goes into the name of its Airflow pool."""


def build_entry(
    shape: FieldShape[T],
    path: tuple[str, str],
    values: Any,
    names: re.Pattern[str],
    remedies: tuple[str, str],
    base: Mapping[str, Any] | None = None,
) -> T | tuple[SpecProblem, ...]:
    """An entry of a section, or what is wrong with it.

    Args:
        path: the section, and the entry's name.
        values: None: none are set.
        names: form of names.
        remedies: for another name, and for values that are no mapping.
        base: values that are not set.
    """
    values = {} if values is None else values
    if not names.fullmatch(path[1]):
        return (SpecProblem(FIELD_VALUE, path, path[1], "not a name that is allowed here", remedies[0]),)
    if not isinstance(values, Mapping):
        return (SpecProblem(FIELD_TYPE, path, values, "must be a mapping", remedies[1]),)
    return shape.build({**(base or {}), **values}, *path)


@functools.lru_cache(maxsize=4096)
def near(name: str, names: tuple[str, ...]) -> str:
    """Remedy for a name that is not among the known ones."""
    return meant(name, names, f"known: {', '.join(names)}")


def meant(value: object, names: Collection[str], otherwise: str) -> str:
    """Remedy for a value that is none of the names: the one that it is close to, or else `otherwise`."""
    close = difflib.get_close_matches(value[:64].lower(), names, n=1) if isinstance(value, str) else ()
    return f"did you mean {close[0]}?" if close else otherwise


def joined_names(path: FieldPath, text: str) -> SpecProblem:
    """The problem of a text with commas where a list is expected."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    remedy = f"write [{', '.join(map(quoted, names))}]; one name that holds a comma is written [{quoted(text)}]"
    return SpecProblem(FIELD_TYPE, path, text, "must be a list, not one text with commas", remedy)


def quoted(name: str) -> str:
    """The name as YAML text, in quotes where it needs them."""
    plain = _PLAIN.fullmatch(name) and name.lower() not in _WORDS
    return name if plain else json.dumps(name, ensure_ascii=False)


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Normalized values: `null` of `mask` and `dropped_column` as text; a single name of some lists as a list.

    Under a wrong name of `assets`, too, so that the name is reported, not its value.
    """
    result = dict(values)
    schedule = result.get("schedule")
    if isinstance(schedule, Mapping):
        result["schedule"] = {name: one_or_more(value) for name, value in schedule.items()}
    if isinstance(mask := result.get("mask"), Mapping):
        result["mask"] = {column: "null" if method is None else method for column, method in mask.items()}
    evolution = result.get("schema_evolution")
    if isinstance(evolution, Mapping) and "dropped_column" in evolution and evolution["dropped_column"] is None:
        result["schema_evolution"] = {**evolution, "dropped_column": "null"}
    return result


def _as_written(path: FieldPath) -> str:
    """The last field of a path: `a`, or below others `b: {a: ...}`."""
    *above, name = map(str, path)
    text = f"{name}: ..." if above else name
    for outer in reversed(above):
        text = f"{outer}: {{{text}}}"
    return text


def _mask_remedy(value: object) -> str:
    names = value if isinstance(value, list) else [value]
    shown = [name for name in names if isinstance(name, str) and not looks_secret(name)][:3] or ["email"]
    return f"write {{{', '.join(f'{quoted(name)}: hmac' for name in shown)}}}; null instead of hmac removes the values"


_INNER = {
    name: tuple(f.name for f in fields(kind))
    for name, kind in (
        ("schema_evolution", SchemaEvolution),
        ("schema", SchemaGate),
        ("expect", Expectation),
        ("landing_retention", LandingRetention),
        ("initial_load", InitialLoad),
    )
}
"""Fields of a row that have fields of their own, which are known by name."""
# Names of fields in other tools.
_SYNONYMS = {
    "tier": "size",
    "name": "table",
    "primary_key": "keys",
    "primary_keys": "keys",
    "pk": "keys",
    "order_by": "sequence_by",
    "cron": "schedule",
    "interval": "schedule",
    "sla": "freshness",
    "exclude": "exclude_columns",
    "partitions": "partition_by",
    "partitioned_by": "partition_by",
    "clustered_by": "cluster_by",
    "format": "dialect",
}
TABLE = FieldShape(
    TableSpec,
    remedies={
        **dict.fromkeys((*DURATIONS, *WAITS), durations.remedy),
        "mask": _mask_remedy,
        "sweep_limit": share_remedy,
        "at_most": share_remedy,
    },
    synonyms=_SYNONYMS,
    resolved=("source_table", "landing", "shard_landings", "shard_origins", "mask_key_id", "expressions"),
    comma_refused=True,
)


@functools.cache
def options_of(dialect: str) -> FieldShape[Any]:
    """Shape of a dialect's options.

    Raises:
        FatalError: `DIALECT_UNKNOWN`, `DIALECT_BROKEN`.
    """
    cls = DIALECTS.load(DIALECTS.get(dialect).options)
    return FieldShape(cls, remedies={"lookback": durations.remedy}, comma_refused=True)


_CRON_REMEDY = f"write five cron fields, e.g. '*/15 * * * *', or one of {', '.join(SCHEDULES)}, or null for none"


_check_row = Checks(*check_table.checks, expression_problems)
_check_values = Checks(*check_values.checks, expression_problems)


def check_spec(spec: TableSpec, tiers: Collection[str]) -> tuple[SpecProblem, ...]:
    """All problems of one row, independent of other rows."""
    return (*_check_row(spec), *_fields(spec, tiers))


def check_defaults(defaults: Mapping[str, Any], tiers: Collection[str]) -> tuple[SpecProblem, ...]:
    """All problems of a `defaults` section, independent of rows."""
    for name in ("table", "keys"):
        if name in defaults:
            remedy = "move it into each row"
            message = "not a default: every table has its own"
            return (problem_at(defaults, name, message, remedy, FIELD_REFUSED),)
    spec = TABLE.build({**defaults, "table": "schema.name", "keys": ["id"]})
    return (*_check_values(spec), *_fields(spec, tiers)) if isinstance(spec, TableSpec) else spec


def _fields(spec: TableSpec, tiers: Collection[str]) -> Iterator[SpecProblem]:
    if spec.size not in tiers:
        remedy = f"write one of {', '.join(tiers)}, or add the tier to gddl.yaml under tiers"
        remedy = meant(spec.size, tiers, remedy)
        yield problem_at(spec, "size", "no such tier", remedy)
    yield from _schedule(spec)
    if spec.dialect not in DIALECTS.built_in and spec.dialect not in DIALECTS.names():
        allowed = " or ".join(map(repr, DIALECTS.names()))
        remedy = f"write one of {allowed}, or install the package that provides it"
        remedy = meant(spec.dialect, DIALECTS.names(), remedy)
        yield problem_at(spec, "dialect", f"must be {allowed}", remedy)
    elif spec.options or spec.dialect not in DIALECTS.built_in:
        yield from _options(spec)


def _options(spec: TableSpec) -> Iterator[SpecProblem]:
    try:
        shape = options_of(spec.dialect)
    except FatalError as error:
        yield problem_at(spec, "dialect", error.what, error.remedy, error.code)
        return
    options = shape.build(spec.options, "options")
    yield from options if isinstance(options, tuple) else ()


def _schedule(spec: TableSpec) -> Iterator[SpecProblem]:
    schedule = spec.schedule
    if isinstance(schedule, str):
        if fault := cron_fault(schedule):
            near = difflib.get_close_matches(schedule.lower(), SCHEDULES, n=1, cutoff=0.8)
            remedy = f"did you mean '{near[0]}'? Else {_CRON_REMEDY}" if near else _CRON_REMEDY
            yield SpecProblem(FIELD_VALUE, ("schedule",), schedule, fault, remedy)
    elif schedule is not None:
        names = schedule.get("assets", ())
        if set(schedule) != {"assets"} or not names or not all(name.strip() for name in names):
            message = "a mapping here has assets alone, with at least one name"
            meant = difflib.get_close_matches(next(iter(schedule), ""), ("assets",), n=1)
            remedy = f"{'did you mean assets? ' if meant and meant[0] not in schedule else ''}write {{assets: [name]}}"
            yield SpecProblem(FIELD_VALUE, ("schedule",), schedule, message, remedy)
