"""Columns of a replica that consumers see, and the state of a table's registration in its catalog.

Columns are those of the source, without those that CDC and this package add; names compare without case, as Delta does.
Registrations are written by jobs, and read by commands and the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_gddl.contract.codes import PUBLISHED_COLUMN_MISSING, PUBLISHED_INVALID
from airflow_gddl.contract.errors import FatalError, SpecProblem
from airflow_gddl.contract.extensions import DIALECTS, CatalogSpec, is_among
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import lowered

EVERY = "*"
"""In `published`: every column that is not technical and not named beside it."""
_OURS = frozenset({"_gddl", "_rescued_data"})


def published_columns(spec: TableSpec, replica: Sequence[str]) -> tuple[str, ...]:
    """The columns that a row publishes, in the spelling of the replica and the order of `published`.

    Args:
        replica: its top-level columns.

    Raises:
        FatalError: `PUBLISHED_COLUMN_MISSING`: the row names a column that the table lacks, or none is left;
            `DIALECT_UNKNOWN`, `DIALECT_BROKEN`.
    """
    spelled = {name.lower(): name for name in replica}
    plain = _plain(spec, replica)
    if missing := [name for name in spec.published if name != EVERY and name.lower() not in spelled]:
        what = f"published names {', '.join(map(repr, missing))}, which the replica does not have"
        remedy = f"name columns of the replica: {', '.join(plain)}"
        raise FatalError(PUBLISHED_COLUMN_MISSING, what, where=spec.table, remedy=remedy)
    named = lowered(spec.published)
    every = [name for name in plain if name.lower() not in named]
    published = [c for name in spec.published for c in (every if name == EVERY else [spelled[name.lower()]])]
    if not published:
        what = f"no column is left to publish: all {len(replica)} are technical"
        raise FatalError(PUBLISHED_COLUMN_MISSING, what, where=spec.table, remedy="name columns in `published`")
    return tuple(published)


def _plain(spec: TableSpec, columns: Iterable[str]) -> list[str]:
    """Those that are not technical: ours, a dialect's, and those that the row names for order, keys excepted."""
    named = (*spec.sequence_by, spec.columns_to_update, spec.force_update, spec.options.get("timestamp_column"))
    technical = _OURS | (lowered(name for name in named if isinstance(name, str)) - lowered(spec.keys))
    dialects = [DIALECTS.get(spec.dialect), *DIALECTS.built_in.values()]
    added = [name for dialect in dialects for name in dialect.technical]
    return [c for c in columns if c.lower() not in technical and not is_among(c, added)]


def published_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """Problems of the row's `published` that can be found without the replica."""
    if spec.published == (EVERY,):
        return
    if not spec.published:
        yield SpecProblem(PUBLISHED_INVALID, ("published",), [], "it names no column", "name columns, or drop it")
    absent = lowered(spec.exclude_columns) - lowered(spec.keys)
    seen: set[str] = set()
    for i, column in enumerate(spec.published):
        name, path = column.lower(), ("published", i)
        if not column.strip():
            yield SpecProblem(PUBLISHED_INVALID, path, column, "an empty column name", "name the column or drop it")
        elif name in seen:
            message = "the same column twice (case does not count)"
            yield SpecProblem(PUBLISHED_INVALID, path, column, message, "name each column once")
        elif name in absent:
            message = "a column that exclude_columns removes"
            yield SpecProblem(PUBLISHED_INVALID, path, column, message, "remove it from one of the two")
        seen.add(name)


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
class CatalogProblem:
    """Why a table is not registered."""

    code: str
    message: str


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
    problem: CatalogProblem | None = None
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
