"""Columns of a replica that consumers see, and the state of a table's registration in its catalog.

Columns are those of the source, without those that CDC and this package add; names compare without case, as Delta does.
Registrations are written by jobs, and read by commands and the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from airflow_gddl.contract.errors import FatalError, SpecProblem
from airflow_gddl.contract.extensions import CATALOGS, DIALECTS, CatalogSpec, is_among
from airflow_gddl.contract.layout import STATE, join, table_url
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import literal
from airflow_gddl.contract.table_spec import lowered

EVERY = "*"
"""In `published`: every column that is not technical and not named beside it."""
MARKS = "_gddl"
MARK = "deleted"
START, END = "__start_at", "__end_at"
START_GENERATION, END_GENERATION = "__start_generation", "__end_generation"
"""Columns of a history: the places in the log between which a version is valid, and their generations."""
_OURS = frozenset({MARKS, "_rescued_data"})


@dataclass(frozen=True, kw_only=True)
class ReplicaSchema:
    """Current top-level columns of a replica.

    Attributes:
        columns: names in table order.
        marks_deletes: `_gddl` has the field `deleted`, so that some rows may be marked as deleted.
    """

    columns: tuple[str, ...]
    marks_deletes: bool

    @classmethod
    def of_json(cls, text: str) -> ReplicaSchema:
        """From Delta's `schemaString`."""
        fields: list[dict[str, Any]] = json.loads(text)["fields"]
        kinds = {field["name"]: field["type"] for field in fields}
        gddl = kinds.get(MARKS)
        inner = gddl.get("fields", []) if isinstance(gddl, dict) else []
        return cls(columns=tuple(kinds), marks_deletes=any(field["name"] == MARK for field in inner))


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Settings of a metadata row about published columns.

    Attributes:
        columns: the row's `published`; empty: the table is not published.
        technical: columns that the row names for ordering and applying changes, keys excepted.
        added: those of a dialect of another package, see `DialectDescriptor.technical`.
    """

    columns: tuple[str, ...] = (EVERY,)
    technical: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: TableSpec) -> Publication:
        """Which columns a row publishes, in order, and which ones are technical.

        Raises:
            FatalError: `DIALECT_UNKNOWN`, `DIALECT_BROKEN`.
        """
        named = (*spec.sequence_by, spec.columns_to_update, spec.force_update, spec.options.get("timestamp_column"))
        keys = lowered(spec.keys)
        technical = tuple(name for name in named if isinstance(name, str) and name.lower() not in keys)
        added = () if spec.dialect in DIALECTS.built_in else DIALECTS.get(spec.dialect).technical
        return cls(columns=spec.published, technical=technical, added=added)

    def columns_of(self, schema: ReplicaSchema) -> tuple[str, ...]:
        """The published columns, in the spelling of the table and the order of `columns`.

        Raises:
            FatalError: `PUBLISHED_COLUMN_MISSING`: the row names a column that the table lacks, or none is left.
        """
        spelled = {name.lower(): name for name in schema.columns}
        if missing := [name for name in self.columns if name != EVERY and name.lower() not in spelled]:
            what = f"published names {', '.join(map(repr, missing))}, which the replica does not have"
            remedy = f"name columns of the replica: {', '.join(self._plain(schema.columns))}"
            raise FatalError("PUBLISHED_COLUMN_MISSING", what, remedy=remedy)
        named = lowered(self.columns)
        every = [name for name in self._plain(schema.columns) if name.lower() not in named]
        published = [c for name in self.columns for c in (every if name == EVERY else [spelled[name.lower()]])]
        if self.columns and not published:
            what = f"no column is left to publish: all {len(schema.columns)} are technical"
            raise FatalError("PUBLISHED_COLUMN_MISSING", what, remedy="name columns in `published`")
        return tuple(published)

    def _plain(self, columns: Iterable[str]) -> list[str]:
        technical = _OURS | lowered(self.technical)
        added = (*self.added, *(name for one in DIALECTS.built_in.values() for name in one.technical))
        return [c for c in columns if c.lower() not in technical and not is_among(c, added)]


def published_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """Problems of the row's `published` that can be found without the replica."""
    if spec.published == (EVERY,):
        return
    absent = lowered(spec.exclude_columns) - lowered(spec.keys)
    seen: set[str] = set()
    for i, column in enumerate(spec.published):
        name, path = column.lower(), ("published", i)
        if not column.strip():
            yield SpecProblem("PUBLISHED_INVALID", path, column, "an empty column name", "name the column or drop it")
        elif name in seen:
            message = "the same column twice (case does not count)"
            yield SpecProblem("PUBLISHED_INVALID", path, column, message, "name each column once")
        elif name in absent:
            message = "a column that exclude_columns removes"
            yield SpecProblem("PUBLISHED_INVALID", path, column, message, "remove it from one of the two")
        seen.add(name)


SqlReader = Literal["spark", "databricks", "athena", "duckdb"]
Reader = Literal[SqlReader, "python", "polars"]
SQL_READERS: tuple[SqlReader, ...] = get_args(SqlReader)
READERS: tuple[Reader, ...] = (*SQL_READERS, "python", "polars")
_BACKTICKS = ("spark", "databricks")
_REGISTERED = "__replica"


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A replica as consumers see it.

    Attributes:
        path: of the replica; absolute, or `s3://`.
        columns: to show, in order.
        marks_deletes: rows with `_gddl.deleted` are left out.
    """

    path: str
    columns: tuple[str, ...]
    marks_deletes: bool


@dataclass(frozen=True, kw_only=True)
class ViewName:
    """Name of a view in the reader's default catalog."""

    database: str
    name: str

    @classmethod
    def of(cls, table: str, database: str) -> ViewName:
        """Name of a table's view; characters that catalogs refuse become `_`.

        Args:
            table: `schema.name`.
            database: may hold `{schema}`.
        """
        schema, _, name = table.partition(".")
        return cls(database=_catalog_name(database.replace("{schema}", schema)), name=_catalog_name(name))

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def identity(self) -> str:
        """Comparison key: equal for names that a catalog does not distinguish."""
        return str(self).lower()


def view_sql(table: PublishedTable, view: ViewName, reader: SqlReader) -> tuple[str, ...]:
    """Statements that create or replace the view, in order, without semicolons; no catalog need know the replica."""
    database, name = quoted(view.database, reader), quoted(view.name, reader)
    if reader == "athena":
        first, relation = athena_table(table.path, view)
    else:
        first, relation = (f"CREATE SCHEMA IF NOT EXISTS {database}",), by_path(table.path, reader)
    return (*first, f"CREATE OR REPLACE VIEW {database}.{name} AS\n{select_sql(table, reader, relation)}")


def select_sql(table: PublishedTable, reader: SqlReader, relation: str) -> str:
    """Query of the published columns and the rows that are not deleted.

    Args:
        relation: the replica as the reader names it, quoted.
    """
    columns = ",\n  ".join(quoted(name, reader) for name in table.columns)
    alive = f"\nWHERE NOT {quoted(MARKS, reader)}.{quoted(MARK, reader)}" if table.marks_deletes else ""
    return f"SELECT\n  {columns}\nFROM {relation}{alive}"


def by_path(path: str, reader: SqlReader) -> str:
    """A Delta table by its path, as the reader names it; not for Athena, which has no such form."""
    if reader == "duckdb":
        return f"delta_scan({_text(table_url(path))})"
    # Apache Spark supports only s3a; platforms with their own S3 client accept it, too.
    location = f"s3a://{path.removeprefix('s3://')}" if reader == "spark" and path.startswith("s3://") else path
    return f"delta.{quoted(location, reader)}"


def query(table: PublishedTable, view: ViewName, reader: Reader, relation: str = "") -> str:
    """Query or code to copy for reading the table, of one or several lines.

    Args:
        view: names the table that Athena needs where the replica is not registered.
        relation: the replica as the reader's catalog names it, quoted; empty: it is read by its path.
    """
    if reader == "python":
        return _python(table)
    if reader == "polars":
        return _polars(table)
    if relation:
        return f"{select_sql(table, reader, relation)};\n"
    if reader == "athena":
        first, relation = athena_table(table.path, view)
        return "".join(f"{text};\n" for text in (*first, select_sql(table, reader, relation)))
    return f"{select_sql(table, reader, by_path(table.path, reader))};\n"


def quoted(name: str, reader: Reader) -> str:
    """A name in the reader's quotes."""
    mark = "`" if reader in _BACKTICKS else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def text_literal(text: str, reader: SqlReader) -> str:
    """A text in the reader's quotes."""
    return literal(text) if reader in _BACKTICKS else _text(text)


def athena_table(
    path: str, view: ViewName, suffix: str = _REGISTERED, *, is_new: bool = False
) -> tuple[tuple[str, ...], str]:
    """Statements that register a Delta table beside the view, and its name in queries.

    Args:
        suffix: of the table's name, behind the view's.
        is_new: they fail where the name is taken, since another table may have it; else that one is used.
    """
    # Athena's DDL is Hive's: other quotes than those of its queries.
    name = f"`{view.database}`.`{view.name}{suffix}`"
    location = path.replace("\\", "\\\\").replace("'", "\\'")
    create = "CREATE EXTERNAL TABLE" if is_new else "CREATE EXTERNAL TABLE IF NOT EXISTS"
    statements = (
        f"CREATE DATABASE IF NOT EXISTS `{view.database}`",
        f"{create} {name}\nLOCATION '{location}'\nTBLPROPERTIES ('table_type'='DELTA')",
    )
    return statements, f"{quoted(view.database, 'athena')}.{quoted(view.name + suffix, 'athena')}"


def _python(table: PublishedTable) -> str:
    # A query and no pyarrow dataset, which reads no deletion vectors.
    select = select_sql(table, "duckdb", "replica")
    return (
        "from deltalake import DeltaTable, QueryBuilder\n\n"
        f"replica = DeltaTable({_python_text(table_url(table.path))})\n"
        f'rows = QueryBuilder().register("replica", replica).execute({_python_text(select)}).read_all()\n'
    )


def _polars(table: PublishedTable) -> str:
    columns = ", ".join(_python_text(name) for name in table.columns)
    alive = f'.filter(~pl.col("{MARKS}").struct.field("{MARK}"))' if table.marks_deletes else ""
    rows = f"pl.scan_delta({_python_text(table_url(table.path))}){alive}.select([{columns}])"
    return f"import polars as pl\n\nrows = {rows}.collect()\n"


def _python_text(text: str) -> str:
    """A Python literal, multi-line where the text allows it."""
    for quotes in ('"""', "'''"):
        if "\n" in text and quotes not in text and "\\" not in text and not text.endswith(quotes[0]):
            return f"{quotes}{text}{quotes}"
    return repr(text)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _catalog_name(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)


_NOT_OURS = ("CATALOG_TABLE_DROPPED", "CATALOG_NAME_TAKEN")


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


def relation_of(catalog: CatalogSpec | None, state: RegistrationState, reader: Reader) -> str:
    """The quoted name of the registered replica in statements of a reader.

    Empty if the reader can't read this kind of catalog, or the replica is not registered in it.

    Args:
        catalog: of the row; None: none.
    """
    registered = state.tables.get("replica")
    if catalog is None or registered is None or catalog.kind not in CATALOGS.names():
        return ""
    if reader not in CATALOGS.get(catalog.kind).readers:
        return ""
    if state.problem is not None and state.problem.code in _NOT_OURS:
        return ""
    if reader == "athena" and catalog.catalog_id is not None:
        return ""  # Athena's own catalog is another one, and what it calls that of another account is not known here
    return ".".join(quoted(part, reader) for part in full_name(catalog, registered.name))
