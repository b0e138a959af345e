"""Checks of single options: declared types, and those of the built-in dialects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.path_format import PathFormat
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem
from airflow_gddl.contract.sql_types import REMEDY, parse_type, unsupported_part


def check_options(spec: TableSpec) -> Iterator[SpecProblem]:
    """Values of options that have a form of their own; names and types are checked elsewhere."""
    yield from _types(spec.options.get("types"))
    if spec.dialect == "dms":
        yield from _csv_delimiter(spec.options.get("csv_delimiter"))
    elif spec.dialect == "debezium":
        yield from _path_format(spec.options.get("path_format"))
        yield from _log_began(spec.options.get("log_began"))


def _types(types: object) -> Iterator[SpecProblem]:
    for column, text in types.items() if isinstance(types, Mapping) else ():
        if isinstance(text, str) and (fault := type_fault(text)):
            yield SpecProblem("COLUMN_TYPE_UNSUPPORTED", ("options", "types", column), text, fault, REMEDY)


def type_fault(text: str) -> str:
    """Why no column can be declared with this type; empty when one can."""
    try:
        part = unsupported_part(parse_type(text))
    except FatalError:
        return "not a SQL type"
    except RecursionError:
        return "a type nested too deeply"
    return "" if part is None else f"no table can hold the type {str(part)[:80]}"


def _csv_delimiter(delimiter: object) -> Iterator[SpecProblem]:
    if not isinstance(delimiter, str):
        return
    if len(delimiter) != 1 or not delimiter.isascii():
        fault = "must be one ASCII character"
    elif delimiter in '"\r\n':
        fault = "a character that quotes or ends lines"
    else:
        return
    remedy = 'write one character in quotes, e.g. ";"; a tab is "\\t" in double quotes'
    yield SpecProblem("FIELD_VALUE", ("options", "csv_delimiter"), delimiter, fault, remedy)


def _path_format(text: object) -> Iterator[SpecProblem]:
    if not isinstance(text, str):
        return
    try:
        PathFormat.parsed(text)
    except ValueError as error:
        remedy = "write folders as the sink's path.format does, e.g. 'year'=YYYY/'month'=MM/'day'=dd, or drop it"
        yield SpecProblem("PATH_FORMAT_INVALID", ("options", "path_format"), text, str(error), remedy)


def _log_began(began: object) -> Iterator[SpecProblem]:
    if not isinstance(began, (list, tuple)):
        return
    fault = ""
    try:
        moments = [moment_of(text) for text in began]
        if moments != sorted(set(moments)):
            fault = "its moments are not in order"
    except ValueError as error:
        fault = str(error)
    if fault:
        remedy = "write moments as 2026-01-31T12:00:00Z, the oldest first"
        yield SpecProblem("LOG_BEGAN_INVALID", ("options", "log_began"), str(began), fault, remedy)
