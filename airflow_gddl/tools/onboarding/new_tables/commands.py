"""`gddl new-tables`: tables of a source that have no row."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.source_access import announced
from airflow_gddl.metadata.folder import open_folder
from airflow_gddl.tools.onboarding.new_tables import looking
from airflow_gddl.tools.onboarding.new_tables.finding import LookRequest
from airflow_gddl.tools.onboarding.new_tables.looking import Decisions, Looked
from airflow_gddl.tools.onboarding.new_tables.standing import Known, NewTable, code_of, text_of

app = Group(help="Show, accept or ignore tables of a source that have no row.")
_COLUMNS = ("table", "standing", "keys", "code", "what")
_Names = Annotated[list[str], typer.Argument(metavar="TABLE...", help="source:schema.name, as `list` shows them.")]


@app.command("look")
def look(ctx: typer.Context, metadata: options.Metadata = "metadata", json: options.Json = False) -> None:
    """Look for tables without a row at the sources that ask for it (`new_tables`), as the DAG gddl_new_tables does.

    Exit status 1 where a source could not be read.
    """
    cli = context.of(ctx)
    looked = looking.look(request_of(cli, metadata))
    _show(cli, looked.known, json)
    for fault in looked.faults:
        cli.screen.warn(str(fault), "red")
    if looked.faults:
        raise typer.Exit(context.FAILED)


@app.command("list")
def list_(ctx: typer.Context, metadata: options.Metadata = "metadata", json: options.Json = False) -> None:
    """Show what the last look found, and what was decided."""
    cli = context.of(ctx)
    _show(cli, looking.read(request_of(cli, metadata)).known, json)


@app.command("accept")
def accept(
    ctx: typer.Context,
    tables: _Names,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="COLUMN", help="Key column, instead of those found; may be given several times."),
    ] = None,
    append_only: Annotated[bool, typer.Option("--append-only", help="Without keys: each change is a row.")] = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
) -> None:
    """Write the proposed rows into the metadata folder; where it can't be written, print them."""
    cli = context.of(ctx)
    decisions = Decisions(accept=tuple(tables), keys=tuple(key or ()), append_only=append_only)
    _decided(cli, looking.decide(request_of(cli, metadata), decisions), json)


@app.command("ignore")
def ignore(
    ctx: typer.Context, tables: _Names, metadata: options.Metadata = "metadata", json: options.Json = False
) -> None:
    """Never propose these."""
    cli = context.of(ctx)
    _decided(cli, looking.decide(request_of(cli, metadata), Decisions(ignore=tuple(tables))), json)


def request_of(cli: CliContext, metadata: str) -> LookRequest:
    """
    Raises:
        MetadataError: `METADATA_MISSING`.
    """
    metadata_folder.require_folder(metadata)
    return LookRequest(
        folder=open_folder(metadata, cli.environ),
        environ=cli.environ,
        reaching=lambda loaded: announced(loaded.access, cli.environ),
        now=cli.now().timestamp(),
    )


def _show(cli: CliContext, known: Known, json: bool) -> None:
    if json:
        cli.screen.records(_record(one) for one in known.tables)
        return
    shown = [one for one in known.tables if one.standing != "ignored"]
    if shown:
        cli.screen.table(_COLUMNS, [_cells(one) for one in shown])
    else:
        cli.screen.say("no table without a metadata row", "green")
    for note in known.document.notes:
        if ":" not in note.table:
            cli.screen.warn(note.line, "yellow")


def _decided(cli: CliContext, looked: Looked, json: bool) -> None:
    if json:
        written = not looked.unwritten
        cli.screen.records(_record(one) for one in looked.fresh)
        cli.screen.records({"file": file.name, "written": written, "text": file.new} for file in looked.files)
        return
    for one in looked.fresh:
        cli.screen.say(f"{one.name}: {one.standing}", "green")
    for line in looked.lines:
        cli.screen.dictate(line)


def _cells(one: NewTable) -> list[str]:
    return [one.name, one.standing, ", ".join(one.keys or ()), code_of(one), text_of(one)]


def _record(one: NewTable) -> dict[str, object]:
    return {
        "table": one.name, "standing": one.standing, "code": code_of(one), "keys": one.keys,
        "evidence": one.evidence, "row": one.row, "why": one.why,
    }  # fmt: skip
