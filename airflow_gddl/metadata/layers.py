"""Where a table's values come from: its row, the keys file, its file's defaults, the settings' defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem
from airflow_gddl.metadata.problems import Problem, show, show_field, show_name
from airflow_gddl.metadata.values import Locate

# Mappings whose entries are merged with the defaults. Not `schedule`, which is a single value.
MERGED = frozenset({"mask", "column_descriptions", "schema_evolution", "table_properties", "tags", "options"})


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Values that one place sets; `locate` takes paths inside `values`."""

    file: str
    values: Mapping[str, Any]
    locate: Locate


def merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """Values of all layers, the strongest first; mappings are merged one level deep."""
    result: dict[str, Any] = {}
    for layer in reversed(layers):
        for name, value in layer.values.items():
            below = result.get(name)
            both = name in MERGED and isinstance(value, Mapping) and isinstance(below, Mapping)
            result[name] = {**below, **value} if both else value  # type: ignore[dict-item] # both are mappings
    return result


def report(problem: SpecProblem, layers: Sequence[Layer], table: object = None) -> Problem:
    """A problem at the position that set the value: the strongest layer that has the full path, else the first
    layer."""
    having = [layer for layer in layers if _has(layer.values, problem.path)]
    if not having:
        having = [layer for layer in layers if _has(layer.values, problem.path[:1])]
    layer = (having or layers)[0]
    line, column = layer.locate(problem.path) or (None, None)
    missing = problem.code.endswith("_MISSING")
    return Problem(
        code=problem.code,
        message=problem.message,
        remedy=problem.remedy,
        file=layer.file,
        line=line,
        column=column,
        table=show_name(table) if isinstance(table, str) and table else None,
        field=show_field(problem.path),
        value="" if missing else show(problem.value, problem.path),
    )


def _has(value: Any, path: FieldPath) -> bool:
    for part in path:
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if not in_list and not (isinstance(value, Mapping) and part in value):
            return False
        value = value[part]
    return True
