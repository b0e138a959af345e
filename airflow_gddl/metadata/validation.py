"""Validates plain values with pydantic into the contract's dataclasses, with helpful messages."""

from __future__ import annotations

import difflib
import functools
import json
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from airflow_gddl.contract import dialects, durations
from airflow_gddl.contract.checks import DURATIONS, WAITS
from airflow_gddl.contract.schema_evolution import SchemaEvolution
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem, spec_problem
from airflow_gddl.metadata.values import one_or_more

T = TypeVar("T")

_TYPES = {
    "string_type": ("text", "write text; quote what looks like a number, a date or true/false"),
    "bool_type": ("true or false", "write true or false, without quotes"),
    "int_type": ("a whole number", "write digits alone, without quotes"),
    "tuple_type": ("a list", "write a list in brackets, e.g. [a, b]"),
    "dict_type": ("a mapping", "write name: value pairs, e.g. {a: b}"),
    "dataclass_type": ("a mapping", "write name: value pairs, e.g. {a: b}"),
}
_SCHEDULE = "write a cron line, @hourly, continuous, {assets: [name]} or null; quote cron lines and presets"


class FieldShape(Generic[T]):
    """Builds one class from plain values, strictly: without coercion between text, numbers and booleans.

    Args:
        remedies: by field, remedy for a value of the wrong type.
        synonyms: by common names in other tools, the field's name here.
        resolved: fields that follow from others, never written in metadata.
    """

    def __init__(
        self,
        cls: type[T],
        *,
        remedies: Mapping[str, Callable[[object], str]] | None = None,
        synonyms: Mapping[str, str] | None = None,
        resolved: Collection[str] = (),
    ) -> None:
        self._remedies, self._synonyms = remedies or {}, synonyms or {}
        self._lists = frozenset(name for name, hint in typing.get_type_hints(cls).items() if _is_list(hint))
        self.name = cls.__name__
        self.adapter = TypeAdapter(cls)
        self.resolved = frozenset(resolved)
        own = (f.name for f in fields(cls))  # type: ignore[arg-type] # always a dataclass here
        self.names = tuple(name for name in own if name not in self.resolved)

    def build(self, values: Mapping[str, Any], path: FieldPath = ()) -> T | tuple[SpecProblem, ...]:
        """The instance, or what is wrong with the values, with `path` put before their own paths."""
        if refused := self.resolved & values.keys():
            others = self.build({name: value for name, value in values.items() if name not in refused}, path)
            unknown = (self._unknown((*path, name), values[name]) for name in sorted(refused))
            return (*unknown, *(others if isinstance(others, tuple) else ()))
        try:
            # JSON, not Python, mode: it takes lists for tuples though it is strict, and leaves plain values.
            return self.adapter.validate_json(json.dumps(self.listed(values)), strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=True)
            found = {problem.path: problem for problem in (self._problem(detail, path) for detail in details)}
            return tuple(found.values())

    def listed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values, a single text as a list of one where the field is a list."""
        return {n: one_or_more(v) if n in self._lists else v for n, v in values.items()}

    def unknown(self, name: str) -> str:
        """Remedy for an unknown field name."""
        meant = self._synonyms.get(name.lower())
        return f"the field is `{meant}`" if meant else near(name, self.names)

    def _problem(self, detail: ErrorDetails, path: FieldPath) -> SpecProblem:
        here = (*path, *detail["loc"])
        kind, value = detail["type"], detail["input"]
        if here[:1] == ("schedule",):
            return spec_problem("FIELD_TYPE", ("schedule",), value, "not a schedule", _SCHEDULE)
        if kind == "missing":
            return spec_problem("FIELD_MISSING", here, None, "must be given", f"add {here[-1]}")
        if kind == "unexpected_keyword_argument":
            return self._unknown(here, value)
        if kind == "literal_error":
            allowed = str(detail.get("ctx", {}).get("expected", ""))
            return spec_problem("FIELD_VALUE", here, value, f"must be {allowed}", f"write one of {allowed}")
        wanted, remedy = _TYPES.get(kind, (detail["msg"], "see the JSON Schema in metadata/schema"))
        if (remedy_of := self._remedies.get(str(here[-1]))) is not None:
            remedy = remedy_of(value)
        return spec_problem("FIELD_TYPE", here, value, f"must be {wanted}", remedy)

    def _unknown(self, here: FieldPath, value: Any) -> SpecProblem:
        name, is_inner = str(here[-1]), here[-2:-1] == ("schema_evolution",)
        remedy = near(name, _EVOLUTION) if is_inner else self.unknown(name)
        return spec_problem("FIELD_UNKNOWN", here, value, "no such field", remedy)


@functools.lru_cache(maxsize=4096)
def near(name: str, names: tuple[str, ...]) -> str:
    """Remedy for a name that is not among the known ones."""
    close = difflib.get_close_matches(name[:64].lower(), names, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"


def _is_list(hint: Any) -> bool:
    return any(get_origin(option) is tuple for option in (hint, *get_args(hint)))


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Normalized values: `null` of `mask` and `dropped_column` as text, a single asset as a list."""
    result = dict(values)
    schedule = result.get("schedule")
    if isinstance(schedule, Mapping) and "assets" in schedule:
        result["schedule"] = {**schedule, "assets": one_or_more(schedule["assets"])}
    if isinstance(mask := result.get("mask"), Mapping):
        result["mask"] = {column: "null" if method is None else method for column, method in mask.items()}
    evolution = result.get("schema_evolution")
    if isinstance(evolution, Mapping) and "dropped_column" in evolution and evolution["dropped_column"] is None:
        result["schema_evolution"] = {**evolution, "dropped_column": "null"}
    return result


_EVOLUTION = tuple(f.name for f in fields(SchemaEvolution))
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
    remedies=dict.fromkeys((*DURATIONS, *WAITS), durations.remedy),
    synonyms=_SYNONYMS,
    resolved=("source_table", "landing", "shard_landings"),
)


@functools.cache
def options_of(dialect: str) -> FieldShape[Any]:
    """Shape of a dialect's options.

    Raises:
        FatalError: `DIALECT_UNKNOWN`.
    """
    return FieldShape(dialects.options_class(dialect), remedies={"lookback": durations.remedy})
