"""The current metadata of a source's tables, in its own and in other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata import files
from airflow_gddl.metadata.folder import Folder
from airflow_gddl.metadata.keys import Keys, KeysEntry, read_keys
from airflow_gddl.metadata.settings import Settings
from airflow_gddl.metadata.table_files import table_files
from airflow_gddl.metadata.values import DocumentError, one_or_more
from airflow_gddl.onboarding import merging
from airflow_gddl.onboarding.merging import Present
from airflow_gddl.onboarding.rules import Proposal

NESTED = ("options", "column_descriptions")


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """The files of one source, by their names below the metadata folder, with their content.

    Attributes:
        texts: by name; a file that is not there is absent.
        rows: place of each row in the tables file, by table in lower case.
        present: by table in lower case.
        spelled: table in lower case to its name in the keys file.
        named: table in lower case to the keys that any keys file has.
        elsewhere: table in lower case to the file that has its row.
        before: last proposals, by table.
        fixed: fields that `defaults`, or the declared source, set for rows of the tables file.
        key_prefix: begins names in the keys file: `source:` of a declared source, whose tables others may have, too.
    """

    tables: str
    keys: str
    memory: str
    texts: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    present: Mapping[str, Present] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Proposal] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    key_prefix: str = ""


def read_files(folder: Folder, settings: Settings, source: str) -> SourceFiles:
    """
    Raises:
        MetadataError: `ONBOARD_FILE_UNUSABLE`: a file that is to be changed can't be read, or is another source's;
            `ONBOARD_MEMORY_INVALID`.
    """
    names = {sort: f"{sort}/{source}.yaml" for sort in ("tables", "keys")}
    memory = f"{merging.FOLDER}/{source}.json"
    texts = {name: text for name in (*names.values(), memory) if (text := _text(folder, name)) is not None}
    values = _document(folder, names["tables"], texts)
    _check_source(values, names["tables"], source)
    keys = read_keys(folder)
    for problem in keys.problems:
        if problem.file == names["keys"]:
            raise _unusable(names["keys"], str(problem))
    rows = list(_rows(values))
    declared = settings.sources.get(source)
    of_source = _flat(declared.layer.values) if declared is not None else {}
    fixed = frozenset((*_flat(settings.defaults.values), *of_source, *_flat(values.get("defaults") or {})))
    entries = _entries(keys, names["keys"], source, is_declared=declared is not None)
    return SourceFiles(
        **names,
        memory=memory,
        texts=texts,
        rows={row["table"].lower(): place for place, row in rows},
        present={row["table"].lower(): _present(row, entries, names["keys"], fixed) for _, row in rows},
        spelled={table: entry.table for table, entry in entries.items() if entry.layer.file == names["keys"]},
        named={table: entry.keys for table, entry in entries.items()},
        elsewhere=_elsewhere(folder, settings, names["tables"], source),
        before=merging.parse(texts.get(memory, ""), memory),
        fixed=fixed,
        key_prefix=f"{source}:" if declared is not None else "",
    )


def _entries(keys: Keys, own: str, source: str, *, is_declared: bool) -> dict[str, KeysEntry]:
    """Entries of the source's tables, by `schema.table` in lower case.

    Of a declared source, those without its name count in its own file alone: others may mean a table of another source.
    """
    prefix = f"{source.lower()}:"
    short = {t: e for t, e in keys.entries.items() if ":" not in t and (not is_declared or e.layer.file == own)}
    return short | {t.removeprefix(prefix): e for t, e in keys.entries.items() if t.startswith(prefix)}


def _text(folder: Folder, name: str) -> str | None:
    try:
        return folder.read(name).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(name, str(error)) from error


def _document(folder: Folder, name: str, texts: Mapping[str, str]) -> Mapping[str, Any]:
    if name not in texts:
        return {}
    try:
        value = files.read_document(folder, name).value
    except DocumentError as error:
        where = f" (line {error.position.line})" if error.position else ""
        raise _unusable(name, f"{error.message}{where}") from error
    if value is not None and not isinstance(value, dict):
        raise _unusable(name, "it is not a mapping")
    if value is not None and not isinstance(value.get("tables"), list | None):
        raise _unusable(name, "tables is not a list")
    return value or {}


def _check_source(values: Mapping[str, Any], name: str, source: str) -> None:
    defaults = values.get("defaults")
    own = values.get("source") or (defaults.get("source") if isinstance(defaults, dict) else None)
    if own not in (None, source):
        raise _unusable(name, f"its rows are of the source {own!r:.70}")


def _unusable(name: str, why: str) -> MetadataError:
    remedy = "fix the file, or choose another source name"
    return MetadataError("ONBOARD_FILE_UNUSABLE", f"{name} can't be edited: {why}", remedy=remedy)


def _rows(values: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for place, row in enumerate(values.get("tables") or ()):
        if isinstance(row, dict) and isinstance(row.get("table"), str):
            yield place, row


def _present(
    row: Mapping[str, Any], entries: Mapping[str, KeysEntry], keys_file: str, fixed: frozenset[str]
) -> Present:
    entry = entries.get(row["table"].lower())
    fields = {name: value for name, value in _flat(row).items() if name not in ("table", "keys")}
    if "keys" in row:
        own = one_or_more(row["keys"])
        return Present(fields=fields, keys=tuple(own) if isinstance(own, list) else (), keys_here=False, fixed=fixed)
    here = entry is None or entry.layer.file == keys_file
    return Present(fields=fields, keys=None if entry is None else entry.keys, keys_here=here, fixed=fixed)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by path, those of `options` one by one; lists as tuples."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        inner = {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
        flat |= inner if name in NESTED else {name: value}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in flat.items()}


def _elsewhere(folder: Folder, settings: Settings, own: str, source: str) -> dict[str, str]:
    """Tables of the source that other files have; of a source that is not declared, those of all such sources."""
    found: dict[str, str] = {}
    is_declared = source in settings.sources
    for file in table_files(folder, settings):
        for row in file.rows:
            is_same = (row.landing is None and not is_declared) or (row.identity and row.identity.source == source)
            if row.own.file != own and isinstance(row.table, str) and is_same:
                found[row.table.lower()] = row.own.file
    return found
