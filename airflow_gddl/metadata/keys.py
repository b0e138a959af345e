"""Keys in separate files, as written by an automated key finder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.codes import (
    FIELD_TYPE,
    FIELD_UNKNOWN,
    FIELD_VALUE,
    KEYS_CONFLICT,
    KEYS_UNUSED,
    TABLE_AMBIGUOUS,
)
from airflow_gddl.contract.errors import FieldPath, SpecProblem, problem_at
from airflow_gddl.contract.names import NamedTable, TableNames, ambiguous, ambiguous_remedy
from airflow_gddl.metadata import files
from airflow_gddl.metadata.folder import JSON_ENDINGS, YAML_ENDINGS, Folder
from airflow_gddl.metadata.problems import (
    DocumentError,
    Layer,
    Locate,
    Problem,
    one_or_more,
    screen,
    show,
    show_field,
    show_name,
    unread,
)
from airflow_gddl.metadata.validation import joined_names

# Mappings whose entries are merged with the defaults. Not `schedule`, which is a single value.
MERGED = frozenset(
    {
        *("mask", "column_descriptions", "expect", "schema", "schema_evolution"),
        *("table_properties", "tags", "options"),
    }
)


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
    missing = problem.code.endswith("_MISSING")
    path = problem.path[:-1] if missing and len(problem.path) > 1 else problem.path  # a stronger one may lack a field
    having = [layer for layer in layers if _has(layer.values, path)]
    if not having:
        having = [layer for layer in layers if _has(layer.values, problem.path[:1])]
    layer = (having or layers)[0]
    line, column = layer.locate(problem.path) or (None, None)
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


FOLDER = "keys"
ENDINGS = (*YAML_ENDINGS, *JSON_ENDINGS)


@dataclass(frozen=True)
class KeysEntry:
    """Keys that a file names for a table.

    Attributes:
        table: as written: a target, `source:schema.table`, or the name that one source alone has.
        rival: file and line of other keys for the same table (empty: none).
        tables: qualified names of the matching tables, where there are several.
    """

    table: str
    keys: tuple[str, ...]
    layer: Layer
    rival: str = ""
    tables: tuple[str, ...] = ()

    def unused(self, near: str | None) -> Problem:
        """The warning that no row has this table; `near` is a similar name that one has."""
        remedy = (
            f"did you mean {near}?"
            if near
            else ("correct the name, add a metadata row for the table, or remove the keys")
        )
        problem = problem_at(self, "keys", "no metadata row has this table", remedy, KEYS_UNUSED)
        return report(problem, (self.layer,), self.table)


@dataclass(frozen=True)
class Keys:
    """All entries by table in lower case, and what is wrong with the files."""

    entries: Mapping[str, KeysEntry]
    problems: tuple[Problem, ...]

    def of(self, written: object, table: NamedTable | None) -> KeysEntry | None:
        """The entry of a row.

        Args:
            written: its `table`.
            table: what it is called in the lake and in its source; null where that isn't known.
        """
        if not self.entries:
            return None
        names = () if table is None else (f"{table.source}:{table.name_in_source}", table.table)
        candidates = (self.entries.get(name.lower()) for name in (*names, written) if isinstance(name, str))
        return next((entry for entry in candidates if entry is not None), None)

    def for_tables(self, tables: Iterable[NamedTable]) -> Keys:
        """These keys, with entries marked whose name several tables have."""
        if not self.entries:
            return self
        names, entries = TableNames(tables, fold=True), {}
        for name, entry in self.entries.items():
            targets = names.candidates(name)
            entries[name] = replace(entry, tables=tuple(sorted(targets))) if len(targets) > 1 else entry
        return replace(self, entries=entries)


def read_keys(folder: Folder) -> Keys:
    """Every keys file, merged by table (case does not count)."""
    entries: dict[str, KeysEntry] = {}
    problems: list[Problem] = []
    for name in files.having_ending(folder.names(FOLDER), ENDINGS):
        for item in _read(folder, name):
            if isinstance(item, Problem):
                problems.append(item)
                continue
            known = entries.setdefault(item.table.lower(), item)
            if set(known.keys) != set(item.keys):
                position = item.layer.locate(("keys",))
                entries[item.table.lower()] = replace(known, rival=f"{name}:{position.line}" if position else name)
    return Keys(entries, tuple(problems))


def conflict(entry: KeysEntry, row_keys: Any) -> SpecProblem | None:
    """Why a row can't use these keys, given its own keys (null: none)."""
    here = entry.layer.file
    if entry.tables:
        message = f"in {here}, {ambiguous(entry.table, entry.tables)}"
        remedy = ambiguous_remedy(entry.tables)
        return problem_at(entry, "keys", message, remedy, TABLE_AMBIGUOUS)
    remedy = "decide which columns identify a row, and name them in one place"
    if entry.rival:
        message = f"{here} and {entry.rival} name different keys"
        return problem_at(entry, "keys", message, remedy, KEYS_CONFLICT)
    row_keys = one_or_more(row_keys)
    if (
        isinstance(row_keys, list)
        and all(isinstance(key, str) for key in row_keys)
        and set(row_keys) != set(entry.keys)
    ):
        return SpecProblem(KEYS_CONFLICT, ("keys",), row_keys, f"differ from the keys that {here} names", remedy)
    return None


def _read(folder: Folder, name: str) -> Iterator[KeysEntry | Problem]:
    try:
        document = files.read_document(folder, name)
    except (DocumentError, FileNotFoundError) as error:
        yield unread(error, name)
        return
    if fault := _shape(document.values):
        yield report(fault, (document,))
        return
    for table, keys in _mapping(_mapping(document.values).get("keys")).items():
        yield _entry(document, table, keys)


def _shape(value: Any) -> SpecProblem | None:
    remedy = "write keys: and below it schema.table: [column, ...]"
    if value is not None and not isinstance(value, dict):
        return SpecProblem(FIELD_TYPE, (), value, "must be a mapping", remedy)
    for name, item in _mapping(value).items():
        if name != "keys":
            return SpecProblem(FIELD_UNKNOWN, (name,), item, "no such field in a keys file", remedy)
        if item is not None and not isinstance(item, dict):
            return SpecProblem(FIELD_TYPE, (name,), item, "must be a mapping", remedy)
    return None


def _entry(document: Layer, table: str, keys: Any) -> KeysEntry | Problem:
    locate: Locate = lambda path: document.locate(("keys", table, *path[1:]))  # noqa: E731 - passed as a value
    layer = Layer(document.file, {"keys": keys}, locate)
    for problem in screen([keys]):
        return report(replace(problem, path=("keys", *problem.path[1:])), (layer,), table)
    if isinstance(keys, str) and "," in keys:
        return report(replace(joined_names(("keys",), keys), code=FIELD_VALUE), (layer,), table)
    keys = one_or_more(keys)
    if not isinstance(keys, list) or not all(isinstance(key, str) and key.strip() for key in keys):
        message, remedy = "must be a column name or a list of them", "write e.g. [id]; [] for a table without keys"
        return report(SpecProblem(FIELD_VALUE, ("keys",), keys, message, remedy), (layer,), table)
    return KeysEntry(table, tuple(keys), layer)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
