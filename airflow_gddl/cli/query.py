"""`gddl query`: a query to copy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as catalogs
from airflow_gddl.cli.publishing import DATABASE, published_table
from airflow_gddl.contract.registration import relation_of
from airflow_gddl.contract.view_sql import READERS, Reader, ViewName
from airflow_gddl.contract.view_sql import query as query_of
from airflow_gddl.stores import open_store
from airflow_gddl.stores.registrations import RegistrationStore


class ReaderName(StrEnum):
    """See `view_sql.Reader`."""

    SPARK = "spark"
    DATABRICKS = "databricks"
    ATHENA = "athena"
    DUCKDB = "duckdb"
    PYTHON = "python"
    POLARS = "polars"


def query(
    ctx: typer.Context,
    *,
    table: Annotated[str, typer.Option("--table", metavar="SCHEMA.NAME", help="The table.")],
    reader: Annotated[ReaderName | None, typer.Option("--reader", help="Reader of the query. Default: all.")] = None,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
) -> None:
    """Print queries of a table's published columns, without deleted rows; no Spark, nothing is changed.

    Readers of the catalog that the table is registered in use its name there; others use its path.
    """
    cli = context.of(ctx)
    catalog = catalogs.read(cli, metadata)
    (spec,), _ = catalogs.choose(cli, catalog, (table,), metadata)
    found, view = published_table(catalog.roots, spec, cli.environ), ViewName.of(spec.table, DATABASE)
    named_in = catalog.catalogs.get(spec.catalog or "")
    known = RegistrationStore(open_store(cli.environ), catalog.roots.lake).get(spec)
    wanted: tuple[Reader, ...] = READERS if reader is None else (reader.value,)
    for name in wanted:
        text = query_of(found, view, name, relation_of(named_in, known, name))
        if json:
            cli.screen.record({"table": spec.table, "reader": name, "query": text})
        else:
            heading = f"# {name}\n" if len(wanted) > 1 else ""
            cli.screen.dictate(f"{heading}{text}")
