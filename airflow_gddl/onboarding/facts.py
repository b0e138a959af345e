"""Facts of a source about its tables; frozen, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MEASURED = "measured"
Origin = Literal["database", "landing"]


@dataclass(frozen=True, kw_only=True)
class KeyFact:
    """Columns that identify a row, with evidence.

    Attributes:
        evidence: text, e.g. `primary key orders_pkey`, `measured: unique in all 12,345 rows of the full load`.
    """

    columns: tuple[str, ...]
    evidence: str

    @property
    def is_measured(self) -> bool:
        """Whether it was measured, not declared; it may be a coincidence."""
        return self.evidence.startswith(MEASURED)


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Change rate of a table.

    Attributes:
        counter: changes counted by the source so far, for comparison with a later reading; null: no counter.
        changes: changes since `since`, without those of the initial load as far as known.
        since: seconds since the epoch; null: not known.
        until: time of the reading, seconds since the epoch.
    """

    counter: int | None = None
    changes: int = 0
    since: float | None = None
    until: float


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """One table in its source.

    Attributes:
        table: `schema.name` as the source spells it.
        key: null: nothing identifies a row.
        rows: by statistics where there are any; null: not known.
        size_bytes: of the data without indexes; null: not known.
        activity: null: not known.
        fields: other fields of the row that change files state (`sequence_by`, `options.op_column`, ...); null: there
            were no change files.
        evidence: in words, by field.
        descriptions: comments of the table and its columns as fields of a row, by path (`description`,
            `column_descriptions.id`); null: the source does not show comments.
    """

    table: str
    columns: Mapping[str, str] = field(default_factory=dict)
    key: KeyFact | None = None
    rows: int | None = None
    size_bytes: int | None = None
    activity: Activity | None = None
    fields: Mapping[str, Any] | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice about a table; not written to metadata.

    Attributes:
        code: stable, listed in docs/codes.md.
        remedy: empty where no action is needed.
    """

    table: str
    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """All facts of a source.

    Attributes:
        tables: those whose names a row can have.
        schemas: those that were read; null: all.
        names: only these tables were asked for; empty: all of the schemas.
        shown: schemas of which the source shows any table at all; null: all.
    """

    origin: Origin
    tables: tuple[TableFacts, ...]
    notices: tuple[Notice, ...] = ()
    schemas: frozenset[str] | None = None
    names: frozenset[str] = frozenset()
    shown: frozenset[str] | None = None

    def shows(self, table: str) -> bool:
        """Whether other tables of its schema are visible: without permission to see them, a missing table is not a
        dropped one."""
        return self.shown is None or table.partition(".")[0] in self.shown

    def covers(self, table: str) -> bool:
        """Whether this table would be among `tables` if the source had it."""
        asked = not self.names or table in self.names
        return asked and (self.schemas is None or table.partition(".")[0] in self.schemas)
