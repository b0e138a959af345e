"""Plain values to the contract's frozen dataclasses, by pydantic; what it refuses in words that help."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from airflow_gddl.contract import dialects
from airflow_gddl.contract.spec import SchemaEvolution, TableSpec, TierSpec
from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem, spec_problem

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
    """Builds one class from plain values, strictly: no text becomes a number, no number a boolean."""

    def __init__(self, cls: type[T]) -> None:
        self.name = cls.__name__
        self.adapter = TypeAdapter(cls)
        self.names = tuple(f.name for f in fields(cls))  # type: ignore[arg-type] # always a dataclass here

    def build(self, values: Mapping[str, Any], path: FieldPath = ()) -> T | tuple[SpecProblem, ...]:
        """The instance, or what is wrong with the values, with `path` put before their own paths."""
        try:
            # JSON, not Python, mode: it takes lists for tuples though it is strict, and leaves plain values.
            return self.adapter.validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=True)
            found = {problem.path: problem for problem in (self._problem(detail, path) for detail in details)}
            return tuple(found.values())

    def _problem(self, detail: ErrorDetails, path: FieldPath) -> SpecProblem:
        here = (*path, *detail["loc"])
        kind, value = detail["type"], detail["input"]
        if here[:1] == ("schedule",):
            return spec_problem("FIELD_TYPE", ("schedule",), value, "not a schedule", _SCHEDULE)
        if kind == "missing":
            return spec_problem("FIELD_MISSING", here, None, "must be given", f"add {here[-1]}")
        if kind == "unexpected_keyword_argument":
            names = _EVOLUTION if here[-2:-1] == ("schema_evolution",) else self.names
            return spec_problem("FIELD_UNKNOWN", here, value, "no such field", near(str(here[-1]), names))
        if kind == "literal_error":
            allowed = str(detail.get("ctx", {}).get("expected", ""))
            return spec_problem("FIELD_VALUE", here, value, f"must be {allowed}", f"write one of {allowed}")
        wanted, remedy = _TYPES.get(kind, (detail["msg"], "see the JSON Schema in metadata/schema"))
        if kind == "tuple_type" and isinstance(value, str):
            remedy = "write a list in brackets even for one name, e.g. [id]"
        return spec_problem("FIELD_TYPE", here, value, f"must be {wanted}", remedy)


@functools.lru_cache(maxsize=4096)
def near(name: str, names: tuple[str, ...]) -> str:
    """Remedy for a name that is not among the known ones."""
    close = difflib.get_close_matches(name[:64].lower(), names, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with `null` as people write it where the contract knows the word: in `mask` and `dropped_column`."""
    result = dict(values)
    if isinstance(mask := result.get("mask"), Mapping):
        result["mask"] = {column: "null" if method is None else method for column, method in mask.items()}
    evolution = result.get("schema_evolution")
    if isinstance(evolution, Mapping) and "dropped_column" in evolution and evolution["dropped_column"] is None:
        result["schema_evolution"] = {**evolution, "dropped_column": "null"}
    return result


_EVOLUTION = tuple(f.name for f in fields(SchemaEvolution))
TABLE = FieldShape(TableSpec)
TIER = FieldShape(TierSpec)


@functools.cache
def options_of(dialect: str) -> FieldShape[Any]:
    """Shape of a dialect's options.

    Raises:
        FatalError: `DIALECT_UNKNOWN`.
    """
    return FieldShape(dialects.options_class(dialect))
