"""State of a table's registration in its catalog: written by jobs, read by commands and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec


@dataclass(frozen=True, kw_only=True)
class RegisteredTable:
    """A registered table of a row.

    Attributes:
        location: the registered location.
        digest: of the last registered entry.
        name: `database.table` in the catalog.
    """

    location: str
    digest: str
    name: str


@dataclass(frozen=True, kw_only=True)
class RegistrationState:
    """Registration of the tables of a row.

    Attributes:
        signature: of the settings of row and catalog at the last registration.
        version: Delta version of the replica at the last comparison; None: compare again.
        tables: registered tables by kind (`replica`, `history`, ...).
        problem: why the registration is not up to date; None: it is.
        former: earlier names of the tables in the catalog, to their registered locations.
        synced_at: ISO 8601, when the catalog was last up to date; None: never, or not known.
    """

    signature: str = ""
    version: int | None = None
    tables: Mapping[str, RegisteredTable] = field(default_factory=dict)
    problem: RunWarning | None = None
    former: Mapping[str, str] = field(default_factory=dict)
    synced_at: str | None = None


def registration_path(lake: str, spec: TableSpec) -> str | None:
    """Path of the state of a table in its row's catalog; None: the row has no catalog."""
    if spec.catalog is None:
        return None
    return join(lake, STATE, "catalogs", spec.catalog, spec.schema_name, f"{spec.name}.json")


def full_name(catalog: CatalogSpec, name: str) -> tuple[str, ...]:
    """Parts of the name of an entry (`database.table`) for readers of the catalog."""
    return (*([catalog.catalog_name] if catalog.catalog_name else []), *name.split(".", 1))
