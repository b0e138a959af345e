"""`gddl rebuild`, `gddl reload`, `gddl resync`: tables made again from the lake, from files, against the source."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from airflow_gddl.cli import context, options, summary
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.explain import require_name
from airflow_gddl.cli.job import Done, Request, ask_for_all, carry_out, perform, show_counts
from airflow_gddl.cli.screen import Screen, count
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions

_REBUILD = """Make replica and history again from what the lake knows: the change table, and files not yet in it.

No landing file is needed; no column, row or before image is lost. Use it after a change of keys, sequence_by, mask,
exclude_columns, partition_by or options.types, and where a replica was damaged."""
_RELOAD = """Load tables again from the files that are there now, and from nothing else.

What only the change table knew is archived: it stays there with generation 0 and no longer counts. Use it after a
TRUNCATE, a new snapshot, a lost replication slot or a wrong type, once the old files are out of the landing folder.
Where rows, columns or changes would go, it says which and asks; --yes answers."""
_RESYNC = """Load tables again from the files that are there now, and compare them with the source.

The tables are replaced only if they are no further from the source than before; the command fails while they differ."""
_LOSSES = ("files", "rows_before", "rows", "appear", "vanish", "change", "archived")
_DISTANCES = ("rows", "appear", "vanish", "change", "far_before", "far_after")
_UNCONFIRMED = "RELOAD_UNCONFIRMED"
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the batches without running them.")]


def rebuild(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.Tables = None,
    every: options.All = False,
    yes: options.Yes = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    dry_run: DryRun = False,
    wait: options.Wait = 0.0,
) -> None:
    from airflow_gddl.cli.summary import show_plans  # noqa: PLC0415 - of a dry run alone

    names = tuple(table or ())
    ask_for_all(names, every=every, unasked=yes or dry_run)
    asked = JobOptions(action="plan" if dry_run else "run", full_refresh=True, full_listing=True, wait_seconds=wait)
    request = Request(metadata=metadata, tables=names, options=asked, as_json=json)
    carry_out(context.of(ctx), request, show_plans if dry_run else summary.show_runs)


def reload(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.NamedTables,
    from_files: Annotated[
        bool, typer.Option("--from-files", help="From the landing files. Required: it says what counts.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Also where rows, columns or changes go; else it asks.")] = False,
    dry_run: DryRun = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    if not from_files:
        remedy = "write --from-files; to keep what the change table knows, use gddl rebuild"
        raise MetadataError("RELOAD_SOURCE_MISSING", "gddl reload does not say from what", remedy=remedy)
    cli = context.of(ctx)
    if dry_run:
        from airflow_gddl.cli.summary import show_plans  # noqa: PLC0415 - of a dry run alone

        asked = JobOptions(action="plan", reload=True, full_listing=True)
        carry_out(cli, Request(metadata=metadata, tables=tuple(table), options=asked, as_json=json), show_plans)
    asked = JobOptions(reload=True, confirmed=yes, full_listing=True, wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table), options=asked, as_json=json)
    done = perform(cli, request)
    again = tuple(r.table for r in done.outcome.results if r.error is not None and r.error.code == _UNCONFIRMED)
    if again and _agreed(cli, done, again):
        request = replace(request, tables=again, options=replace(asked, confirmed=True))
        kept = [result for result in done.outcome.results if result.table not in again]
        done = perform(cli, request)
        done = replace(done, outcome=replace(done.outcome, results=(*kept, *done.outcome.results)))
    if not json:
        show_reloads(cli.screen, done.outcome.results)
    summary.show_troubles(cli.screen, done.outcome)
    failed = any(result.status == "failed" for result in done.outcome.results)
    raise typer.Exit(context.FAILED if failed and done.exit_status == context.OK else done.exit_status)


def _agreed(cli: CliContext, done: Done, tables: Sequence[str]) -> bool:
    """Ask at a terminal, with what each table would lose; false without one."""
    if not sys.stdin.isatty():
        return False
    for result in done.outcome.results:
        if result.table in tables and result.error is not None:
            cli.screen.say(result.error.message, "yellow")
    return typer.confirm(f"Reload {', '.join(tables)}?", default=False)


def resync(
    ctx: typer.Context,
    *,
    table: options.NamedTables,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    source_connection: options.SourceConnection = "",
    wait: options.Wait = 0.0,
) -> None:
    require_name(source_connection)
    cli = context.of(ctx).lending(source_connection)
    asked = JobOptions(resync=True, source_connection=source_connection, full_listing=True, wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table), options=asked, as_json=json)
    carry_out(cli, request, show_distances)


rebuild.__doc__, reload.__doc__, resync.__doc__ = _REBUILD, _RELOAD, _RESYNC


def show_reloads(screen: Screen, results: Sequence[JobResult]) -> None:
    """What each table was loaded from, and what it gained and lost."""
    titles = ("files", "rows before", "rows", "appeared", "vanished", "changed", "archived")
    show_counts(screen, titles, results, lambda result: _counts(result, "reload", _LOSSES))
    for result in results:
        gone = (summary.answer(result).get("reload") or {}).get("columns")
        if gone:
            screen.say(f"{result.table}: columns that no file has any more: {', '.join(gone)}", "yellow")


def show_distances(screen: Screen, results: Sequence[JobResult]) -> None:
    """Show the changes of each table's swap, and the differences of both versions from the source."""
    titles = ("rows", "appeared", "vanished", "changed", "far before", "far after")
    show_counts(screen, titles, results, lambda result: _counts(result, "resync", _DISTANCES))


def _counts(result: JobResult, name: str, fields: Sequence[str]) -> list[str]:
    found = summary.answer(result).get(name) or {}
    return [count(found.get(field)) for field in fields]
