"""Reads the rows that a source has, and makes files of proposed ones beside them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata.folder import Folder
from airflow_gddl.metadata.keys import Keys, KeysEntry, read_keys
from airflow_gddl.metadata.problems import one_or_more
from airflow_gddl.metadata.rows import Row, TableFile, table_files
from airflow_gddl.metadata.settings import Settings
from airflow_gddl.onboarding import merging
from airflow_gddl.onboarding.merging import Merged, NewRow, Present
from airflow_gddl.onboarding.rules import Proposal
from airflow_gddl.onboarding.yaml_text import comment, flow, text

NESTED = ("options", "column_descriptions")


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """What the metadata folder has of one source.

    Attributes:
        tables, keys: names of files for new rows and their keys, which are not there yet.
        memory: name of the file with the last proposals, and `remembered` its content; None: there is none.
        present: by table in lower case.
        named: table in lower case to the keys that any keys file has.
        elsewhere: table in lower case to the file that has its row for another source.
        before: last proposals, by table.
        fixed: fields that `defaults`, or the declared source, set for rows of a new file.
        key_prefix: begins names in the keys file: `source:` of a declared source, whose tables others may have, too.
    """

    tables: str
    keys: str
    memory: str
    remembered: str | None = None
    present: Mapping[str, Present] = field(default_factory=dict)
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Proposal] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    key_prefix: str = ""


def read_files(folder: Folder, settings: Settings, source: str) -> SourceFiles:
    """
    Raises:
        MetadataError: `ONBOARD_FILE_UNUSABLE`: a file that may have the rows, or their keys, can't be read;
            `ONBOARD_MEMORY_INVALID`.
    """
    memory = f"{merging.FOLDER}/{source}.json"
    remembered = _text(folder, memory)
    keys = read_keys(folder)
    for problem in keys.problems:
        if problem.file.startswith(f"keys/{source}"):
            raise _unusable(problem.file, str(problem))
    declared = settings.sources.get(source)
    of_source = _flat(declared.layer.values) if declared is not None else {}
    entries = _entries(keys, f"keys/{source}.yaml", source, is_declared=declared is not None)
    present: dict[str, Present] = {}
    elsewhere: dict[str, str] = {}
    for file in table_files(folder, settings):
        if file.problems and not file.rows:
            raise _unusable(file.name, str(file.problems[0]))
        for table, row in _named_rows(file):
            if row.identity is not None and row.identity.source == source:
                present[table] = _present(row, entries.get(table))
            elif row.landing is None and declared is None:
                elsewhere[table] = file.name
    return SourceFiles(
        tables=_free(folder, "tables", source),
        keys=_free(folder, "keys", source),
        memory=memory,
        remembered=remembered,
        present=present,
        named={table: entry.keys for table, entry in entries.items()},
        elsewhere={table: name for table, name in elsewhere.items() if table not in present},
        before=merging.parse(remembered or "", memory),
        fixed=frozenset((*_flat(settings.defaults.values), *of_source)),
        key_prefix=f"{source}:" if declared is not None else "",
    )


def _free(folder: Folder, sort: str, source: str) -> str:
    """`tables/<source>.yaml`, or `tables/<source>-2.yaml` and so on where that is there."""
    taken = {name.lower() for name in folder.names(sort)}
    names = itertools.chain((f"{sort}/{source}.yaml",), (f"{sort}/{source}-{n}.yaml" for n in itertools.count(2)))
    return next(name for name in names if name.lower() not in taken)


def _named_rows(file: TableFile) -> Iterator[tuple[str, Row]]:
    """Rows by the name in their source, in lower case."""
    for row in file.rows:
        if isinstance(row.table, str):
            yield (row.identity.name_in_source if row.identity else row.table).lower(), row


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


def _unusable(name: str, why: str) -> MetadataError:
    remedy = "fix the file: it may have the rows, or their keys"
    return MetadataError("ONBOARD_FILE_UNUSABLE", f"{name} can't be read: {why}", remedy=remedy)


def _present(row: Row, entry: KeysEntry | None) -> Present:
    own, *below = row.layers
    fields = {name: value for name, value in _flat(own.values).items() if name not in ("table", "keys")}
    fixed = frozenset(name for layer in below for name in _flat(layer.values))
    if "keys" not in own.values:
        return Present(fields=fields, keys=None if entry is None else entry.keys, fixed=fixed)
    keys = one_or_more(own.values["keys"])
    return Present(fields=fields, keys=tuple(keys) if isinstance(keys, list) else (), fixed=fixed)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by path, those of `options` one by one; lists as tuples."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        inner = {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
        flat |= inner if name in NESTED else {name: value}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in flat.items()}


_TABLES_HEAD = """\
# Proposed by `gddl onboard {source}`: review and edit it. Later runs do not change this file.
source: {source}
tables:
"""
_KEYS_HEAD = """\
# Proposed by `gddl onboard {source}`, each with its evidence.
keys:
"""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A file below the metadata folder; `old` is null where there is none yet."""

    name: str
    old: str | None
    new: str


def write_out(files: SourceFiles, source: str, merged: Merged) -> tuple[FileChange, ...]:
    """New files with the new rows and their keys, and the record of what was proposed; none where nothing is new."""
    rows = [f"  - {flow(_row(row))}{_remark(_comment(row.proposal.evidence))}\n" for row in merged.rows]
    keys = [
        f"  {text(files.key_prefix + one.table)}: {flow(one.keys or ())}{_remark(one.evidence.get('keys', ''))}\n"
        for one in (row.proposal for row in merged.rows if row.named is None)
    ]
    changes = [
        FileChange(name=name, old=None, new=head.format(source=source) + "".join(lines))
        for name, head, lines in ((files.tables, _TABLES_HEAD, rows), (files.keys, _KEYS_HEAD, keys))
        if lines
    ]
    memory = merging.render(merging.remembered(files.before, merged.remembered))
    if memory != files.remembered and (merged.remembered or files.before):
        changes.append(FileChange(name=files.memory, old=files.remembered, new=memory))
    return tuple(changes)


def _remark(words: str) -> str:
    return f"  # {comment(words)}" if words else ""


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
