"""Port of a catalog, and its data types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_gddl.contract.catalogs import EntryName


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """A column as the Delta log has it.

    Attributes:
        type: JSON of the Delta log: text, or a mapping for nested types.
        comment: empty: none.
    """

    name: str
    type: Any
    comment: str = ""
    nullable: bool = True


@dataclass(frozen=True, kw_only=True)
class DeltaTableInfo:
    """Metadata of a Delta table's newest version.

    Attributes:
        location: as in the layout, `s3://` or an absolute local path.
        comment: empty: none.
    """

    location: str
    columns: tuple[TableColumn, ...]
    comment: str = ""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry as one catalog holds it, so that wanted and registered entries compare by value.

    Attributes:
        columns: name to (type as the catalog writes it, comment), in order.
        comment: empty: none; a wanted entry without one leaves what the catalog has.
        properties: of a wanted entry those that are ours; of a registered one all.
        problem: why a registered entry can't be one of this lake's Delta tables, e.g. a view; empty: it can.
    """

    location: str
    columns: Mapping[str, tuple[str, str]]
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A table to be registered.

    Attributes:
        info: the Delta table.
        entry: `info` as this catalog holds it.
    """

    name: EntryName
    info: DeltaTableInfo
    entry: Entry


class CatalogError(Exception):
    """A request to a catalog failed; the data is not affected.

    Args:
        code: stable, listed in docs/codes.md.
        is_down: requests for other tables would fail too: the catalog does not answer, or can't be called.
    """

    def __init__(self, code: str, message: str, *, is_down: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.is_down = code, message, is_down


class CatalogPort(Protocol):
    """One catalog. Every method may raise CatalogError, and answers within the catalog's `timeout`.

    Attributes:
        alters: what `alter` can change of an entry, of `columns`, `comment`, `location`, `properties`.
    """

    alters: frozenset[str]

    def entry_of(self, info: DeltaTableInfo, properties: Mapping[str, str]) -> Entry:
        """The entry that a table should have; makes no request."""
        ...

    def read(self, name: EntryName) -> Entry | None:
        """The entry of this name; None where there is none."""
        ...

    def create(self, registration: Registration) -> None:
        """Create the entry, and its database if missing; an existing entry is left unchanged."""
        ...

    def alter(self, registration: Registration) -> None:
        """Alter an existing entry to match `wanted`, without dropping it: permissions stay."""
        ...
