"""Statements and expressions that read the published columns of a replica, for each reader. Pure.

Readers differ in quoting, in references to a Delta table by path, and in schemas. Athena knows tables of its
catalog only, so its statements first register the replica beside the view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from airflow_gddl.contract.published import MARK, MARKS

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
        first, relation = _athena_table(table.path, view)
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
        return f"delta_scan({_text(path)})"
    # Apache Spark supports only s3a; platforms with their own S3 client accept it, too.
    found = f"s3a://{path.removeprefix('s3://')}" if reader == "spark" and path.startswith("s3://") else path
    return f"delta.{quoted(found, reader)}"


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
        first, relation = _athena_table(table.path, view)
        return "".join(f"{text};\n" for text in (*first, select_sql(table, reader, relation)))
    return f"{select_sql(table, reader, by_path(table.path, reader))};\n"


def quoted(name: str, reader: Reader) -> str:
    """A name in the reader's quotes."""
    mark = "`" if reader in _BACKTICKS else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def _athena_table(path: str, view: ViewName) -> tuple[tuple[str, ...], str]:
    """Statements that register the replica beside the view, and its name in queries."""
    # Athena's DDL is Hive's: other quotes than those of its queries.
    name = f"`{view.database}`.`{view.name}{_REGISTERED}`"
    location = path.replace("\\", "\\\\").replace("'", "\\'")
    statements = (
        f"CREATE DATABASE IF NOT EXISTS `{view.database}`",
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {name}\nLOCATION '{location}'\nTBLPROPERTIES ('table_type'='DELTA')",
    )
    return statements, f"{quoted(view.database, 'athena')}.{quoted(view.name + _REGISTERED, 'athena')}"


def _python(table: PublishedTable) -> str:
    # A query and no pyarrow dataset, which reads no deletion vectors.
    select = select_sql(table, "duckdb", "replica")
    return (
        "from deltalake import DeltaTable, QueryBuilder\n\n"
        f"replica = DeltaTable({_python_text(table.path)})\n"
        f'rows = QueryBuilder().register("replica", replica).execute({_python_text(select)}).read_all()\n'
    )


def _polars(table: PublishedTable) -> str:
    columns = ", ".join(_python_text(name) for name in table.columns)
    alive = f'.filter(~pl.col("{MARKS}").struct.field("{MARK}"))' if table.marks_deletes else ""
    rows = f"pl.scan_delta({_python_text(table.path)}){alive}.select([{columns}])"
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
