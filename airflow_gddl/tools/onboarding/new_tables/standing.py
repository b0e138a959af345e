"""What is known of tables without a row, and what becomes of them: from a look to the next. Pure.

Two looks at once give what one gives: a table that is known is never taken again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.codes import (
    COLUMN_RENAMED,
    NEW_TABLE_LANDING,
    NEW_TABLE_NAMES,
    NEW_TABLE_NO_KEY,
    NEW_TABLE_PROPOSED,
    NEW_TABLES_LEFT,
)
from airflow_gddl.contract.errors import Note
from airflow_gddl.metadata.sources import NewTableLimits
from airflow_gddl.metadata.validation import quoted
from airflow_gddl.runtime.compiled.proposals import StoredProposals
from airflow_gddl.tools.onboarding.rules import MEASURED, Proposal

Standing = Literal["proposed", "accepted", "ignored"]


DAY = 86_400.0
MOST_PROPOSED = 200
"""Proposals of a source that are kept; more folders are counted."""


@dataclass(frozen=True, kw_only=True)
class NewTable:
    """A table without a row in the metadata folder.

    Attributes:
        table: `schema.name` in the source.
        standing: one that is accepted is not stored: the metadata folder has its row.
        at: when it was found or ignored, seconds since the epoch.
        keys: None: none were found.
        fields: others of its row, by path (`options.op_column`).
        evidence: of the keys.
        refused, why: code and text of what stands against its row; empty: nothing.
    """

    source: str
    table: str
    standing: Standing = "proposed"
    at: float
    keys: tuple[str, ...] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    evidence: str = ""
    refused: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.source}:{self.table}"

    @property
    def proposal(self) -> Proposal:
        """As files of rows and keys are made of it."""
        return Proposal(
            table=self.table,
            keys=self.keys or (),
            evidence=self.evidence or "each change is a row",
            fields=self.fields,
            comment="landed as a new table",
        )

    @property
    def row(self) -> dict[str, Any]:
        """As a file of tables has it."""
        row: dict[str, Any] = {"table": self.table, "source": self.source, "keys": list(self.keys or ())}
        for path, value in self.fields.items():
            section, _, inner = path.partition(".")
            if inner:
                row.setdefault(section, {})[inner] = plain(value)
            else:
                row[section] = plain(value)
        return row


@dataclass(frozen=True, kw_only=True)
class SourceCounts:
    """What is stored of a source beside its tables.

    Attributes:
        cursor: name of the last table that was looked into; the next look goes on after it.
        left: tables that were not looked into yet.
        unfit, example: number of folders whose names no table can have, and one of them.
        renamed: by table that has a row, new to old names of columns that were renamed at the source.
    """

    cursor: str = ""
    left: int = 0
    unfit: int = 0
    example: str = ""
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SourceView:
    """What a look finds of a source.

    Attributes:
        there: names in the source of all tables without a row, in lower case.
        named: those that the metadata folder has rows of.
        found: of the former, those that were looked into now.
    """

    there: frozenset[str]
    named: frozenset[str]
    found: tuple[NewTable, ...]
    counts: SourceCounts


@dataclass(frozen=True, kw_only=True)
class Known:
    """All that is stored, `StoredProposals.state`.

    Attributes:
        sources: by short name.
    """

    tables: tuple[NewTable, ...] = ()
    sources: Mapping[str, SourceCounts] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: StoredProposals | None) -> Known:
        return cls() if stored is None else decode(cls, dict(stored.state))

    @property
    def document(self) -> StoredProposals:
        """The object with these tables, and notes of what awaits a person."""
        return StoredProposals(notes=tuple(self._notes()), state=plain(self))

    def find(self, name: str) -> NewTable | None:
        """By `source:schema.name`, or by `schema.name` where one source has it; case does not count."""
        lowered = name.lower()
        exact = [one for one in self.tables if one.name.lower() == lowered]
        same = exact or [one for one in self.tables if one.table.lower() == lowered]
        return same[0] if len(same) == 1 else None

    def decided(self, tables: Sequence[NewTable]) -> Known:
        """With those that are ignored, and without those that are accepted."""
        names = {one.name.lower() for one in tables}
        others = (one for one in self.tables if one.name.lower() not in names)
        ignored = (one for one in tables if one.standing == "ignored")
        return replace(self, tables=tuple(sorted((*others, *ignored), key=lambda one: one.name)))

    def _notes(self) -> Iterator[Note]:
        for source, counts in sorted(self.sources.items()):
            if counts.left:
                text = (
                    f"{counts.left:,} more tables without a metadata row; later looks take them as proposals "
                    "are decided"
                )
                yield Note(table=source, code=NEW_TABLES_LEFT, text=text, command="gddl new-tables list")
            if counts.unfit:
                text = f"no table can have the name of a folder: {counts.unfit:,} in all, e.g. {counts.example}"
                yield Note(table=source, code=NEW_TABLE_NAMES, text=text)
            for name, columns in counts.renamed.items():
                pairs = ", ".join(f"{quoted(new)}: {quoted(old)}" for new, old in columns.items())
                text = f"columns were renamed at the source; proposed for its row: rename: {{{pairs}}}"
                yield Note(table=f"{source}:{name}", code=COLUMN_RENAMED, text=text)
        for table in self.tables:
            code = code_of(table)
            if code:
                yield Note(table=table.name, code=code, text=text_of(table), command=_command(table, code))


def _command(table: NewTable, code: str) -> str:
    keys = " --key COLUMN" if code == NEW_TABLE_NO_KEY else ""
    return f"gddl new-tables accept {table.name}{keys}"


def text_of(table: NewTable) -> str:
    """What a person has to know of the table."""
    keys = f"keys {', '.join(table.keys)}" if table.keys else "no keys: each change is a row"
    evidence = f" ({table.evidence})" if table.evidence else ""
    texts: dict[str, str] = {
        NEW_TABLE_PROPOSED: f"has no metadata row; proposed: {keys}{evidence}",
        NEW_TABLE_NO_KEY: "has no metadata row, and no key was found: name one, or accept it with --append-only",
        NEW_TABLE_LANDING: f"has no metadata row; {table.why}, so that its {keys} may be measured of a part",
    }
    return texts.get(code_of(table)) or f"has no metadata row, and can't get the proposed one: {table.why}"


def is_meant(table: str, limits: NewTableLimits) -> bool:
    """Whether the limits let it be proposed."""
    return _matches(table, limits.names) and not _matches(table, limits.ignore)


def _matches(table: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(table.lower(), pattern.lower()) for pattern in patterns)


def code_of(table: NewTable) -> str:
    """Why a table is proposed; empty: a person decided."""
    if table.standing != "proposed":
        return ""
    return NEW_TABLE_NO_KEY if table.keys is None else table.refused or NEW_TABLE_PROPOSED


def is_measured(table: NewTable) -> bool:
    return table.evidence.startswith(MEASURED)


def after(before: Known, views: Mapping[str, SourceView]) -> Known:
    """What is known after a look.

    Args:
        views: of the sources that ask for it, by short name; others keep what they have.
    """
    tables = [one for one in before.tables if one.source not in views]
    sources = {name: counts for name, counts in before.sources.items() if name not in views}
    for source, view in sorted(views.items()):
        mine, left = _of_source([one for one in before.tables if one.source == source], view)
        tables += mine
        sources[source] = replace(view.counts, left=view.counts.left + left)
    return Known(tables=tuple(sorted(tables, key=lambda one: one.name)), sources=sources)


def _of_source(before: Iterable[NewTable], view: SourceView) -> tuple[list[NewTable], int]:
    """Tables that are still without a row, those found now among them, and how many more there were.

    A proposal goes with its folder; what was decided stays. What was looked into again has its newest facts.
    """
    again = {one.table.lower(): one for one in view.found}
    mine = [
        replace(again.pop(one.table.lower(), one), at=one.at) if one.standing == "proposed" else one
        for one in before
        if one.table.lower() not in view.named and (one.standing != "proposed" or one.table.lower() in view.there)
    ]
    known = {one.table.lower() for one in mine}
    fresh = [one for name, one in again.items() if name not in known | view.named]
    room = max(0, MOST_PROPOSED - sum(one.standing == "proposed" for one in mine))
    return [*mine, *fresh[:room]], len(fresh[room:])
