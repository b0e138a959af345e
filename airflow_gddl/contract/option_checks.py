"""Checks of `options`: of DMS, Debezium, topics and captured logs."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator, Mapping

from airflow_gddl.contract.codes import COLUMN_RESERVED, COLUMN_TYPE_UNSUPPORTED, FIELD_VALUE
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError, SpecProblem
from airflow_gddl.contract.extensions import DIALECTS, DmsOptions, unescaped
from airflow_gddl.contract.file_names import PathFormat
from airflow_gddl.contract.flat_events import is_field
from airflow_gddl.contract.sql_types import REMEDY, parse_type, unsupported_part
from airflow_gddl.contract.table_spec import (
    TableSpec,
)


def check_options(spec: TableSpec) -> Iterator[SpecProblem]:
    """Values of options that have a form of their own; names and types are checked elsewhere."""
    yield from _types(spec.options.get("types"))
    yield from _operation_among_columns(spec)
    try:
        check = DIALECTS.get(spec.dialect).check
        yield from () if check is None else DIALECTS.load(check)(spec.options)
    except FatalError:
        return  # the dialect is reported with names and types


def dms_problems(options: Mapping[str, object]) -> Iterator[SpecProblem]:
    yield from _path_format(options.get("path_format"))
    yield from _csv_delimiter(options.get("csv_delimiter"))
    yield from _csv_columns(options.get("csv_columns"))
    yield from _csv_added(options.get("csv_added"), options.get("csv_columns"))
    yield from _zone(options.get("date_partition_timezone"))
    yield from _csv_row_delimiter(options.get("csv_row_delimiter"), options.get("csv_delimiter", ","))


def debezium_problems(options: Mapping[str, object]) -> Iterator[SpecProblem]:
    yield from _path_format(options.get("path_format"))
    yield from _log_began(options.get("log_began"))
    if options.get("flat_prefix") == "":
        what = "without a prefix, the fields of an event are not distinguished from columns of the table"
        yield _wrong("flat_prefix", "", what, "set add.fields.prefix in the transform, e.g. __, and name it here")
    yield from _flat_fields(options.get("flat_fields"))
    if options.get("unavailable") == "":
        what = "without a placeholder, an empty value is not distinguished from one that the source did not send"
        remedy = "name unavailable.value.placeholder of the connector, or leave it out for Debezium's own"
        yield _wrong("unavailable", "", what, remedy)


def _wrong(option: str, value: str, fault: str, remedy: str) -> SpecProblem:
    return SpecProblem(FIELD_VALUE, ("options", option), value, fault, remedy)


def _flat_fields(fields: object) -> Iterator[SpecProblem]:
    known: set[str] = set()
    for name, new in fields.items() if isinstance(fields, Mapping) else ():
        path = ("options", "flat_fields", str(name))
        if not is_field(str(name)):
            remedy = "name it as add.fields of the transform does, e.g. op or source.ts_ms"
            yield SpecProblem(FIELD_VALUE, path, str(name), "no field of a change event", remedy)
        if not new or str(new) in known:
            what = "another field has this name" if new else "no name"
            yield SpecProblem(FIELD_VALUE, path, str(new), what, "write the name after the colon of add.fields")
        known.add(str(new))


def _operation_among_columns(spec: TableSpec) -> Iterator[SpecProblem]:
    """Refuse a column of the source with the name of that of operations, which would be read in its place."""
    operation, columns = spec.options.get("op_column", DmsOptions().op_column), spec.options.get("csv_columns")
    if spec.dialect == "dms" and spec.mode == "changes" and isinstance(columns, (list, tuple)) and operation in columns:
        fault = "the name of the column that holds operations, which comes before these columns and is not among them"
        remedy = "give the source's column another name here, or drop it if it is no column of the source"
        yield SpecProblem(COLUMN_RESERVED, ("options", "csv_columns"), str(operation), fault, remedy)


def _types(types: object) -> Iterator[SpecProblem]:
    for column, text in types.items() if isinstance(types, Mapping) else ():
        if isinstance(text, str) and (fault := type_fault(text)):
            yield SpecProblem(COLUMN_TYPE_UNSUPPORTED, ("options", "types", column), text, fault, REMEDY)


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
    character = unescaped(delimiter)
    if len(character) != 1 or not character.isascii() or character == "\0":
        fault = "must be one ASCII character"
    elif character in '"\r\n':
        fault = "a character that quotes or ends lines"
    else:
        return
    remedy = (
        'write one character in quotes, e.g. ";"; a tab is "\\t" in double quotes, another control character '
        "its number in single ones, '\\x01'"
    )
    yield _wrong("csv_delimiter", delimiter, fault, remedy)


def _csv_columns(columns: object) -> Iterator[SpecProblem]:
    names = list(columns) if isinstance(columns, (list, tuple)) else []
    for name in sorted({str(name) for name in names if names.count(name) > 1}):
        remedy = "name each column once, in the order of the files"
        yield _wrong("csv_columns", name, "named twice", remedy)


def _csv_added(added: object, columns: object) -> Iterator[SpecProblem]:
    if not isinstance(added, (list, tuple)) or not isinstance(columns, (list, tuple)):
        return
    for name in added:
        if name not in columns or list(added).count(name) > 1:
            fault = "named twice" if name in columns else "not among csv_columns"
            remedy = "name columns of csv_columns that were added later, in the order in which they were"
            yield _wrong("csv_added", str(name), fault, remedy)


def _zone(name: object) -> Iterator[SpecProblem]:
    if isinstance(name, str) and name not in zoneinfo.available_timezones():
        remedy = "write DatePartitionTimezone of the endpoint, e.g. Europe/Berlin, or UTC"
        yield _wrong("date_partition_timezone", name, "no zone of the IANA database", remedy)


def _csv_row_delimiter(delimiter: object, of_fields: object) -> Iterator[SpecProblem]:
    if not isinstance(delimiter, str):
        return
    text, of_fields = unescaped(delimiter), unescaped(str(of_fields))
    if not text or '"' in text or "\0" in text or text == of_fields:
        remedy = 'write CsvRowDelimiter of the endpoint; a line feed is "\\n" in double quotes'
        fault = "no text, one with a quotation mark or a NUL, or csv_delimiter"
        yield _wrong("csv_row_delimiter", delimiter, fault, remedy)


def _path_format(text: object) -> Iterator[SpecProblem]:
    if not isinstance(text, str):
        return
    try:
        PathFormat.parsed(text)
    except ValueError as error:
        remedy = "write folders as the sink's path.format does, e.g. 'year'=YYYY/'month'=MM/'day'=dd, or drop it"
        yield _wrong("path_format", text, str(error), remedy)


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
        yield _wrong("log_began", str(began), fault, remedy)
