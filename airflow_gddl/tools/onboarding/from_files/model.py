"""What a file of another tool says of tables: which, and what their rows have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract.codes import ONBOARD_NOT_CARRIED
from airflow_gddl.tools.onboarding.rules import KeyFact, Notice, SourceFacts, TableFacts

ANY = re.compile(".*", re.DOTALL)
Renaming = Callable[[str], str]


def _same(name: str) -> str:
    return name


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Tables (`schema.table`) that are taken, or left out by `is_excluded`."""

    pattern: re.Pattern[str]
    is_excluded: bool = False


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is said of the tables of a pattern.

    Attributes:
        fields: of a row, by path (`options.csv_delimiter`).
        keys: None: nothing is said.
        table, column: from the name in the source to the one that files have.
        filter: a condition that the service applies; empty: none.
    """

    pattern: re.Pattern[str] = ANY
    fields: Mapping[str, Any] = field(default_factory=dict)
    keys: KeyFact | None = None
    table: Renaming = _same
    column: Renaming = _same
    filter: str = ""


@dataclass(frozen=True, kw_only=True)
class ImportedSource:
    """Attributes:
    tables: those that are named in full, as the source has them.
    selections: a table is taken that one fits, and none that excludes. Empty: only settings are told, of all tables.
    notices: what is not carried over.
    """

    tables: tuple[str, ...] = ()
    selections: tuple[Selection, ...] = ()
    told: tuple[Told, ...] = ()
    notices: tuple[Notice, ...] = ()

    def selects(self, table: str) -> bool:
        mine = [one for one in self.selections if one.pattern.fullmatch(table)]
        return not self.selections or (bool(mine) and not any(one.is_excluded for one in mine))

    def facts(self, found: SourceFacts | None) -> SourceFacts:
        """Facts of the tables that the files select.

        Args:
            found: of a database, or of files that have landed; None: neither was read, so that only tables which the
                files name are known, and keys only where these say them.
        """
        known = {} if found is None else {table.table: table for table in found.tables}
        landed = {self._landed(name): name for name in self.tables}
        names = [name for name in known if name not in landed] + list(self.tables)
        tables = [self._facts(n, known) for n in dict.fromkeys(names) if self.selects(n)]
        return SourceFacts(
            tables=tuple(tables),
            notices=(*(() if found is None else found.notices), *self.notices, *self._unnamed(found)),
        )

    def _of(self, table: str) -> list[Told]:
        return [one for one in self.told if one.pattern.fullmatch(table)]

    def _landed(self, table: str) -> str:
        for one in self._of(table):
            table = one.table(table)
        return table

    def _facts(self, name: str, known: Mapping[str, TableFacts]) -> TableFacts:
        landed, told = self._landed(name), self._of(name)
        table = replace(known.get(name) or known.get(landed) or TableFacts(table=landed), table=landed)
        key = next((one.keys for one in reversed(told) if one.keys), table.key)
        fields, remarks = dict(table.fields), list(table.remarks)
        for one in told:
            fields |= one.fields
            key = key and replace(key, columns=tuple(map(one.column, key.columns)))
            if one.filter:
                remarks.append(f"where? {one.filter}")
        return replace(table, key=key, fields=fields, remarks=tuple(remarks))

    def _unnamed(self, found: SourceFacts | None) -> Iterable[Notice]:
        """Selections of which no table is known."""
        names = {*self.tables, *(() if found is None else (table.table for table in found.tables))}
        for one in self.selections:
            if not one.is_excluded and not any(map(one.pattern.fullmatch, names)):
                what = f"the selection {one.pattern.pattern} fits no table that is known"
                yield not_carried("tables", what, "read the database, too: --connection NAME; or wait for its files")


def merged(sources: Sequence[ImportedSource]) -> ImportedSource:
    """What several files say together."""
    return ImportedSource(
        tables=tuple(name for one in sources for name in one.tables),
        selections=tuple(selection for one in sources for selection in one.selections),
        told=tuple(told for one in sources for told in one.told),
        notices=tuple(notice for one in sources for notice in one.notices),
    )


def not_carried(where: str, what: str, way_out: str) -> Notice:
    """A line of the file that no row says.

    Args:
        where: a table, or the place in the file.
    """
    remedy = "each line says how to have it here"
    return Notice(table=where, code=ONBOARD_NOT_CARRIED, message=f"{what}: {way_out}", remedy=remedy)


def is_true(value: Any) -> bool:
    """As services write it: true, `true`, `y`."""
    return value is True or str(value).lower() in ("true", "y", "yes")
