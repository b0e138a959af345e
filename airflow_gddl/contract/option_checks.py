"""Checks of single options of the built-in dialects."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_gddl.contract.debezium import fault_of_log_began
from airflow_gddl.contract.dms import fault_of_delimiter
from airflow_gddl.contract.path_format import PathFormat
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem, spec_problem


def check_options(spec: TableSpec) -> Iterator[SpecProblem]:
    """Values of options that have a form of their own; names and types are checked elsewhere."""
    if spec.dialect == "dms":
        yield from _csv_delimiter(spec.options.get("csv_delimiter"))
    elif spec.dialect == "debezium":
        yield from _path_format(spec.options.get("path_format"))
        yield from _log_began(spec.options.get("log_began"))


def _csv_delimiter(delimiter: object) -> Iterator[SpecProblem]:
    if isinstance(delimiter, str) and (fault := fault_of_delimiter(delimiter)):
        remedy = 'write one character in quotes, e.g. ";"; a tab is "\\t" in double quotes'
        yield spec_problem("FIELD_VALUE", ("options", "csv_delimiter"), delimiter, fault, remedy)


def _path_format(text: object) -> Iterator[SpecProblem]:
    if not isinstance(text, str):
        return
    try:
        PathFormat.parsed(text)
    except ValueError as error:
        remedy = "write folders as the sink's path.format does, e.g. 'year'=YYYY/'month'=MM/'day'=dd, or drop it"
        yield spec_problem("PATH_FORMAT_INVALID", ("options", "path_format"), text, str(error), remedy)


def _log_began(began: object) -> Iterator[SpecProblem]:
    if (fault := fault_of_log_began(began)) is not None:
        remedy = "write moments as 2026-01-31T12:00:00Z, the oldest first"
        yield spec_problem("LOG_BEGAN_INVALID", ("options", "log_began"), str(began), fault, remedy)
