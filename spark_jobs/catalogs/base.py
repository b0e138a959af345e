"""Port of a catalog, and its data types."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

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


Action = Literal["none", "create", "alter", "report"]


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """One attribute in which an entry differs, as text; empty where it is absent.

    Attributes:
        aspect: `columns`, `comment`, `location` or `properties`.
    """

    aspect: str
    name: str
    registered: str = ""
    wanted: str = ""


@dataclass(frozen=True, kw_only=True)
class CatalogChange:
    """
    Attributes:
        differences: attributes to alter.
        left: differences that this catalog can't alter.
        code, message: why the entry differs and is not altered; empty: it matches, or will.
    """

    action: Action = "none"
    differences: tuple[Deviation, ...] = ()
    left: tuple[Deviation, ...] = ()
    code: str = ""
    message: str = ""


def plan(
    wanted: Entry, registered: Entry | None, *, known_at: str | None, alters: Collection[str], restore: bool
) -> CatalogChange:
    """
    Args:
        known_at: the location at which this table was registered before; None: it never was.
        alters: see `CatalogPort`.
        restore: register a table again that was dropped in the catalog.
    """
    if registered is None:
        if known_at is None or restore:
            return CatalogChange(action="create")
        code = "CATALOG_TABLE_DROPPED"
        message = "the table was dropped in the catalog; gddl catalog sync registers it again"
        return CatalogChange(action="report", code=code, message=message)
    conflict = registered.problem
    if not conflict and registered.location not in (wanted.location, known_at):
        conflict = f"it points to {registered.location}, not to {wanted.location}"
    if conflict:
        code = "CATALOG_NAME_TAKEN"
        message = f"another entry has this name: {conflict}; drop or rename it, or change the catalog's templates"
        return CatalogChange(action="report", code=code, message=message)
    if registered.location != wanted.location and "location" not in alters:
        message = f"it points to {registered.location}, and this catalog can't change that; drop it there, then "
        return CatalogChange(action="report", code="CATALOG_NAME_TAKEN", message=f"{message}gddl catalog sync")
    found = differences(wanted, registered)
    do = tuple(one for one in found if one.aspect in alters)
    left = tuple(one for one in found if one.aspect not in alters)
    return CatalogChange(action="alter" if do else "none", differences=do, left=left)


def differences(wanted: Entry, registered: Entry) -> tuple[Deviation, ...]:
    """All differences, except comments and properties that only the registered entry has."""
    found = []
    if wanted.location != registered.location:
        found.append(Deviation(aspect="location", name="", registered=registered.location, wanted=wanted.location))
    if wanted.comment and wanted.comment != registered.comment:
        found.append(Deviation(aspect="comment", name="", registered=registered.comment, wanted=wanted.comment))
    found += _columns(wanted, registered)
    for name, value in wanted.properties.items():
        if (held := registered.properties.get(name, "")) != value:
            found.append(Deviation(aspect="properties", name=name, registered=held, wanted=value))
    return tuple(found)


def _columns(wanted: Entry, registered: Entry) -> list[Deviation]:
    found = []
    for name, (kind, comment) in wanted.columns.items():
        held_kind, held_comment = registered.columns.get(name, ("", ""))
        if held_kind != kind:
            found.append(Deviation(aspect="columns", name=name, registered=held_kind, wanted=kind))
        elif comment and held_comment != comment:
            found.append(Deviation(aspect="columns", name=name, registered=held_comment, wanted=comment))
    gone = [name for name in registered.columns if name not in wanted.columns]
    found += [Deviation(aspect="columns", name=name, registered=registered.columns[name][0]) for name in gone]
    if not found and list(wanted.columns) != list(registered.columns):
        order = ", ".join(registered.columns), ", ".join(wanted.columns)
        found.append(Deviation(aspect="columns", name="(order)", registered=order[0], wanted=order[1]))
    return found
