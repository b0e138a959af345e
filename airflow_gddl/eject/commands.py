"""`gddl eject`: a table's plain job and DAG, for a team that leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as catalogs
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.eject import files_of
from airflow_gddl.runtime.delta_tables import replica_schema


def eject(
    ctx: typer.Context,
    *,
    table: options.OneTable,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder; default: eject/SCHEMA.NAME.")
    ] = None,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
) -> None:
    """Write a plain PySpark job and a plain Airflow DAG that load a table without this package; nothing is changed."""
    cli = context.of(ctx)
    catalog = catalogs.read(cli, metadata)
    (spec,), _ = catalogs.choose(cli, catalog, (table,), metadata)
    layout = Layout.of(catalog.roots, spec)
    stored = replica_schema(layout.replica, cli.environ)
    columns = () if stored is None else stored.columns
    schedule = spec.cadence if isinstance(spec.cadence, str) and spec.cadence != "continuous" else None
    files = files_of(spec, layout, columns, schedule)
    folder = out or Path("eject") / spec.table
    if taken := [name for name in files if (folder / name).exists()]:
        what, remedy = f"{folder} has {', '.join(taken)} already", "name another folder with --out"
        raise FatalError("EJECT_EXISTS", what, remedy=remedy)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if json:
        cli.screen.record({"table": spec.table, "files": [str(folder / name) for name in files]})
    else:
        cli.screen.dictate("\n".join(f"wrote {folder / name}" for name in files))
