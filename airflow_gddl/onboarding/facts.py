"""What a source tells about its tables; frozen, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MEASURED = "measured"
Origin = Literal["database", "landing"]


@dataclass(frozen=True, kw_only=True)
class KeyFact:
    """Columns that identify a row, and how that is known.

    Attributes:
        evidence: in words, e.g. `primary key orders_pkey`, `measured: unique in all 12,345 rows of the full load`.
    """

    columns: tuple[str, ...]
    evidence: str

    @property
    def is_measured(self) -> bool:
        """Nobody declared it: it may be chance."""
        return self.evidence.startswith(MEASURED)


@dataclass(frozen=True, kw_only=True)
class Activity:
    """How much a table changes.

    Attributes:
        counter: changes that the source has counted so far, to be compared with a later look; null: it has no counter.
        changes: changes since `since`, those of the first filling left out as far as they can be told.
        since: seconds since the epoch; null: from when on is not known.
        until: when this was so; seconds since the epoch.
    """

    counter: int | None = None
    changes: int = 0
    since: float | None = None
    until: float


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """One table as its source shows it.

    Attributes:
        table: `schema.name` as the source spells it.
        key: null: nothing identifies a row.
        rows: by statistics where there are any; null: not known.
        size_bytes: of the data without indexes; null: not known.
        activity: null: not known.
        fields: other fields of the row that change files tell (`sequence_by`, `options.op_column`, ...); null: none
            were there to tell.
        evidence: in words, by field.
    """

    table: str
    columns: Mapping[str, str] = field(default_factory=dict)
    key: KeyFact | None = None
    rows: int | None = None
    size_bytes: int | None = None
    activity: Activity | None = None
    fields: Mapping[str, Any] | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that a person should know of a table; nothing of it is written.

    Attributes:
        code: stable, listed in docs/codes.md.
        remedy: empty where nothing has to be done.
    """

    table: str
    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """All that was found.

    Attributes:
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
        """Whether other tables of its schema can be seen: without the right to see them, none can be missed."""
        return self.shown is None or table.partition(".")[0] in self.shown

    def covers(self, table: str) -> bool:
        """Whether this table would be among `tables` if the source had it."""
        asked = not self.names or table in self.names
        return asked and (self.schemas is None or table.partition(".")[0] in self.schemas)
