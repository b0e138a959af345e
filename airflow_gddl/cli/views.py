"""`gddl views`: statements that create a view of each table for consumers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import context, exits, options
from airflow_gddl.cli import metadata as catalogs
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.publishing import DATABASE, published_table
from airflow_gddl.cli.text import counted
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.view_sql import ViewName, view_sql


class SqlReaderName(StrEnum):
    """See `view_sql.SqlReader`."""

    SPARK = "spark"
    DATABRICKS = "databricks"
    ATHENA = "athena"
    DUCKDB = "duckdb"


_Database = Annotated[
    str,
    typer.Option("--database", metavar="NAME", help="Database of the views; {schema} stands for the source's schema."),
]
_Out = Annotated[str, typer.Option("--out", metavar="DIR", help="Write a file for each table instead.")]


def views(  # noqa: PLR0913, PLR0917 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    reader: Annotated[SqlReaderName, typer.Option("--reader", help="SQL engine.")] = SqlReaderName.SPARK,
    database: _Database = DATABASE,
    out: _Out = "",
) -> None:
    """Print `CREATE OR REPLACE VIEW` statements of tables' published columns; no Spark, nothing is registered."""
    if not database.strip():
        raise MetadataError("OPTION_INVALID", "--database is empty", remedy="name a database, e.g. clean_{schema}")
    cli = context.of(ctx)
    catalog = catalogs.read(cli, metadata)
    specs, bad = catalogs.choose(cli, catalog, tuple(table or ()), metadata)
    published = [spec for spec in specs if spec.published or table]
    named = [(spec, ViewName.of(spec.table, database)) for spec in published]
    _refuse_collisions(named)
    failed, done = 0, 0
    for spec, view in named:
        try:
            statements = view_sql(published_table(catalog.roots, spec, cli.environ), view, reader.value)
        except GddlError as error:  # other tables continue
            failed += 1
            cli.screen.warn(f"{spec.table}: {error}", "red")
            continue
        done += 1
        _give(cli, spec, view, statements, out=out, as_json=json)
    cli.screen.warn(_summary(done, failed, len(specs) - len(published), out))
    if failed or bad:
        raise typer.Exit(exits.FAILED if failed else exits.BAD_METADATA)


def _give(
    cli: CliContext, spec: TableSpec, view: ViewName, statements: tuple[str, ...], *, out: str, as_json: bool
) -> None:
    text = "".join(f"{statement};\n" for statement in statements)
    if out:
        _write(out, f"{view}.sql", text)
    if as_json:
        cli.screen.record({"table": spec.table, "view": str(view), "statements": list(statements)})
    elif not out:
        cli.screen.dictate(text)


def _write(folder: str, name: str, text: str) -> None:
    """
    Raises:
        FatalError: `VIEWS_NOT_WRITTEN`.
    """
    remedy = "name a local folder that can be written"
    if "://" in folder:
        raise FatalError("VIEWS_NOT_WRITTEN", "--out is no local folder", where=folder, remedy=remedy)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / name).write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"{type(error).__name__}: {error.strerror or error}"
        raise FatalError("VIEWS_NOT_WRITTEN", what, where=folder, remedy=remedy) from error


def _refuse_collisions(named: Sequence[tuple[TableSpec, ViewName]]) -> None:
    """
    Raises:
        FatalError: `VIEW_NAMES_COLLIDE`.
    """
    seen: dict[str, str] = {}
    for spec, view in named:
        other = seen.setdefault(view.identity, spec.table)
        if other != spec.table:
            what = f"{other} and {spec.table} would both have the view {view}"
            remedy = "put {schema} into --database, or name one of them with --table"
            raise FatalError("VIEW_NAMES_COLLIDE", what, remedy=remedy)


def _summary(done: int, failed: int, unpublished: int, out: str) -> str:
    parts = [f"{counted(done, 'view')} {f'written to {out}' if out else 'rendered'}"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{unpublished} not published"] if unpublished else []
    return ", ".join(parts)
