"""`gddl rebuild`, `gddl reload`, `gddl resync`, and `gddl errors`: tables made again, and the quarantine."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, ask, ask_for_all, carry_out, each, finish, perform, show_counts
from airflow_gddl.cli.options import read_keys, require_whole_key
from airflow_gddl.cli.screen import Cell, Screen, count, counted
from airflow_gddl.cli.verify import require_connection, require_name
from airflow_gddl.contract.actions import (
    Action,
    HandleErrors,
    Plan,
    Rebuild,
    Reload,
    ResyncRows,
)
from airflow_gddl.contract.codes import FILE_UNREADABLE, KEY_INVALID, OPTION_INVALID, RELOAD_UNCONFIRMED, SHARD_REMOVED
from airflow_gddl.contract.documentation import of_quarantined
from airflow_gddl.contract.durations import is_duration, moment_of, seconds
from airflow_gddl.contract.errors import OF_FILES, FatalError, GddlError, MetadataError, invalid_option
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import DISMISSIBLE, JobResult
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores.delta_tables import quarantined_codes

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

_LOSSES = ("files", "rows_before", "rows", "appear", "vanish", "change", "archived")
_READ = ("rows", "absent", "files")


def rebuild(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.Tables = None,
    every: options.All = False,
    yes: options.Yes = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    dry_run: options.DryRun = False,
    wait: options.Wait = 0.0,
) -> None:
    """Make replica and history again from what the lake knows: the change table, and files not yet in it.

    No landing file is needed; no column, row or before image is lost. Use it after a change of keys, sequence_by, mask,
    exclude_columns, partition_by or options.types, and where a replica was damaged.
    """
    ask_for_all(table or (), every=every, unasked=yes or dry_run)
    action: Action = Plan(of=Rebuild()) if dry_run else Rebuild()
    request = Request(metadata, table, action, full_listing=True, wait=wait, as_json=json)
    carry_out(context.of(ctx), request, job.show_plans if dry_run else job.show_runs)


def reload(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.NamedTables,
    from_files: Annotated[
        bool, typer.Option("--from-files", help="Required: the tables are loaded from the landing files.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only files last modified from then on: 2026-01-31T12:00Z, 24h."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only files last modified before then; as --since.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Also where rows, columns or changes go; else it asks.")] = False,
    dry_run: options.DryRun = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Load tables again from the files that are there now, and from nothing else.

    What only the change table knew is archived: it stays there with generation 0 and no longer counts. Use it after a
    TRUNCATE, a new snapshot, a lost replication slot or a wrong type, once the old files are out of the landing folder.
    Where rows, columns or changes would go, it says which and asks; --yes answers.

    With --since and --until only change files that landed in this time are read again: restored, mended, or written
    again at the source. What they hold besides is added, and what they hold no more stays. Files that wait are loaded,
    too.
    """
    if not from_files:
        remedy = "write --from-files; to keep what the change table knows, use `gddl rebuild --table SCHEMA.NAME`"
        raise invalid_option("the command does not say from what it reloads", remedy)
    cli = context.of(ctx)
    action = Reload(confirmed=yes, landed_since=_landed("--since", since), landed_until=_landed("--until", until))
    request = Request(metadata, table, action, full_listing=True, wait=wait, as_json=json)
    if dry_run:
        carry_out(cli, replace(request, action=Plan(of=replace(action, confirmed=False))), job.show_plans)
    outcome = perform(cli, request)
    unconfirmed = [r for r in outcome.results if r.error is not None and r.error.code == RELOAD_UNCONFIRMED]
    if unconfirmed and _agreed(cli, unconfirmed):
        kept = [result for result in outcome.results if result not in unconfirmed]
        tables = [result.table for result in unconfirmed]
        outcome = perform(cli, replace(request, tables=tables, action=replace(action, confirmed=True)))
        outcome = replace(outcome, results=(*kept, *outcome.results))
    show = job.show_runs if since or until else show_reloads
    finish(cli, request, outcome, show, lambda result: result.status == "failed")


def _landed(name: str, text: str | None) -> str:
    """A bound of a time as ISO 8601 with a zone; a duration counts back from now.

    An empty text is refused: it comes from a variable without a value, and all files would be read.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    if text is None:
        return ""
    try:
        since = datetime.now(UTC) - timedelta(seconds=seconds(text)) if is_duration(text) else moment_of(text)
    except (ValueError, OverflowError) as error:
        remedy = "write e.g. 2026-01-31, 2026-01-31T12:00:00Z or 24h"
        raise invalid_option(f"{name} {text!r} is not a moment", remedy) from error
    return since.isoformat()


def _agreed(cli: CliContext, unconfirmed: Sequence[JobResult]) -> bool:
    """Ask at a terminal, with what each table would lose; false without one."""
    if not sys.stdin.isatty():
        return False
    for result in unconfirmed:
        if result.error is not None:
            cli.screen.say(result.error.message, "yellow")
    return typer.confirm(f"Reload {', '.join(result.table for result in unconfirmed)}?", default=False)


def resync(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.NamedTables,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]VALUE",
            help="The row of this key. All parts of a key have to be named; a column that is named again begins "
            "the next key. @FILE reads a part from each line of a file, @- from standard input.",
        ),
    ] = None,
    differences: Annotated[
        bool, typer.Option("--differences", help="Rows that the last `gddl verify` found different.")
    ] = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    source_connection: options.SourceConnection = "",
    wait: options.Wait = 0.0,
) -> None:
    """Read rows from the source, which take the place of the table's; a row that the source lacks is deleted.

    The rows are those of --key, or those that the last `gddl verify` found different. Changes that come later are
    applied to them.
    """
    require_name(source_connection)
    keys = read_keys(key or [])
    if bool(keys) == differences:
        what = "rows are chosen in two ways" if differences else "no rows are chosen"
        raise MetadataError(KEY_INVALID, what, remedy="write --key or --differences")
    cli = context.of(ctx).lending(source_connection)
    action = ResyncRows(keys=keys, differences=differences, source_connection=source_connection)
    check = partial(_require_rows, cli, source_connection, keys)
    request = Request(metadata, table, action, wait=wait, as_json=json, check=check)
    carry_out(cli, request, show_repaired)


def _require_rows(
    cli: CliContext,
    connection: str,
    keys: Sequence[Mapping[str, str]],
    loaded: LoadedMetadata,
    tables: Sequence[TableSpec],
) -> None:
    """
    Raises:
        MetadataError: a table has no connection to its source, or a key is not whole.
    """
    require_connection(cli, connection, loaded, tables)
    for key in keys:
        require_whole_key(key, loaded, tables)


def show_reloads(screen: Screen, results: Sequence[JobResult]) -> None:
    """What each table was loaded from, and what it gained and lost."""
    titles = ("files", "rows before", "rows", "appeared", "vanished", "changed", "archived")
    show_counts(screen, titles, results, lambda result: _counts(result, "reload", _LOSSES))
    for result in results:
        missing_columns = (job.answer(result).get("reload") or {}).get("columns")
        if missing_columns:
            screen.say(f"{result.table}: columns that no file has any more: {', '.join(missing_columns)}", "yellow")


def show_repaired(screen: Screen, results: Sequence[JobResult]) -> None:
    """Show how many of the chosen rows the source has and lacks, and what became of the table's rows."""
    titles = ("rows read", "not in the source", "files")
    show_counts(screen, titles, results, lambda result: _counts(result, "resync", _READ))


def _counts(result: JobResult, name: str, fields: Sequence[str]) -> list[str]:
    details = job.answer(result).get(name) or {}
    return [count(details.get(field)) for field in fields]


_FIRST = ("key", "code", "reason")
_NAMED = 5

app = Group("Quarantined rows and files: list them, process them again, or dismiss them.")


_Codes = Annotated[list[str] | None, typer.Option(metavar="CODE", help="Only rows with this code. Repeat for more.")]


@app.command(name="list")
def list_errors(  # noqa: PLR0913, PLR0917 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    code: _Codes = None,
    rows: Annotated[bool, typer.Option("--rows", help="Show the rows, oldest first, not a summary by code.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum rows of each table.")] = 100,
) -> None:
    """Show what is in quarantine, by code, with what to do; with --rows each row and its reason."""
    cli = context.of(ctx)
    check = partial(_require_codes, cli, code or ())
    request = Request(
        metadata,
        table,
        HandleErrors(limit=limit, codes=tuple(code or ())),
        as_json=json,
        check=check,
    )
    carry_out(cli, request, partial(show_quarantines, show=show_rows if rows else partial(show_codes, folder=metadata)))


@app.command()
def replay(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    wait: options.Wait = 0.0,
    code: _Codes = None,
) -> None:
    """Process quarantined rows and files again, after their cause was fixed; exit status 1 when some fail again."""
    cli = context.of(ctx)
    check = partial(_require_codes, cli, code or ())
    request = Request(
        metadata,
        table,
        HandleErrors(mode="replay", codes=tuple(code or ())),
        wait=wait,
        as_json=json,
        check=check,
    )
    carry_out(cli, request, partial(show_replays, codes=tuple(code or ())), _failed_again)


@app.command()
def dismiss(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.OneTable,
    code: Annotated[list[str], typer.Option(metavar="CODE", help="Rows with this code. Repeat for more.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why nothing better is expected; kept with your name.")],
    file: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Only rows of this file, as `errors list` names it."),
    ] = None,
    yes: options.Yes = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Give up quarantined rows for which nothing better comes: they are never loaded, and need no more attention.

    They stay in the quarantine, marked as resolved. Only a reload from the files processes them again. With
    --code KEYS_SHARED: say that the rows which share a key are meant to.
    """
    cli = context.of(ctx)
    if not reason.strip():
        raise invalid_option("--reason is empty", "say why nothing better is expected")
    rows = [one for one in code if one not in DISMISSIBLE]
    if rows:
        ask(f"Dismiss the rows of {table} in quarantine with {' or '.join(rows)}?", yes=yes)
    action = HandleErrors(
        mode="dismiss", codes=tuple(code), source_files=tuple(file or ()), reason=reason, asked_by=context.user_name()
    )
    check = partial(_require_codes, cli, rows)
    request = Request(metadata, (table,), action, wait=wait, as_json=json, check=check)
    carry_out(cli, request, each(show_dismissal))


def show_dismissal(screen: Screen, result: JobResult) -> None:
    """How many rows were given up, and how many are left."""
    details = job.answer(result)
    if not details:
        return
    for code in details["codes"]:
        if code in DISMISSIBLE:
            screen.say(f"{result.table}: {code} needs no more attention, until a run warns of it again", "green")
    if set(details["codes"]) <= set(DISMISSIBLE):
        return
    remaining = result.in_quarantine or 0
    rest = (
        f"; {count(remaining)} left, see `gddl errors list --table {result.table}`" if remaining else "; nothing left"
    )
    color = "green" if details["dismissed"] else "yellow"
    screen.say(f"{result.table}: {count(details['dismissed'])} dismissed{rest}", color)


def _require_codes(cli: CliContext, codes: Sequence[str], loaded: LoadedMetadata, tables: Sequence[TableSpec]) -> None:
    """Look for each code in the quarantine of the tables; one that can't be read here is left to the job.

    Raises:
        FatalError: `OPTION_INVALID`.
    """
    if not codes:
        return
    there: Counter[str] = Counter()
    for spec in tables:
        path = Layout.of(loaded.roots, spec).errors
        try:
            quarantined = quarantined_codes(path, cli.environ)
        except GddlError:
            return
        if quarantined is None and (is_s3(path) or not Path(loaded.roots.lake).is_dir()):
            return
        there.update(quarantined or {})
    if missing := [code for code in codes if not there[code]]:
        known = ", ".join(f"{code} {count(number)}" for code, number in sorted(there.items())) or "nothing"
        names = ", ".join(spec.table for spec in tables[:_NAMED]) + (" …" if len(tables) > _NAMED else "")
        what = f"{names}: 0 rows with code {' or '.join(missing)}; in quarantine: {known}"
        remedy = "name codes that are in quarantine, or leave out --code"
        raise FatalError(OPTION_INVALID, what, remedy=remedy)


def show_replays(screen: Screen, results: Sequence[JobResult], *, codes: Sequence[str]) -> None:
    """Show each table's result, then how many of its quarantined rows were accepted."""
    job.show_runs(screen, results)
    for result in results:
        _show_replay(screen, result, codes)


def _failed_again(result: JobResult) -> int:
    """Rows and files that are in quarantine after a replay, as before."""
    return result.quarantined + sum(warning.count for warning in result.warnings if warning.code == FILE_UNREADABLE)


def _show_replay(screen: Screen, result: JobResult, codes: Sequence[str]) -> None:
    """How many of the quarantined rows of one table were accepted."""
    if result.status == "failed":
        return
    if not result.rows_read and _failed_again(result):
        return  # the warning names the files
    if not result.rows_read:
        with_codes = f" with code {' or '.join(codes)}" if codes else ""
        removed = any(warning.code == SHARD_REMOVED for warning in result.warnings)
        of_shards = " of its present sources" if removed else ""
        said = f"{result.table}: nothing{of_shards} in quarantine{with_codes}"
        screen.say(said, "yellow" if codes or removed else "green")
        return
    accepted, again = result.rows_read - result.quarantined, result.quarantined
    rest = f"; {count(again)} in quarantine again, see `gddl errors list --table {result.table}`" if again else ""
    screen.say(
        f"{result.table}: {count(accepted)} of {count(result.rows_read)} accepted{rest}", "yellow" if again else "green"
    )


def show_quarantines(
    screen: Screen, results: Sequence[JobResult], *, show: Callable[[Screen, JobResult], None]
) -> None:
    """The quarantine of each table; tables where it is empty share a line."""
    read = [result for result in results if result.status != "failed"]
    empty = [result.table for result in read if not job.answer(result).get("unresolved")]
    for result in read:
        if result.table not in empty:
            show(screen, result)
    if empty:
        screen.say(f"{empty[0] if len(empty) == 1 else counted(len(empty), 'table')}: nothing in quarantine", "green")


def show_codes(screen: Screen, result: JobResult, *, folder: str) -> None:
    """A summary for each code: rows, files, first and last time, what to do, and the commands that do it.

    Args:
        folder: of the metadata, as the user named it.
    """
    quarantine = job.answer(result)
    screen.say(f"{result.table}: {count(quarantine['unresolved'])} in quarantine", "bold")
    place = "" if folder == "metadata" else f" --metadata {shlex.quote(folder)}"
    for one in quarantine["codes"]:
        code, first, last = one["code"], _to_the_second(one["first"]), _to_the_second(one["last"])
        more = f"{code}{place}"
        is_file, many = code.startswith(OF_FILES), counted(one["files"], "file")
        many = many if is_file else f"{counted(one['rows'], 'row')} of {many}"
        since = f"at {first}" if first == last else f"{first} to {last}"
        screen.spans([Cell(f"  {code}", "yellow"), Cell(f"  {many}, {since} UTC")])
        remedy = of_quarantined(code, result.table)
        lines = {"remedy": remedy, "rows": f"gddl errors list --table {result.table} --code {more} --rows"}
        if not is_file or "replay" in remedy:
            lines["replay"] = f"gddl errors replay --table {result.table} --code {more}"
        lines["dismiss"] = f"gddl errors dismiss --table {result.table} --code {more} --reason TEXT"
        for name, value in lines.items():
            screen.spans([Cell(f"    {name:<8}", "dim"), Cell(value)])


def _to_the_second(moment: str) -> str:
    """`2024-01-02T10:00:00.123Z` as `2024-01-02 10:00:00`."""
    return moment[:19].replace("T", " ")


def show_rows(screen: Screen, result: JobResult) -> None:
    """The quarantined rows of one table, each with its key first."""
    quarantine = job.answer(result)
    rows: list[dict[str, Any]] = quarantine["rows"]
    first = f", {count(len(rows))} shown" if quarantine["unresolved"] > len(rows) else ""
    screen.say(f"{result.table}: {count(quarantine['unresolved'])} in quarantine{first}", "bold")
    for row in rows:
        screen.say("")
        key = " ".join(f"{name}={value}" for name, value in (row.get("key") or {}).items())
        spans = [Cell(f"{key}  ", "bold")] if key else []
        screen.spans([*spans, Cell(str(row.get("code")), "yellow"), Cell(f"  {row.get('reason') or ''}")])
        others = {name: value for name, value in row.items() if value is not None and name not in _FIRST}
        for name, value in others.items():
            # One line each, since records are too wide for a table.
            screen.spans([Cell(f"  {name:<13}", "dim"), Cell(str(value))])
