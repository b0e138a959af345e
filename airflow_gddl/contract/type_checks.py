"""Checks of the SQL types that a row declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec_problem import SpecProblem, spec_problem
from airflow_gddl.contract.sql_types import REMEDY, parse_type, unsupported_part
from airflow_gddl.contract.table_spec import TableSpec


def check_types(spec: TableSpec) -> Iterator[SpecProblem]:
    """`COLUMN_TYPE_UNSUPPORTED` for each of `options.types` that is not a type, or one that no table can hold."""
    types = spec.options.get("types")
    for column, text in types.items() if isinstance(types, Mapping) else ():
        if isinstance(text, str) and (fault := type_fault(text)):
            yield spec_problem("COLUMN_TYPE_UNSUPPORTED", ("options", "types", column), text, fault, REMEDY)


def type_fault(text: str) -> str:
    """Why no column can be declared with this type; empty when one can."""
    try:
        part = unsupported_part(parse_type(text))
    except FatalError:
        return "not a SQL type"
    except RecursionError:
        return "a type nested too deeply"
    return "" if part is None else f"no table can hold the type {str(part)[:80]}"
