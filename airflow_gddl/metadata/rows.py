"""Builds a spec from a row and its layers, or collects its problems."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.contract.errors import FatalError, SpecProblem
from airflow_gddl.contract.layout import SHARDS, LandingFolder
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.table_names import REMEDY, rendered
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from airflow_gddl.metadata.checks import check_spec
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.metadata.keys import Keys, KeysEntry, Layer, conflict, merged, report
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.metadata.screen import screen
from airflow_gddl.metadata.sources import Source
from airflow_gddl.metadata.table_files import Row
from airflow_gddl.metadata.validation import TABLE, options_of

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
        return SpecProblem("TARGET_INVALID", ("target",), spec.target, message, REMEDY)
    own = None if target == spec.table else spec.table
    return replace(spec, table=target, target=None, source_table=own, landing=landing)


@dataclass(frozen=True)
class NamedRow:
    """A row that is valid by itself, and its spec."""

    row: Row
    spec: TableSpec

    @property
    def place(self) -> str:
        position = self.row.own.locate(("table",))
        return self.row.own.file if position is None else f"{self.row.own.file}:{position.line}"


@dataclass
class TakenNames:
    """Targets and landing folders of the rows so far; case does not count in names of tables."""

    roots: Roots
    by_target: dict[str, NamedRow] = field(default_factory=dict)
    _by_folder: dict[str, NamedRow] = field(default_factory=dict)
    _above: dict[str, NamedRow] = field(default_factory=dict)

    def take(self, named: NamedRow) -> SpecProblem | None:
        """Reserve the row's names; return the problem if one is taken, or null."""
        spec = named.spec
        folder = LandingFolder.of(self.roots, spec)
        if spec.shards:  # it has no folder of its own, and may share those of its sources
            folder = replace(folder, root=f"{SHARDS}:{spec.source}")
        place = replace(folder, table=folder.table.lower()).path
        problem = self._problem(named, place)
        if problem is None:
            self.by_target[spec.table.lower()] = named
            self._by_folder[place] = named
            self._above |= dict.fromkeys(_folders_above(place), named)
        return problem

    def _problem(self, named: NamedRow, place: str) -> SpecProblem | None:
        spec, same_folder = named.spec, self._by_folder.get(place)
        name = spec.name_in_source
        same_target = self.by_target.get(spec.table.lower())
        if same_folder is not None and (same_folder is same_target or same_folder.spec.source == spec.source):
            message = f"this table has a row already, at {same_folder.place} (case does not count)"
            return SpecProblem("TABLE_DUPLICATE", ("table",), name, message, "remove one of the two rows")
        if same_target is not None:
            other = same_target.spec.qualified_name
            message = f"{spec.qualified_name} and {other} ({same_target.place}) have the target {spec.table}"
            remedy = f"give one of the two sources a target in gddl.yaml, e.g. target: {_TEMPLATE}"
            return SpecProblem("TARGET_TAKEN", ("table",), name, message, remedy)
        above = (self._by_folder[folder] for folder in _folders_above(place) if folder in self._by_folder)
        nested = same_folder or self._above.get(place) or next(above, None)
        if nested is not None:
            mine, other = LandingFolder.of(self.roots, spec).path, LandingFolder.of(self.roots, nested.spec).path
            message = f"its files in {mine} and those of {nested.spec.qualified_name} in {other} ({nested.place}) mix"
            remedy = "give each source in gddl.yaml a landing root of its own"
            return SpecProblem("LANDING_SHARED", ("table",), name, message, remedy)
        return None


def _folders_above(place: str) -> list[str]:
    parts = place.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts) - 1, 1, -1)]


_OWN_OPTIONS = ("verify_connection",)
"""Options that each source has for itself."""


def with_shards(spec: TableSpec, sources: Mapping[str, Source]) -> TableSpec | tuple[SpecProblem, ...]:
    """The spec with the landing root of each of its sources, and their name as the first key column.

    Args:
        sources: those of the settings, by short name.
    """
    if not spec.shards:
        return spec
    if problems := tuple(_problems(spec, sources)):
        return problems
    landings = {shard: sources[shard].landing for shard in spec.shards}
    return replace(spec, keys=(SHARD_COLUMN, *spec.keys), shard_landings=landings)


def _problems(spec: TableSpec, sources: Mapping[str, Source]) -> Iterator[SpecProblem]:
    folders: dict[str, str] = {}
    for i, shard in enumerate(spec.shards):
        path, source = ("shards", i), sources.get(shard)
        if source is None:
            known = ", ".join(sorted(sources)) or "none"
            message = f"no source of gddl.yaml has this name; there are: {known}"
            yield SpecProblem("SHARD_UNKNOWN", path, shard, message, "declare it in gddl.yaml under sources")
            continue
        folder = LandingFolder(source.landing, spec.name_in_source).path.lower()
        if folder in folders:
            message = f"its files and those of {folders[folder]} land in one folder, {folder}"
            remedy = "give each source in gddl.yaml a landing root of its own"
            yield SpecProblem("LANDING_SHARED", path, shard, message, remedy)
        folders[folder] = shard
        if difference := _difference(spec, source):
            remedy = "give the row's sources one dialect and equal options, or load each into a table of its own"
            yield SpecProblem("SHARD_DIFFERS", path, shard, difference, remedy)


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
    layers = (row.own, *row.below) if entry is None else (row.own, entry.layer, *row.below)
    found = screen(row.own.values) or _check(row, layers, entry, tiers)
    if isinstance(found, TableSpec):
        named = resolved(found, None if found.shards else row.landing)
        found = with_shards(named, sources) if isinstance(named, TableSpec) else (named,)
        if isinstance(found, TableSpec):
            return with_expressions(found)
    return tuple(report(problem, layers, row.shown) for problem in found[:MAX_PROBLEMS])


def _check(
    row: Row, layers: tuple[Layer, ...], entry: KeysEntry | None, tiers: Collection[str]
) -> TableSpec | tuple[SpecProblem, ...]:
    values = merged(layers)
    of_keys = conflict(entry, row.own.values.get("keys")) if entry is not None else None
    if entry is not None and values.get("keys") is None:
        values["keys"] = list(entry.keys)
    elif values.get("keys") is None:
        message = "no keys, neither in the row nor in a keys file"
        remedy = "add keys: [column, ...] to the row; [] makes an append-only replica"
        of_keys = SpecProblem("KEYS_MISSING", ("keys",), None, message, remedy)
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


def _beside(found: Collection[SpecProblem], known: Collection[SpecProblem]) -> tuple[SpecProblem, ...]:
    """Problems of fields that have none yet; options are those of a dialect."""
    wrong = {problem.path[0] for problem in known if problem.path}
    wrong |= {"options"} if "dialect" in wrong else set()
    return tuple(problem for problem in found if problem.path[0] not in wrong)


def _with_lists(spec: TableSpec) -> TableSpec:
    """The spec with a single text of an option as a list of one, where the dialect expects a list."""
    if not spec.options:
        return spec
    try:
        return replace(spec, options=options_of(spec.dialect).listed(spec.options))
    except FatalError:
        return spec  # `check_spec` reports the dialect
