"""Writes a merge into the texts of a source's files; every edit is verified by reading it back. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata.files import read_yaml
from airflow_gddl.metadata.values import DocumentError
from airflow_gddl.onboarding import merging
from airflow_gddl.onboarding.merging import Absent, Merged, NewRow, ProposedChange
from airflow_gddl.onboarding.present import SourceFiles
from airflow_gddl.onboarding.rules import Proposal
from airflow_gddl.onboarding.yaml_text import Path, UneditableError, YamlText

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
    """Behind a new row: its extent, and masks to consider."""
    return "; ".join(evidence[name] for name in ("size", "mask") if evidence.get(name))


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
