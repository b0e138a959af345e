"""Reads table files into rows, and builds a spec from a row and its layers, or collects its problems."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from airflow_gddl.contract.codes import (
    FIELD_MISSING,
    FIELD_REFUSED,
    FIELD_TYPE,
    FIELD_UNKNOWN,
    FIELD_VALUE,
    KEYS_MISSING,
    LANDING_SHARED,
    ROW_INVALID,
    TABLE_DUPLICATE,
    TARGET_TAKEN,
)
from airflow_gddl.contract.errors import FatalError, FieldPath, SpecProblem, below, problem_at
from airflow_gddl.contract.layout import SHARDS, LandingFolder
from airflow_gddl.contract.names import TEMPLATE_REMEDY, rendered, template_fault
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.sources import asked_by
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.table_spec import SHARD_COLUMN, Origin
from airflow_gddl.metadata import files
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.metadata.folder import ENDINGS, Folder
from airflow_gddl.metadata.keys import Keys, KeysEntry, conflict, merged, report
from airflow_gddl.metadata.problems import DocumentError, Layer, Position, Problem, Refused, screen, unread
from airflow_gddl.metadata.settings import Settings
from airflow_gddl.metadata.sources import Source
from airflow_gddl.metadata.validation import TABLE, check_defaults, check_spec, near, options_of, written

FOLDER = "tables"
FIELDS = ("source", "defaults", "tables")


@dataclass(frozen=True)
class Row:
    """A row as written.

    Attributes:
        table: the name, valid or not; null when there is none.
        identity: null where the row's names are not such as tables have.
        landing: root of the source that `gddl.yaml` declares; null: the row's source is not declared.
        layers: its own values and those below, the strongest first.
    """

    table: object
    identity: Identity | None
    landing: str | None
    layers: tuple[Layer, ...]

    @property
    def layer(self) -> Layer:
        return self.layers[0]

    @property
    def shown(self) -> object:
        """The name that its problems carry: that of a table of a declared source says which source's it is."""
        identity = self.identity
        if identity is None or self.landing is None or identity.table == identity.name_in_source:
            return self.table
        return f"{identity.source}:{identity.name_in_source}"


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
    """

    rows: tuple[Row, ...] = ()
    problems: tuple[Problem, ...] = ()
    refused: tuple[str, ...] = ()
    name: str = ""


def table_files(folder: Folder, settings: Settings) -> Iterator[TableFile]:
    """Every file below `tables/`, in the order of their names."""
    for name in files.having_ending(folder.names(FOLDER), ENDINGS):
        read = _csv if name.lower().endswith(".csv") else _document
        try:
            yield replace(read(folder, name, settings), name=name)
        except (DocumentError, FileNotFoundError) as error:
            yield TableFile(problems=(unread(error, name),), name=name)


def _csv(folder: Folder, name: str, settings: Settings) -> TableFile:
    make = partial(_row, file=(), name=_stem(name), settings=settings)
    rows, problems = [], []
    for row in files.read_csv(files.read_text(folder, name)):
        layer = Layer(name, written(row.values), partial(_same, Position(row.line)))
        if row.fault is None:
            rows.append(make(layer))
        else:
            problems.append(report(row.fault.problem(), (layer,)))
    return TableFile(tuple(rows), tuple(problems))


def _document(folder: Folder, name: str, settings: Settings) -> TableFile:
    document = files.read_document(folder, name)
    values = {} if document.values is None else document.values
    top = replace(document, values=values if isinstance(values, dict) else {})
    faults = tuple(_faults(values, settings)) if isinstance(values, dict) else (_no_mapping(values),)
    tables = top.values.get("tables")
    entries = tables if isinstance(tables, list) else []
    if faults:
        stop = "; no metadata row of this file is loaded"
        problems = (report(replace(fault, message=fault.message + stop), (top,)) for fault in faults)
        names = (entry.get("table") for entry in entries if isinstance(entry, dict))
        return TableFile((), tuple(problems), tuple(table for table in names if isinstance(table, str)))
    return _rows(top, entries, settings)


def _rows(document: Layer, entries: list[Any], settings: Settings) -> TableFile:
    make = partial(_row, file=(_shared(document),), name=_stem(document.file), settings=settings)
    rows, problems = [], []
    for i, entry in enumerate(entries):
        values = entry if isinstance(entry, dict) else {}
        layer = Layer(document.file, written(values), partial(_inside, document, ("tables", i)))
        if isinstance(entry, dict):
            rows.append(make(layer))
        elif isinstance(entry, Refused):
            problems.append(report(entry.problem(), (layer,)))
        else:
            message, remedy = "a row must be a mapping of fields", "write e.g. - {table: shop.orders, keys: [id]}"
            problems.append(report(SpecProblem(ROW_INVALID, (), entry, message, remedy), (layer,)))
    return TableFile(tuple(rows), tuple(problems))


def _row(own: Layer, file: tuple[Layer, ...], name: Layer, settings: Settings) -> Row:
    """The row of its own layer: over its file's defaults, those of its source where that is declared, those of the
    settings, and what the file's name says.
    """
    above, below = (own, *file), (settings.defaults, name)
    named = _value((*above, *below), "source")
    source = settings.sources.get(named) if isinstance(named, str) else None
    layers = (*above, *below) if source is None else (*above, source.layer, *below)
    return Row(own.values.get("table"), _identity(layers), None if source is None else source.landing, layers)


def _value(layers: Sequence[Layer], name: str) -> object:
    return next((layer.values[name] for layer in layers if name in layer.values), None)


def _identity(layers: Sequence[Layer]) -> Identity | None:
    table, source, target = layers[0].values.get("table"), _value(layers, "source"), _value(layers, "target")
    if not isinstance(table, str) or not isinstance(source, str):
        return None
    if not isinstance(target, str) or template_fault(target):
        return Identity(table, source, table)
    return Identity(rendered(target, source, table), source, table)


def _faults(values: Mapping[str, Any], settings: Settings) -> Iterator[SpecProblem]:
    """Problems that make a file unusable: without its defaults, its rows would have other meanings."""
    for name, value in values.items():
        if name not in FIELDS:
            yield SpecProblem(FIELD_UNKNOWN, (name,), value, "no such field in a table file", near(name, FIELDS))
    yield from screen({name: value for name, value in values.items() if name != "tables"})
    source, defaults, tables = (values.get(name) for name in FIELDS)
    if isinstance(tables, Refused):
        yield tables.problem(("tables",))
    elif not isinstance(tables, list | None):
        yield SpecProblem(FIELD_TYPE, ("tables",), tables, "must be a list of rows", "begin each row with a dash")
    elif values and "tables" not in values:
        yield SpecProblem(FIELD_MISSING, ("tables",), None, "must be given", "add tables: and the rows below it")
    if not isinstance(source, str | None | Refused):
        yield SpecProblem(FIELD_TYPE, ("source",), source, "must be text", "write the source's short name")
    if isinstance(defaults, dict):
        yield from below(check_defaults(written(defaults), settings.tiers), "defaults")
    elif not isinstance(defaults, None | Refused):
        yield SpecProblem(FIELD_TYPE, ("defaults",), defaults, "must be a mapping", "write name: value pairs below it")


def _no_mapping(value: Any) -> SpecProblem:
    message, remedy = "must be a mapping", f"write the fields {', '.join(FIELDS)}"
    if isinstance(value, list):
        remedy = "put `tables:` in a line above the list"
    return SpecProblem(FIELD_TYPE, (), value, message, remedy)


def _shared(document: Layer) -> Layer:
    """The file's defaults, its `source` over the one they may name."""
    source = document.values.get("source")
    values = written(document.values.get("defaults") or {})
    if source is None:
        return Layer(document.file, values, partial(_inside, document, ("defaults",)))

    def locate(path: FieldPath) -> Position | None:
        return document.locate(path if path[:1] == ("source",) else ("defaults", *path))

    return Layer(document.file, {**values, "source": source}, locate)


def _stem(name: str) -> Layer:
    return Layer(name, {"source": PurePosixPath(name).stem})


def _inside(document: Layer, above: FieldPath, path: FieldPath) -> Position | None:
    return document.locate((*above, *path))


def _same(position: Position, _: FieldPath) -> Position:
    return position


_TEMPLATE = "'{source}_{schema}.{table}'"


def resolved(spec: TableSpec, landing: str | None) -> TableSpec | SpecProblem:
    """The spec under its target's name.

    Args:
        spec: as its row says it.
        landing: of its declared source; null: the source is not declared.
    """
    if spec.target is None:
        return spec if landing is None else replace(spec, landing=landing)
    target = rendered(spec.target, spec.source, spec.table)
    if fault := table_name_fault(target):
        message = f"{spec.source}:{spec.table} would be {target!r}: {fault}"
        return problem_at(spec, "target", message, TEMPLATE_REMEDY)
    source_name = None if target == spec.table else spec.table
    return replace(spec, table=target, target=None, source_table=source_name, landing=landing)


@dataclass(frozen=True)
class NamedRow:
    """A row that is valid by itself, and its spec."""

    row: Row
    spec: TableSpec

    @property
    def place(self) -> str:
        layer = self.row.layer
        position = layer.locate(("table",))
        return layer.file if position is None else f"{layer.file}:{position.line}"


@dataclass
class TakenNames:
    """Targets and landing folders of the rows so far; case does not count in names of tables."""

    roots: Roots
    by_target: dict[str, NamedRow] = field(default_factory=dict)
    _by_folder: dict[str, NamedRow] = field(default_factory=dict)
    _above: dict[str, NamedRow] = field(default_factory=dict)
    _read_once: dict[tuple[str, str], tuple[str, NamedRow]] = field(default_factory=dict)

    def take(self, named: NamedRow) -> SpecProblem | None:
        """Reserve the row's names; return the problem if one is taken, or null."""
        spec = named.spec
        # One with shards has no folder of its own, and may share those of its sources.
        root = f"{SHARDS}:{spec.source}" if spec.shards else LandingFolder.of(self.roots, spec).root
        place = LandingFolder(root, spec.name_in_source.lower()).path
        folders = _with_those_above(place.rpartition("/")[0])
        problem = self._problem(named, place, folders)
        if problem is None:
            self.by_target[spec.table.lower()] = named
            self._by_folder[place] = named
            self._above |= dict.fromkeys(folders, named)
            for read, reader in _reads_once(spec):
                self._read_once.setdefault(read, (reader, named))
        return problem

    def _problem(self, named: NamedRow, place: str, folders: Sequence[str]) -> SpecProblem | None:
        spec, same_folder = named.spec, self._by_folder.get(place)
        name = spec.name_in_source
        same_target = self.by_target.get(spec.table.lower())
        if same_folder is not None and (same_folder is same_target or same_folder.spec.source == spec.source):
            message = f"this table has a row already, at {same_folder.place} (case does not count)"
            return SpecProblem(TABLE_DUPLICATE, ("table",), name, message, "remove one of the two rows")
        if same_target is not None:
            other = same_target.spec.qualified_name
            message = f"{spec.qualified_name} and {other} ({same_target.place}) have the target {spec.table}"
            remedy = f"give one of the two sources a target in gddl.yaml, e.g. target: {_TEMPLATE}"
            return SpecProblem(TARGET_TAKEN, ("table",), name, message, remedy)
        above = (self._by_folder[folder] for folder in folders if folder in self._by_folder)
        nested = same_folder or self._above.get(place) or next(above, None)
        if nested is not None:
            mine, other = LandingFolder.of(self.roots, spec).path, LandingFolder.of(self.roots, nested.spec).path
            message = f"its files in {mine} and those of {nested.spec.qualified_name} in {other} ({nested.place}) mix"
            remedy = "give each source in gddl.yaml a landing root of its own"
            return SpecProblem(LANDING_SHARED, ("table",), name, message, remedy)
        return self._read_problem(spec)

    def _read_problem(self, spec: TableSpec) -> SpecProblem | None:
        """Of what one table alone may read, or the tables of one source."""
        for read, reader in _reads_once(spec):
            first, other = self._read_once.get(read, (reader, None))
            if other is not None and first != reader and (taken := asked_by(spec)[read[0]].taken) is not None:
                return taken(spec, f"{other.spec.qualified_name} ({other.place})")
        return None


def _reads_once(spec: TableSpec) -> Iterator[tuple[tuple[str, str], str]]:
    """Names of sources that jobs read, each with what is read once, and the reader."""
    for name, source in asked_by(spec).items():
        what, reader = source.read_once(spec)
        if what:
            yield (name, what), reader


@functools.lru_cache(maxsize=4096)  # tables of a schema share them
def _with_those_above(folder: str) -> tuple[str, ...]:
    parts = folder.split("/")
    return tuple("/".join(parts[:n]) for n in range(len(parts), 1, -1))


_OWN_OPTIONS = ("verify_connection",)
"""Options that each source has for itself."""


def with_shards(spec: TableSpec, sources: Mapping[str, Source]) -> TableSpec | tuple[SpecProblem, ...]:
    """The spec with landing root and origin of each of its sources, and their name as the first key column.

    Args:
        sources: those of the settings, by short name.
    """
    if not spec.shards:
        return spec
    if problems := tuple(_problems(spec, sources)):
        return problems
    landings = {shard: sources[shard].landing for shard in spec.shards}
    origins = {shard: origin for shard in spec.shards if (origin := sources[shard].origin) != Origin()}
    return replace(spec, keys=(SHARD_COLUMN, *spec.keys), shard_landings=landings, shard_origins=origins)


def _problems(spec: TableSpec, sources: Mapping[str, Source]) -> Iterator[SpecProblem]:
    folders: dict[str, str] = {}
    for i, shard in enumerate(spec.shards):
        path, source = ("shards", i), sources.get(shard)
        if source is None:
            known = ", ".join(sorted(sources)) or "none"
            message = f"no source of gddl.yaml has this name; there are: {known}"
            yield SpecProblem(FIELD_VALUE, path, shard, message, "declare it in gddl.yaml under sources")
            continue
        folder = LandingFolder(source.landing, spec.name_in_source).path.lower()
        if folder in folders:
            message = f"its files and those of {folders[folder]} land in one folder, {folder}"
            remedy = "give each source in gddl.yaml a landing root of its own"
            yield SpecProblem(LANDING_SHARED, path, shard, message, remedy)
        folders[folder] = shard
        if difference := _difference(spec, source):
            remedy = "give the row's sources one dialect and equal options, or load each into a table of its own"
            yield SpecProblem(FIELD_REFUSED, path, shard, difference, remedy)


def _difference(spec: TableSpec, source: Source) -> str:
    """What of the source is not as the row has it; empty: nothing."""
    values = source.layer.values
    if values.get("dialect", spec.dialect) != spec.dialect:
        return f"its dialect is {values['dialect']}, that of the row {spec.dialect}"
    options = values.get("options")
    for name, value in (options if isinstance(options, Mapping) else {}).items():
        if name not in _OWN_OPTIONS and spec.options.get(name) != value:
            return f"its options.{name} is {value!r}, that of the row {spec.options.get(name)!r}"
    return ""


MAX_PROBLEMS = 50
"""Maximum number of problems reported for a row."""
# Placeholders for invalid fields, so that the others can be checked; valid with any other values.
_PLACEHOLDERS = {"table": "schema.name", "keys": ["(placeholder)"]}


def assess(
    row: Row, keys: Keys, tiers: Collection[str], sources: Mapping[str, Source]
) -> TableSpec | tuple[Problem, ...]:
    """The spec a row makes, defaults filled in; else all its problems, each at the place that set the value."""
    entry = keys.of(row.table, row.identity)
    own, *below = row.layers
    layers = (own, *below) if entry is None else (own, entry.layer, *below)
    outcome = screen(own.values) or _check(row, layers, entry, tiers)
    if isinstance(outcome, TableSpec):
        named = resolved(outcome, None if outcome.shards else row.landing)
        outcome = with_shards(named, sources) if isinstance(named, TableSpec) else (named,)
        if isinstance(outcome, TableSpec):
            return with_expressions(outcome)
    return tuple(report(problem, layers, row.shown) for problem in outcome[:MAX_PROBLEMS])


def _check(
    row: Row, layers: tuple[Layer, ...], entry: KeysEntry | None, tiers: Collection[str]
) -> TableSpec | tuple[SpecProblem, ...]:
    values = merged(layers)
    of_keys = conflict(entry, row.layer.values.get("keys")) if entry is not None else None
    if entry is not None and values.get("keys") is None:
        values["keys"] = list(entry.keys)
    elif values.get("keys") is None:
        message = "no keys, neither in the metadata row nor in a keys file"
        remedy = "add keys: [column, ...] to the row; [] makes an append-only replica"
        of_keys = SpecProblem(KEYS_MISSING, ("keys",), None, message, remedy)
    problems: tuple[SpecProblem, ...] = () if of_keys is None else (of_keys,)
    if problems:
        values["keys"] = _PLACEHOLDERS["keys"]
    built = TABLE.build(values)
    problems += built if isinstance(built, tuple) else ()
    spec = _of_sound_fields(values, problems) if isinstance(built, tuple) else built
    if spec is not None:
        spec = _with_lists(spec)
        problems += _beside(check_spec(spec, tiers), problems)
    return spec if spec is not None and not problems else problems


def _of_sound_fields(values: Mapping[str, Any], problems: Collection[SpecProblem]) -> TableSpec | None:
    """The spec without the fields that have problems; null where it can't be built without them."""
    wrong = {problem.path[0] for problem in problems if problem.path}
    sound = {name: value for name, value in values.items() if name not in wrong}
    built = TABLE.build({**_PLACEHOLDERS, **sound})
    return built if isinstance(built, TableSpec) else None


def _beside(problems: Collection[SpecProblem], known: Collection[SpecProblem]) -> tuple[SpecProblem, ...]:
    """Problems of fields that have none yet; options are those of a dialect."""
    wrong = {problem.path[0] for problem in known if problem.path}
    wrong |= {"options"} if "dialect" in wrong else set()
    return tuple(problem for problem in problems if problem.path[0] not in wrong)


def _with_lists(spec: TableSpec) -> TableSpec:
    """The spec with a single text of an option as a list of one, where the dialect expects a list."""
    if not spec.options:
        return spec
    try:
        return replace(spec, options=options_of(spec.dialect).listed(spec.options))
    except FatalError:
        return spec  # `check_spec` reports the dialect
