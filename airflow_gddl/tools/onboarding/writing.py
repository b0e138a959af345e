"""Reads which tables of a source have rows, and makes files of proposed ones beside them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.codes import ONBOARD_REFUSED
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata.folder import Folder
from airflow_gddl.metadata.keys import Keys, read_keys
from airflow_gddl.metadata.rows import Row, TableFile, table_files
from airflow_gddl.metadata.settings import Settings
from airflow_gddl.tools.onboarding.rules import Proposal
from airflow_gddl.tools.onboarding.yaml_text import comment, flow, text

_NESTED = ("options", "column_descriptions")


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """What the metadata folder has of one source.

    Attributes:
        tables, keys: names of files for new rows and their keys, which are not there yet.
        present: tables that have a row, in lower case.
        named: table in lower case to the keys that any keys file has.
        elsewhere: table in lower case to the file that has its row for another source.
        fixed: fields that `defaults`, or the declared source, set for rows of a new file.
        key_prefix: begins names in the keys file: `source:` of a declared source, whose tables others may have, too.
    """

    tables: str
    keys: str
    present: frozenset[str]
    named: Mapping[str, tuple[str, ...]]
    elsewhere: Mapping[str, str]
    fixed: frozenset[str]
    key_prefix: str


def read_files(folder: Folder, settings: Settings, source: str) -> SourceFiles:
    """
    Raises:
        MetadataError: `ONBOARD_REFUSED`: a file that may have the rows, or their keys, can't be read.
    """
    keys = read_keys(folder)
    for problem in keys.problems:
        if problem.file.startswith(f"keys/{source}"):
            raise _unusable(problem.file, str(problem))
    declared = settings.sources.get(source)
    present: set[str] = set()
    elsewhere: dict[str, str] = {}
    for file in table_files(folder, settings):
        if file.problems and not file.rows:
            raise _unusable(file.name, str(file.problems[0]))
        for table, row in _named_rows(file):
            if row.identity is not None and row.identity.source == source:
                present.add(table)
            elif row.landing is None and declared is None:
                elsewhere[table] = file.name
    return SourceFiles(
        tables=_free(folder, "tables", source),
        keys=_free(folder, "keys", source),
        present=frozenset(present),
        named=_named_keys(keys, f"keys/{source}.yaml", source, is_declared=declared is not None),
        elsewhere=elsewhere,
        fixed=frozenset(
            (*_paths(settings.defaults.values), *(_paths(declared.layer.values) if declared is not None else ()))
        ),
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


def _named_keys(keys: Keys, own_file: str, source: str, *, is_declared: bool) -> dict[str, tuple[str, ...]]:
    """Keys of the source's tables, by `schema.table` in lower case.

    Of a declared source, those without its name count in its own file alone: others may mean a table of another source.
    """
    prefix = f"{source.lower()}:"
    named = {
        table: entry.keys
        for table, entry in keys.entries.items()
        if ":" not in table and (not is_declared or entry.layer.file == own_file)
    }
    return named | {t.removeprefix(prefix): e.keys for t, e in keys.entries.items() if t.startswith(prefix)}


def _unusable(name: str, why: str) -> MetadataError:
    remedy = "fix the file: it may have the rows, or their keys"
    return MetadataError(ONBOARD_REFUSED, f"{name} can't be read: {why}", remedy=remedy)


def _paths(row: Mapping[str, Any]) -> Iterator[str]:
    """Fields by path, those of `options` one by one."""
    for name, value in row.items():
        if name in _NESTED and isinstance(value, dict):
            yield from (f"{name}.{key}" for key in value)
        else:
            yield name


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


def write_out(files: SourceFiles, source: str, proposals: Sequence[Proposal]) -> tuple[FileChange, ...]:
    """New files with the proposed rows and their keys; none where nothing is new."""
    rows = [f"  - {flow(_row(one, files.fixed))}{_remark(one.comment)}\n" for one in proposals]
    keys = [
        f"  {text(files.key_prefix + one.table)}: {flow(one.keys)}{_remark(one.evidence)}\n"
        for one in proposals
        if one.table.lower() not in files.named
    ]
    return tuple(
        FileChange(name=name, old=None, new=head.format(source=source) + "".join(lines))
        for name, head, lines in ((files.tables, _TABLES_HEAD, rows), (files.keys, _KEYS_HEAD, keys))
        if lines
    )


def _remark(words: str) -> str:
    return f"  # {comment(words)}"


def _row(proposal: Proposal, fixed: frozenset[str]) -> dict[str, Any]:
    """Fields of a row, nested as they are written."""
    row: dict[str, Any] = {"table": proposal.table}
    for name, value in proposal.fields.items():
        outer, _, inner = name.partition(".")
        if name in fixed and name != "enabled":
            continue
        if inner:
            row.setdefault(outer, {})[inner] = plain(value)
        else:
            row[name] = plain(value)
    return row
