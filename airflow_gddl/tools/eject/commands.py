"""`gddl eject`: a table's plain job and DAG, for a team that leaves; the package makes their texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import answer, run_tables
from airflow_gddl.contract import codes
from airflow_gddl.contract.actions import Eject
from airflow_gddl.contract.codes import FOLDER_TAKEN
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.tools.eject import Known, files_of, require_plain


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
    loaded = metadata_folder.read(cli, metadata)
    (spec,), _ = metadata_folder.choose(cli, loaded, (table,), metadata)
    require_plain(spec)
    known = _known(cli, loaded, spec)
    schedule = spec.cadence if isinstance(spec.cadence, str) and spec.cadence != "continuous" else None
    files = files_of(spec, loaded.roots, known, schedule)
    folder = out or Path("eject") / spec.table
    if taken := [name for name in files if (folder / name).exists()]:
        what, remedy = f"{folder} has {', '.join(taken)} already", "name another folder with --out"
        raise FatalError(FOLDER_TAKEN, what, remedy=remedy)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if json:
        cli.screen.record({"table": spec.table, "files": [str(folder / name) for name in files]})
    else:
        cli.screen.dictate("\n".join(f"wrote {folder / name}" for name in files))


def _known(cli: CliContext, loaded: LoadedMetadata, spec: TableSpec) -> Known:
    """
    Raises:
        GddlError: of the job, as `EJECT_UNSUPPORTED`.
    """
    job_options = JobOptions(action=Eject(), full_listing=True)
    (result,) = run_tables(cli, loaded, (spec,), job_options).results
    if result.error is not None:
        raise FatalError(codes.of(result.error.code), result.error.message, where=spec.table)
    return Known(**answer(result))
