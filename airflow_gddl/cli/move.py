"""`gddl move`: renames a table in the lake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import context, options, summary
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.exits import of_outcome
from airflow_gddl.cli.job import Request, recorder_of, run_tables
from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.text import counted
from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.contract.errors import GddlError, MetadataError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.runtime.state.documents import forget
from airflow_gddl.runtime.state.facts import KEPT_RUNS
from airflow_gddl.runtime.state.records import read_records
from airflow_gddl.stores import open_store

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import Catalog


def move(
    ctx: typer.Context,
    *,
    table: Annotated[str, typer.Option("--table", metavar="SCHEMA.NAME", help="The table's name in the lake.")],
    to: Annotated[str, typer.Option("--to", metavar="SCHEMA.NAME", help="Its new name there.")],
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Rename a table in the lake: its Delta tables and state are copied, then the old ones are removed.

    Change `target` in the metadata before or after it. If it is killed, run it again: it resumes.
    """
    cli = context.of(ctx)
    catalog = metadata_folder.read(cli, metadata)
    spec = _row(catalog.tables, table, to)
    asked = JobOptions(action="move", move_to=to, wait_seconds=wait)
    name = spec.name_in_source
    old = replace(spec, table=table, source_table=None if name == table else name)
    outcome = run_tables(cli, catalog, (old,), Request(metadata=metadata, options=asked, as_json=json))
    if all(result.error is None for result in outcome.results):
        _record(cli, catalog, table, to)
    if not json:
        for result in outcome.results:
            _show(cli.screen, result, has_target=spec.table == to)
    summary.show_troubles(cli.screen, outcome)
    raise typer.Exit(of_outcome(outcome, bad_rows=False))


def _row(tables: tuple[TableSpec, ...], table: str, to: str) -> TableSpec:
    """The row of the table, with the new or the old target.

    Raises:
        MetadataError: `TABLE_NAME_INVALID`, `TABLE_UNKNOWN`.
    """
    for name in (table, to):
        if fault := table_name_fault(name):
            remedy = "write schema.name, as the table is called in the lake"
            raise MetadataError("TABLE_NAME_INVALID", f"{name!r:.80}: {fault}", remedy=remedy)
    by_target = {spec.table: spec for spec in tables}
    found = by_target.get(to) or by_target.get(table)
    if found is None:
        remedy = "name the table by its target, and set its row's target to one of the two"
        raise MetadataError("TABLE_UNKNOWN", f"no row has the target {table!r} or {to!r}", remedy=remedy)
    return found


def _record(cli: CliContext, catalog: Catalog, old: str, table: str) -> None:
    """Write the state under the table's new name, and remove that of tables that had one of the names before."""
    recorder = recorder_of(cli, catalog)
    try:
        found = read_records(catalog.roots, table, KEPT_RUNS, cli.environ, loads_only=True).results
        forget(open_store(cli.environ), catalog.roots.lake, (old, table))
    except GddlError as error:
        cli.screen.warn(f"the last run of {table} can't be read, so that it counts as new until its next one: {error}")
        return
    for result in found:
        recorder.take(replace(result, table=table))
    recorder.flush()


def _show(screen: Screen, result: JobResult, *, has_target: bool) -> None:
    found = summary.answer(result)
    if not found:
        return
    screen.say(f"{found['from']} is {found['to']} now; {counted(found['files'], 'file')} copied", "green")
    if not has_target:
        screen.say(f"set the row's target to {found['to']}: until then its runs fail with TABLE_MOVED", "yellow")
