"""`gddl status`: the state of every table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import BAD_METADATA, FAILED, RETRY, CliContext
from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, count, duration
from airflow_gddl.contract.alike import Message
from airflow_gddl.contract.errors import GddlError, Note, coded
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.compiled.cache import CompiledSettings
from airflow_gddl.runtime.compiled.documents import Directory
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from airflow_gddl.runtime.compiled.proposals import notes_of, place_of
from airflow_gddl.runtime.state.lake_state import LakeState, StateReader, table_statuses
from airflow_gddl.runtime.state.recording import rebuild
from airflow_gddl.runtime.state.status_list import TableQuery, chosen, counts
from airflow_gddl.runtime.state.table_runs import text_of
from airflow_gddl.runtime.state.table_status import TableStatus, text_of_code
from airflow_gddl.runtime.table_directory import TableRow, select, table_rows


def directory(cli: CliContext, folder: str) -> Directory | None:
    """A short row for every table; compiled again if the metadata has changed.

    Returns:
        null where rows are invalid, the metadata can't be read, or the cache can't be written.
    """
    cache = _cache(cli)
    if cache is None:
        return None
    place = folder if "://" in folder else str(Path(folder).absolute())
    # Commands need the current metadata: no settling time, and a remote folder is listed again.
    settings = CompiledSettings(
        metadata=place, cache=cache, environ=cli.environ, clock=time.time, refresh_seconds=0.0, settle_seconds=0.0
    )
    try:
        serving = CompiledMetadata.current(settings)
        good = serving.generation is not None and not serving.state.why and not serving.problems()
        return serving.directory() if good else None
    except (GddlError, OSError):
        return None


def _cache(cli: CliContext) -> Path | None:
    """Null where the environment names no cache folder."""
    given, home = cli.environ.get("XDG_CACHE_HOME"), cli.environ.get("HOME")
    if given:
        return Path(given, "gddl")
    return Path(home, ".cache", "gddl") if home else None


_STYLES = {
    "broken_row": "bold red",
    "failed": "bold red",
    "unknown": "bold red",
    "late": "bold red",
    "attention": "yellow",
    "running": "cyan",
    "waiting": "yellow",
    "new": "cyan",
    "fresh": "green",
}


def status(  # noqa: PLR0913, PLR0917 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    late: Annotated[bool, typer.Option("--late", help="Only tables that are late.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only tables whose last run failed.")] = False,
    json: options.Json = False,
    from_runs: Annotated[
        bool, typer.Option("--rebuild", help="First rebuild the state from the records of all runs.")
    ] = False,
) -> None:
    """Show the state of every table, without Spark.

    Exit status, of the tables that are shown: 1 where the last run of one failed, else 2 while a row is invalid, else
    75 while the state of one can't be read.
    """
    cli = context.of(ctx)
    query = TableQuery(states=tuple(name for name, wanted in (("late", late), ("failed", failed)) if wanted))
    if from_runs:
        _rebuilt(cli, metadata)
    now = cli.now().timestamp()
    tables, all_sound = _statuses(cli, metadata, table or (), query, now)
    if json:
        cli.screen.records(line_of(one, now) for one in tables)
    else:
        show(cli.screen, tables, now, query.states)
    if any(one.failed for one in tables):
        raise typer.Exit(FAILED)
    if not all_sound:
        raise typer.Exit(BAD_METADATA)
    if any(one.state == "unknown" for one in tables):
        raise typer.Exit(RETRY)


_NONE = {
    (): "no enabled table in the metadata",
    ("late",): "no table is late",
    ("failed",): "no table failed in its last run",
    ("late", "failed"): "no table is both late and failed",
}
_COLUMNS = (
    "table",
    "state",
    ScreenColumn("mode", spare=5),
    ScreenColumn("rows", "right", spare=1),
    ScreenColumn("lag", "right", spare=3),
    ScreenColumn("behind", "right"),
    ScreenColumn("allowed", "right", spare=2),
    ScreenColumn("waiting", "right"),
    ScreenColumn("quarantined", "right"),
    ScreenColumn("late changes", "right", spare=7),
    ScreenColumn("last run", spare=4),
    ScreenColumn("last success", spare=6),
    ScreenColumn("worked on by", spare=8),
)


def _statuses(
    cli: CliContext, metadata: str, names: Sequence[str], query: TableQuery, now: float
) -> tuple[list[TableStatus], bool]:
    """The selected tables, and whether the metadata has no problem of them; problems and troubles are shown."""
    roots, rows, notes, all_sound = _rows(cli, metadata, names)
    for note in notes:
        cli.screen.warn(note.line, "cyan")
    known = _known(cli, roots, rows, lambda: now)
    for trouble in known.troubles:
        since = f"; as of {text_of(trouble.since)}" if trouble.since else ""
        cli.screen.warn(trouble.what + since, "yellow")
    tables = table_statuses(rows, known, now, job.quarantine_rate(cli))
    # --late and --failed are combined with AND; a table of which nothing is known may be both.
    for state in query.states or ("",):
        tables = chosen(tables, replace(query, states=(state, "unknown") if state else ()))
    return tables, all_sound


def _rows(
    cli: CliContext, metadata: str, names: Sequence[str]
) -> tuple[Roots, Sequence[TableRow], Sequence[Note], bool]:
    """The selected tables, what awaits a person where none is named, and whether the metadata is valid; problems are
    shown.
    """
    compiled = None if names else directory(cli, metadata)
    if compiled is not None:
        metadata_folder.warn_of_variables(cli)
        return compiled.roots, [row for row in compiled.rows if row.enabled], _notes(cli, compiled.proposals), True
    loaded = metadata_folder.read(cli, metadata)
    rows = table_rows(loaded.tables, metadata_folder.pipelines(cli, loaded), loaded.problems)
    broken = {row.table for row in rows if row.problems}
    bad = metadata_folder.problems_of(loaded, names)
    metadata_folder.show(cli.screen, bad, metadata)
    named = [name for name in names if name not in broken]
    sound = select(loaded.tables, named, ()) if named else ()
    wanted = {spec.table for spec in sound} | broken.intersection(names)
    chosen_rows = [row for row in rows if (row.table in wanted if names else row.enabled)]
    proposals = place_of(loaded.roots.lake, loaded.dag_prefix) if loaded.proposing and not names else ""
    return loaded.roots, chosen_rows, _notes(cli, proposals), not bad


def _notes(cli: CliContext, proposals: str) -> tuple[Note, ...]:
    try:
        return notes_of(proposals, cli.environ)
    except GddlError as error:
        cli.screen.warn(f"proposed tables can't be read: {error}", "yellow")
        return ()


def _known(cli: CliContext, roots: Roots, rows: Sequence[TableRow], clock: Callable[[], float]) -> LakeState:
    """The lake's state; rebuilt from run records if none is stored yet, or it was lost."""
    known = StateReader(roots.lake, clock, environ=cli.environ).read()
    if not known.empty or known.troubles:
        return known
    by_pipeline = {"": [row.table for row in rows]}
    return LakeState(records=rebuild(roots, by_pipeline, clock, write=False, environ=cli.environ), read=clock())


def _rebuilt(cli: CliContext, metadata: str) -> None:
    loaded = metadata_folder.read(cli, metadata)
    by_pipeline = {made.dag_id: made.tables for made in metadata_folder.pipelines(cli, loaded)}
    now = cli.now().timestamp()
    records = rebuild(loaded.roots, by_pipeline, lambda: now, write=True, environ=cli.environ)
    cli.screen.warn(f"the state of {len(records)} tables was rebuilt from their runs")


def line_of(one: TableStatus, now: float) -> dict[str, Any]:
    """A table's state in the form of `--json`. Moments are ISO 8601, UTC; None: never, or not known.

    Fields:
        status: of the newest run; `never` before the first.
        state: the most urgent of `broken_row`, `failed`, `unknown` (what is stored of it can't be read), `late`,
            `attention`, `running`, `waiting`, `new`, `fresh`, `disabled`.
        last_state: for an invalid row, the state from its runs; else as `state`.
        problems: problems of an invalid row.
        running_since: start of the job that loads it now.
        attention: codes that need attention: warnings of the newest run and the last poll, and what is in quarantine.
        rows: of the replica.
        lag_seconds: now minus the newest source commit applied.
        behind_seconds, up_to_date_as_of: now minus the last moment as of which everything that had landed was applied.
        complete_until: commit time of the source until which everything is known to have come.
        place: where the newest run worked on the table: Spark's application, or the job's process; empty: nowhere.
        heartbeat: table that shows that the source's log advances; None: none, so that nothing is known of the source
            since `complete_until`.
        freshness_seconds: limit of `behind_seconds`; None: none.
        waiting_files: landed but not loaded, by the last poll.
        quarantined, late_ignored: rows and files in quarantine, and changes that the last known runs ignored as late.
        not_listed_days, listed_in_full_at: days of old change files that the newest run did not list, and since when.
        last_run, last_success, last_poll, last_maintenance: start of the newest run, of the newest successful run with
            changes, of the newest poll, and of the newest maintenance.
        age_seconds: now minus the start of the newest run.
        dag_id: DAG that loads it; None: none does.
    """
    record, newest = one.record, one.record.newest
    return {
        "table": one.row.table,
        "status": newest.status if newest else "never",
        "state": one.state,
        "last_state": one.last_state,
        "problems": one.row.problems,
        "late": one.late,
        "failed": one.failed,
        "mode": newest.mode if newest else None,
        "place": newest.place if newest else "",
        "rows": record.rows,
        "lag_seconds": one.lag,
        "behind_seconds": one.behind,
        "up_to_date_as_of": text_of(one.as_of),
        "complete_until": text_of(one.complete_until),
        "heartbeat": one.row.heartbeat,
        "freshness_seconds": one.row.freshness,
        "waiting_files": one.waiting,
        "quarantined": record.quarantined,
        "late_ignored": record.late_ignored,
        "attention": one.attention,
        "not_listed_days": newest.not_listed_days if newest else 0,
        "listed_in_full_at": text_of(newest.listed) if newest else None,
        "last_run": text_of(record.started),
        "last_success": text_of(record.succeeded),
        "last_poll": text_of(record.poll.polled) if record.poll else None,
        "last_maintenance": text_of(record.maintained),
        "age_seconds": now - newest.started if newest else None,
        "running_since": text_of(one.running),
        "error": _error(one),
        "dag_id": one.row.dag_id,
    }


def _error(one: TableStatus) -> str | None:
    newest = one.record.newest
    if newest is None or not one.record.failed:
        return None
    return coded(newest.error or "UNKNOWN", one.record.error or "")


def show(screen: Screen, tables: Sequence[TableStatus], now: float, states: Sequence[str] = ()) -> None:
    """A row for each table, the most urgent first; errors and a count of the states below.

    Args:
        states: selected states; empty: all.
    """
    if not tables:
        screen.say(_NONE[tuple(states)], "green" if states else "")
        return
    screen.table(_COLUMNS, [_cells(one, now) for one in tables])
    for style, messages in _messages(tables).items():
        job.show_messages(screen.say, messages, style)
    for one in tables:
        newest = one.record.newest
        if newest is not None and newest.not_listed_days:
            since = text_of(newest.listed) or "its first run"
            screen.say(f"{one.row.table}: {count(newest.not_listed_days)} days not listed since {since}")
    screen.say(", ".join(f"{number} {state.replace('_', ' ')}" for state, number in counts(tables).items() if number))


def _messages(tables: Sequence[TableStatus]) -> dict[str, list[Message]]:
    """Problems of the tables, by their style."""
    found: dict[str, list[Message]] = {"red": [], "yellow": []}
    for one in tables:
        if one.row.problems:
            last = one.last_state.replace("_", " ")
            text = f"its metadata row is invalid, so no DAG loads it; its last state: {last}"
            found["red"].append(Message(one.row.table, "", text))
        if error := _error(one):
            found["red"].append(Message(one.row.table, "", error))
        elif one.attention:
            found["yellow"].append(Message(one.row.table, "", _attention(one)))
    return found


def _attention(one: TableStatus) -> str:
    """Codes, and what to do about them."""
    texts = (coded(code, text_of_code(one, code)) for code in one.attention)
    return "\n  ".join((f"needs attention: {', '.join(one.attention)}", *texts))


def _cells(one: TableStatus, now: float) -> list[Cell | str]:
    record, newest = one.record, one.record.newest
    numbers = (one.waiting, record.quarantined, record.late_ignored)
    return [
        one.row.table,
        Cell(one.state.replace("_", " "), _STYLES.get(one.state, "dim")),
        newest.mode if newest else "",
        count(record.rows),
        duration(one.lag),
        Cell(duration(one.behind) + (" LATE" if one.late else ""), "bold red" if one.late else ""),
        duration(one.row.freshness),
        *(Cell(count(number) if number else "", "yellow") for number in numbers),
        f"{duration(now - newest.started)} ago" if newest else "never",
        text_of(record.succeeded) or "never",
        newest.place if newest else "",
    ]
