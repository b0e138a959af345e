"""`gddl maintain`, `gddl sweep release`, `gddl erase` and `gddl move`: what is done to stored tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext, of_outcome
from airflow_gddl.cli.job import Request, ask, carry_out, each, recorder_of, run_tables, show_counts
from airflow_gddl.cli.options import read_key
from airflow_gddl.cli.screen import Screen, count, counted
from airflow_gddl.contract.actions import Erase, Explain, Maintain, Move, SweepRelease, TruncateRelease
from airflow_gddl.contract.errors import GddlError, MetadataError
from airflow_gddl.contract.result import MAINTENANCE_COUNTS, JobResult
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.runtime.state.documents import forget
from airflow_gddl.runtime.state.recording import read_records
from airflow_gddl.runtime.state.table_runs import KEPT_RUNS
from airflow_gddl.stores import open_store


def maintain(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show pending work without doing it.")] = False,
    wait: options.Wait = 0.0,
) -> None:
    """Compact small files and remove unreferenced ones; readers see no change."""
    job_options = JobOptions(action=Maintain(dry_run=dry_run), wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table or ()), options=job_options, as_json=json)
    carry_out(context.of(ctx), request, show_upkeep)


def show_upkeep(screen: Screen, results: Sequence[JobResult]) -> None:
    """Show compacted and removed files of each table."""
    titles = ("files joined", "files removed", "log files", "tombstones", "changes cut", "runs", "leftovers")
    show_counts(screen, titles, results, _counts)


def _counts(result: JobResult) -> list[str]:
    details = job.answer(result)
    joined = sum(c["files_before"] - c["files_after"] for c in details.get("compacted", {}).values())
    return [count(joined), *(count(details.get(name)) for name in MAINTENANCE_COUNTS)]


sweep_app = Group("Rows that a reload lacks: release them to be removed.")


@sweep_app.callback()
def sweep() -> None:
    """Rows that a reload lacks: release them to be removed."""


@sweep_app.command()
def release(
    ctx: typer.Context,
    *,
    table: options.NamedTables,
    yes: options.Yes = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Remove the rows that the newest full load lacks, regardless of their share; confirms that the load is
    complete."""
    cli = context.of(ctx)
    ask(f"Remove the rows of {', '.join(table)} that the newest full load lacks?", yes=yes)
    job_options = JobOptions(action=SweepRelease(), wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table), options=job_options, as_json=json)
    carry_out(cli, request, partial(show_releases, unheld="no rows are held, nothing was removed"))


def show_releases(screen: Screen, results: Sequence[JobResult], *, unheld: str) -> None:
    """What was removed, and the tables where nothing was held."""
    job.show_runs(screen, results)
    for result in results:
        if result.status == "skipped":
            screen.say(f"{result.table}: {unheld}", "yellow")


truncate_app = Group("Truncates of source tables that are held: release them to be applied.")


@truncate_app.callback()
def truncate() -> None:
    """Truncates of source tables that are held: release them to be applied."""


@truncate_app.command("release")
def release_truncate(
    ctx: typer.Context,
    *,
    table: options.NamedTables,
    yes: options.Yes = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Apply the truncate that holds a table's files (TRUNCATE_HELD): rows before it are deleted. Then load the files
    after it."""
    cli = context.of(ctx)
    ask(f"Delete the rows of {', '.join(table)} that were there before the truncate of its source?", yes=yes)
    job_options = JobOptions(action=TruncateRelease(), wait_seconds=wait)
    shown = partial(show_releases, unheld="no truncate is held, nothing was deleted")
    carry_out(cli, Request(metadata=metadata, tables=tuple(table), options=job_options, as_json=json), shown)


def erase(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.OneTable,
    key: Annotated[
        list[str],
        typer.Option(
            "--key",
            metavar="COLUMN=VALUE",
            help="A part of the key; all have to be named. @FILE reads parts from a file, @- from standard input.",
        ),
    ],
    yes: options.Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the tables hold of the key, and remove nothing.")
    ] = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Permanently remove one key from all of a table's Delta tables, and prevent its return.

    Pass personal keys in a file or on standard input: arguments are visible in the shell's history and the process
    list.
    """
    cli = context.of(ctx)
    code = "ERASE_KEY_INVALID"
    named = read_key(key, code)
    check = partial(options.require_whole_key, named, code)
    if dry_run:
        from airflow_gddl.cli.explain import show_history  # noqa: PLC0415 - of a dry run alone

        job_options = JobOptions(action=Explain(key=named, before_erasure=True))
        request = Request(metadata=metadata, tables=(table,), options=job_options, as_json=json, check=check)
        carry_out(cli, request, each(show_history))
    ask(f"Erase one key ({', '.join(named)}) from all tables of {table}, for good?", yes=yes)
    job_options = JobOptions(action=Erase(key=named, asked_by=context.user_name()), wait_seconds=wait)
    request = Request(metadata=metadata, tables=(table,), options=job_options, as_json=json, check=check)
    carry_out(cli, request, each(show_erasure))


def show_erasure(screen: Screen, result: JobResult) -> None:
    """Show removed rows, when storage is cleaned, and landing files that still contain the key."""
    details = job.answer(result)
    if not details:
        return
    removed = ", ".join(f"{name} {count(n)}" for name, n in details["removed"].items())
    screen.say(f"{result.table}: erased; rows removed: {removed}", "green")
    screen.say(f"remembered as {details['hash']}")
    screen.say(f"`gddl maintain` after {details['stored_until']} removes it from storage")
    for path in details["files"]:
        screen.say(f"still in the landing file {path}", "yellow")


if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata


def move(
    ctx: typer.Context,
    *,
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="SCHEMA.NAME",
            help="The table's name in the lake.",
            autocompletion=options.complete_table,
        ),
    ],
    to: Annotated[str, typer.Option("--to", metavar="SCHEMA.NAME", help="Its new name there.")],
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Rename a table in the lake: its Delta tables and state are copied, then the old ones are removed.

    Change `target` in the metadata before or after it. If it is killed, run it again: it resumes.
    """
    cli = context.of(ctx)
    loaded = metadata_folder.read(cli, metadata)
    spec = _row(loaded.tables, table, to)
    job_options = JobOptions(action=Move(to=to), wait_seconds=wait)
    name = spec.name_in_source
    old = replace(spec, table=table, source_table=None if name == table else name)
    outcome = run_tables(cli, loaded, (old,), Request(metadata=metadata, options=job_options, as_json=json))
    if all(result.error is None for result in outcome.results):
        _record(cli, loaded, table, to)
    if not json:
        for result in outcome.results:
            _show(cli.screen, result, has_target=spec.table == to)
    job.show_troubles(cli, outcome)
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
    row = by_target.get(to) or by_target.get(table)
    if row is None:
        remedy = "name the table by its target, and set its metadata row's target to one of the two"
        raise MetadataError("TABLE_UNKNOWN", f"no metadata row has the target {table!r} or {to!r}", remedy=remedy)
    return row


def _record(cli: CliContext, loaded: LoadedMetadata, old: str, table: str) -> None:
    """Write the state under the table's new name, and remove that of tables that had one of the names before."""
    recorder = recorder_of(cli, loaded)
    try:
        runs = read_records(loaded.roots, table, KEPT_RUNS, cli.environ, loads_only=True).results
        forget(open_store(cli.environ), loaded.roots.lake, (old, table))
    except GddlError as error:
        cli.screen.warn(f"the last run of {table} can't be read, so that it counts as new until its next one: {error}")
        return
    for result in runs:
        recorder.take(replace(result, table=table))
    recorder.flush()


def _show(screen: Screen, result: JobResult, *, has_target: bool) -> None:
    details = job.answer(result)
    if not details:
        return
    screen.say(f"{details['from']} is {details['to']} now; {counted(details['files'], 'file')} copied", "green")
    if not has_target:
        until = f"until then `gddl status` shows {details['from']} as new, and its runs fail with TABLE_MOVED"
        screen.say(f"set the metadata row's target to {details['to']}: {until}", "yellow")
