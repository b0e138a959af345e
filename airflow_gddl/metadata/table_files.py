"""Reads table files into rows: each row's values over the defaults of its file and of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from airflow_gddl.contract.errors import FieldPath, SpecProblem
from airflow_gddl.contract.table_names import rendered, template_fault
from airflow_gddl.metadata import files
from airflow_gddl.metadata.checks import check_defaults
from airflow_gddl.metadata.folder import ENDINGS, Folder
from airflow_gddl.metadata.keys import Layer, report
from airflow_gddl.metadata.problems import Problem, unread
from airflow_gddl.metadata.screen import screen
from airflow_gddl.metadata.settings import Settings
from airflow_gddl.metadata.validation import near, written
from airflow_gddl.metadata.values import Document, DocumentError, Position, Refused

FOLDER = "tables"
FIELDS = ("source", "defaults", "tables")


@dataclass(frozen=True)
class Row:
    """A row as written: `own` values over `below`, the strongest first.

    Attributes:
        landing: root of the source that `gddl.yaml` declares; null: the row's source is not declared.
    """

    own: Layer
    below: tuple[Layer, ...]
    landing: str | None = None

    @property
    def table(self) -> object:
        """The name as written, valid or not; null when there is none."""
        return self.own.values.get("table")

    @property
    def identity(self) -> Identity | None:
        """Null where the row's names are not such as tables have."""
        table, source, target = self.table, self.value("source"), self.value("target")
        if not isinstance(table, str) or not isinstance(source, str):
            return None
        if not isinstance(target, str) or template_fault(target):
            return Identity(table, source, table)
        return Identity(rendered(target, source, table), source, table)

    @property
    def shown(self) -> object:
        """The name that its problems carry: that of a table of a declared source says which source's it is."""
        identity = self.identity
        if identity is None or self.landing is None or identity.table == identity.name_in_source:
            return self.table
        return f"{identity.source}:{identity.name_in_source}"

    def value(self, name: str) -> object:
        """A field of the row, or of its defaults."""
        return next((layer.values[name] for layer in (self.own, *self.below) if name in layer.values), None)


class Identity(NamedTuple):
    """A `NamedTable`: the target, and what it is in its source."""

    table: str
    source: str
    name_in_source: str


@dataclass(frozen=True)
class TableFile:
    """Content of a file.

    Attributes:
        refused: table names of rows that are not loaded because of problems of the file.
        passed_over: see `reading.passed_over`; of all files, in an item of its own.
    """

    rows: tuple[Row, ...] = ()
    problems: tuple[Problem, ...] = ()
    refused: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


def table_files(folder: Folder, settings: Settings) -> Iterator[TableFile]:
    """Every file below `tables/`, in the order of their names."""
    names = folder.names(FOLDER)
    for name in files.having_ending(names, ENDINGS):
        try:
            yield _csv(folder, name, settings) if name.lower().endswith(".csv") else _document(folder, name, settings)
        except (DocumentError, FileNotFoundError) as error:
            yield TableFile(problems=(unread(error, name),))
    yield TableFile(passed_over=files.passed_over(names, ENDINGS))


def _csv(folder: Folder, name: str, settings: Settings) -> TableFile:
    below = (settings.defaults, _stem(name))
    rows, problems = [], []
    for row in files.read_csv(files.read_text(folder, name)):
        own = Layer(file=name, values=written(row.values), locate=partial(_same, Position(row.line)))
        if row.fault is None:
            rows.append(_row(own, (), below, settings))
        else:
            problems.append(report(_refused(row.fault), (own,)))
    return TableFile(tuple(rows), tuple(problems))


def _document(folder: Folder, name: str, settings: Settings) -> TableFile:
    document = files.read_document(folder, name)
    values = {} if document.value is None else document.value
    top = Layer(file=name, values=values if isinstance(values, dict) else {}, locate=document.locate)
    faults = tuple(_faults(values, settings)) if isinstance(values, dict) else (_no_mapping(values),)
    tables = top.values.get("tables")
    entries = tables if isinstance(tables, list) else []
    if faults:
        stop = "; no row of this file is loaded"
        problems = (replace(p, message=p.message + stop) for p in (report(fault, (top,)) for fault in faults))
        names = (entry.get("table") for entry in entries if isinstance(entry, dict))
        return TableFile((), tuple(problems), tuple(table for table in names if isinstance(table, str)))
    return _rows(document, entries, _shared(top, document), settings)


def _rows(document: Document, entries: list[Any], shared: Layer, settings: Settings) -> TableFile:
    below = (settings.defaults, _stem(document.file))
    rows, problems = [], []
    for i, entry in enumerate(entries):
        values = entry if isinstance(entry, dict) else {}
        own = Layer(file=document.file, values=written(values), locate=partial(_inside, document, ("tables", i)))
        if isinstance(entry, dict):
            rows.append(_row(own, (shared,), below, settings))
        elif isinstance(entry, Refused):
            problems.append(report(_refused(entry), (own,)))
        else:
            message, remedy = "a row must be a mapping of fields", "write e.g. - {table: shop.orders, keys: [id]}"
            problems.append(report(SpecProblem("ROW_INVALID", (), entry, message, remedy), (own,)))
    return TableFile(tuple(rows), tuple(problems))


def _row(own: Layer, file: tuple[Layer, ...], below: tuple[Layer, ...], settings: Settings) -> Row:
    """The row over its file's defaults, those of its source where that is declared, and those of the settings."""
    row = Row(own, (*file, *below))
    name = row.value("source")
    source = settings.sources.get(name) if isinstance(name, str) else None
    return row if source is None else Row(own, (*file, source.layer, *below), source.landing)


def _faults(values: Mapping[str, Any], settings: Settings) -> Iterator[SpecProblem]:
    """Problems that make a file unusable: without its defaults, its rows would have other meanings."""
    for name, value in values.items():
        if name not in FIELDS:
            yield SpecProblem("FIELD_UNKNOWN", (name,), value, "no such field in a table file", near(name, FIELDS))
    yield from screen({name: value for name, value in values.items() if name != "tables"})
    source, defaults, tables = (values.get(name) for name in FIELDS)
    if isinstance(tables, Refused):
        yield replace(_refused(tables), path=("tables",))
    elif not isinstance(tables, list | None):
        yield SpecProblem("FIELD_TYPE", ("tables",), tables, "must be a list of rows", "begin each row with a dash")
    elif values and "tables" not in values:
        yield SpecProblem("FIELD_MISSING", ("tables",), None, "must be given", "add tables: and the rows below it")
    if not isinstance(source, str | None | Refused):
        yield SpecProblem("FIELD_TYPE", ("source",), source, "must be text", "write the source's short name")
    if isinstance(defaults, dict):
        problems = check_defaults(written(defaults), settings.tiers)
        yield from (replace(problem, path=("defaults", *problem.path)) for problem in problems)
    elif not isinstance(defaults, None | Refused):
        yield SpecProblem(
            "FIELD_TYPE", ("defaults",), defaults, "must be a mapping", "write name: value pairs below it"
        )


def _no_mapping(value: Any) -> SpecProblem:
    message, remedy = "must be a mapping", f"write the fields {', '.join(FIELDS)}"
    if isinstance(value, list):
        remedy = "put `tables:` in a line above the list"
    return SpecProblem("FIELD_TYPE", (), value, message, remedy)


def _shared(top: Layer, document: Document) -> Layer:
    """The file's defaults, its `source` over the one they may name."""
    source = top.values.get("source")
    values = written(top.values.get("defaults") or {})
    if source is None:
        return Layer(file=top.file, values=values, locate=partial(_inside, document, ("defaults",)))

    def locate(path: FieldPath) -> Position | None:
        return document.locate(path if path[:1] == ("source",) else ("defaults", *path))

    return Layer(file=top.file, values={**values, "source": source}, locate=locate)


def _stem(name: str) -> Layer:
    return Layer(file=name, values={"source": PurePosixPath(name).stem}, locate=partial(_same, None))


def _refused(value: Refused) -> SpecProblem:
    return SpecProblem(value.code, (), value, value.message, value.remedy)


def _inside(document: Document, above: FieldPath, path: FieldPath) -> Position | None:
    return document.locate((*above, *path))


def _same(position: Position | None, _: FieldPath) -> Position | None:
    return position
