"""Reads a source's files, and writes a merge into their texts; each edit is verified by reading it back. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata import files
from airflow_gddl.metadata.files import read_yaml
from airflow_gddl.metadata.folder import Folder
from airflow_gddl.metadata.keys import Keys, KeysEntry, read_keys
from airflow_gddl.metadata.problems import DocumentError, one_or_more
from airflow_gddl.metadata.rows import table_files
from airflow_gddl.metadata.settings import Settings
from airflow_gddl.onboarding import merging
from airflow_gddl.onboarding.merging import Absent, Merged, NewRow, Present, ProposedChange
from airflow_gddl.onboarding.rules import Proposal
from airflow_gddl.onboarding.yaml_text import Path, UneditableError, YamlText

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


def _entries(keys: Keys, own_file: str, source: str, *, is_declared: bool) -> dict[str, KeysEntry]:
    """Entries of the source's tables, by `schema.table` in lower case.

    Of a declared source, those without its name count in its own file alone: others may mean a table of another source.
    """
    prefix = f"{source.lower()}:"
    short = {t: e for t, e in keys.entries.items() if ":" not in t and (not is_declared or e.layer.file == own_file)}
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
    row_source = values.get("source") or (defaults.get("source") if isinstance(defaults, dict) else None)
    if row_source not in (None, source):
        raise _unusable(name, f"its rows are of the source {row_source!r:.70}")


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
        own_keys = one_or_more(row["keys"])
        return Present(
            fields=fields, keys=tuple(own_keys) if isinstance(own_keys, list) else (), keys_here=False, fixed=fixed
        )
    here = entry is None or entry.layer.file == keys_file
    return Present(fields=fields, keys=None if entry is None else entry.keys, keys_here=here, fixed=fixed)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by path, those of `options` one by one; lists as tuples."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        inner = {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
        flat |= inner if name in NESTED else {name: value}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in flat.items()}


def _elsewhere(folder: Folder, settings: Settings, own_file: str, source: str) -> dict[str, str]:
    """Tables of the source that other files have; of a source that is not declared, those of all such sources."""
    files_by_table: dict[str, str] = {}
    is_declared = source in settings.sources
    for file in table_files(folder, settings):
        for row in file.rows:
            is_same = (row.landing is None and not is_declared) or (row.identity and row.identity.source == source)
            if row.layer.file != own_file and isinstance(row.table, str) and is_same:
                files_by_table[row.table.lower()] = row.layer.file
    return files_by_table


_TABLES_HEAD = """\
# Proposed by `gddl onboard {source}`. Edits are kept by the next run.
source: {source}
tables:
"""
_KEYS_HEAD = """\
# Proposed by `gddl onboard {source}`, each with its evidence. Edits are kept.
keys:
"""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A file below the metadata folder; `old` is null where there is none yet."""

    name: str
    old: str | None
    new: str


def write_out(files: SourceFiles, source: str, merged: Merged) -> tuple[FileChange, ...]:
    """The files that change, none where nothing does.

    Raises:
        MetadataError: `ONBOARD_UNEDITABLE`.
    """
    tables = _edited(files, files.tables, _TABLES_HEAD.format(source=source), _table_edits(files, merged))
    keys = _edited(files, files.keys, _KEYS_HEAD.format(source=source), _key_edits(files, merged))
    memory = merging.render(merging.remembered(files.before, merged.remembered))
    texts = {
        files.tables: tables,
        files.keys: keys,
        files.memory: memory if merged.remembered or files.before else None,
    }
    return tuple(
        FileChange(name=name, old=files.texts.get(name), new=new)
        for name, new in texts.items()
        if new is not None and new != files.texts.get(name)
    )


Edit = Callable[[YamlText, Any], None]
"""Applies a change to the text, and to the plain value that the text must then have."""


def _edited(files: SourceFiles, name: str, head: str, edits: Sequence[Edit]) -> str | None:
    if not edits:
        return None
    old = files.texts.get(name)
    source = head if old is None or not old.strip() else old
    try:
        text, value = YamlText(source), copy.deepcopy(read_yaml(source))
        for edit in edits:
            edit(text, value)
        new = text.result()
        if read_yaml(new) == value:
            return new
        why = "the edit would also change other values"
    except (UneditableError, DocumentError) as error:
        why = str(error)
    remedy = "write it with a line for each row, as `gddl onboard` itself would"
    raise MetadataError("ONBOARD_UNEDITABLE", f"{name} has a format that can't be edited: {why}", remedy=remedy)


def _table_edits(files: SourceFiles, merged: Merged) -> list[Edit]:
    edits: list[Edit] = []
    for change in merged.changes:
        if change.field != "keys":
            path: Path = ("tables", files.rows[change.table.lower()], *change.field.split("."))
            edits.append(partial(_remove, path) if isinstance(change.new, Absent) else partial(_set, path, change.new))
    if merged.rows:
        rows = [(_row(row), _comment(row.proposal.evidence)) for row in merged.rows]
        edits.append(partial(_append, rows))
    return edits


def _comment(evidence: Mapping[str, str]) -> str:
    """Behind a new row: its extent, and masks, constraints and a filter to consider."""
    return "; ".join(evidence[name] for name in ("size", "mask", "constraints", "where") if evidence.get(name))


def _row(new: NewRow) -> dict[str, Any]:
    """Fields of a row, nested as they are written."""
    row: dict[str, Any] = {"table": new.proposal.table}
    for name, value in new.proposal.fields.items():
        outer, _, inner = name.partition(".")
        if name in new.fixed and name != "enabled":
            continue
        if inner:
            row.setdefault(outer, {})[inner] = plain(value)
        else:
            row[name] = plain(value)
    return row


def _key_edits(files: SourceFiles, merged: Merged) -> list[Edit]:
    edits: list[Edit] = []
    added = [
        (f"{files.key_prefix}{new.proposal.table}", new.proposal.keys or (), new.proposal.evidence.get("keys", ""))
        for new in merged.rows
        if new.named is None
    ]
    for change in merged.changes:
        if change.field == "keys":
            name = files.spelled.get(change.table.lower())
            if name is None:
                added.append((f"{files.key_prefix}{change.table}", change.new, change.evidence))
            else:
                edits.append(partial(_renew, name, change, files.before.get(change.table)))
    return [*edits, partial(_extend, added)] if added else edits


def _set(path: Path, new: Any, text: YamlText, value: Any) -> None:
    text.set(path, new)
    for part in path[:-1]:
        value = value.setdefault(part, {}) if isinstance(part, str) else value[part]
    value[path[-1]] = plain(new)


def _remove(path: Path, text: YamlText, value: Any) -> None:
    text.remove(path)
    if not _without(value, path):
        _without(value, path[:-1])


def _without(value: Any, path: Path) -> Any:
    """Remove the value at a path; return what held it."""
    for part in path[:-1]:
        value = value[part]
    del value[path[-1]]
    return value


def _renew(name: str, change: ProposedChange, before: Proposal | None, text: YamlText, value: Any) -> None:
    text.set(("keys", name), change.new)
    text.remark(("keys", name), "" if before is None else before.evidence.get("keys", ""), change.evidence)
    value["keys"][name] = plain(change.new)


def _append(rows: Sequence[tuple[dict[str, Any], str]], text: YamlText, value: Any) -> None:
    text.append(("tables",), rows)
    value["tables"] = [*(value.get("tables") or ()), *(row for row, _ in rows)]


def _extend(entries: Sequence[tuple[str, Sequence[str], str]], text: YamlText, value: Any) -> None:
    text.extend(("keys",), entries)
    value["keys"] = {**(value.get("keys") or {}), **{name: list(columns) for name, columns, _ in entries}}
