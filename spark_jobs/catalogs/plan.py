"""Plans the change of a catalog entry: wanted against registered. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from spark_jobs.catalogs.base import Entry

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
