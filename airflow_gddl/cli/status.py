"""`gddl status`: which table is late, which failed, and since when."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli import options, summary
from airflow_gddl.cli.compiled import directory
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn
from airflow_gddl.cli.text import count, duration
from airflow_gddl.contract.spec import Roots
from airflow_gddl.metadata.topology import pipelines
from airflow_gddl.metadata.topology.rows import TableRow, table_rows
from airflow_gddl.runtime.state.board import BoardRow, TableQuery, chosen, counts, standings
from airflow_gddl.runtime.state.moments import text_of
from airflow_gddl.runtime.state.reading import LakeState, StateReader
from airflow_gddl.runtime.state.rebuilding import rebuild

_STYLES = {
    "failed": "bold red",
    "late": "bold red",
    "attention": "yellow",
    "waiting": "yellow",
    "new": "cyan",
    "fresh": "green",
}
_WATCH_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """One line of `gddl status`. Moments are ISO 8601, UTC; null: never, or not known.

    Attributes:
        status: of the newest run; `never` before the first.
        state: the most urgent of `failed`, `late`, `attention`, `waiting`, `new`, `fresh`, `disabled`.
        attention: codes of the newest run's warnings that a person should look at.
        rows: of the replica.
        lag_seconds: now minus the newest source commit applied.
        behind_seconds, up_to_date_as_of: now minus the last moment as of which everything that had landed is applied.
        freshness_seconds: how long `behind_seconds` may be; null: any length.
        waiting_files: landed and not loaded, as the last look found.
        quarantined, late_ignored: rows that the last runs that are known quarantined, and changes that they ignored as
            late.
        not_listed_days, listed_in_full_at: days of old change files that the newest run did not look at, and since when
            no run has.
        last_run, last_success, last_look: when the newest run, the newest that did something and did not fail, and the
            newest look at the landing folder started.
        age_seconds: now minus the start of the newest run.
    """

    table: str
    status: str
    state: str
    late: bool
    failed: bool
    mode: str | None
    rows: int | None
    lag_seconds: float | None
    behind_seconds: float | None
    up_to_date_as_of: str | None
    freshness_seconds: int | None
    waiting_files: int
    quarantined: int
    late_ignored: int
    attention: list[str]
    not_listed_days: int
    listed_in_full_at: str | None
    last_run: str | None
    last_success: str | None
    last_look: str | None
    age_seconds: float | None
    error: str | None


def status(  # noqa: PLR0913, PLR0917 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    late: Annotated[bool, typer.Option("--late", metavar="", help="Only tables that are late.")] = False,
    failed: Annotated[bool, typer.Option("--failed", metavar="", help="Only tables whose last run failed.")] = False,
    json: options.Json = False,
    watch: Annotated[
        bool, typer.Option("--watch", metavar="", help="Show it again every few seconds, until Ctrl-C.")
    ] = False,
    from_runs: Annotated[
        bool, typer.Option("--rebuild", metavar="", help="First make the state again from the records of all runs.")
    ] = False,
) -> None:
    """Show where every table stands; needs no Spark."""
    around = surroundings.of(ctx)
    query = TableQuery(states=tuple(name for name, wanted in (("late", late), ("failed", failed)) if wanted))
    view = _View(around, metadata, tuple(table or ()), query, json)
    if from_runs:
        _rebuilt(around, metadata)
    view.show()
    if watch:
        view.stay()


_NONE = {
    (): "no enabled table in the metadata",
    ("late",): "no table is late",
    ("failed",): "no table failed in its last run",
    ("late", "failed"): "no table is both late and failed",
}
_COLUMNS = (
    ScreenColumn("table"),
    ScreenColumn("state"),
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
)


@dataclass(frozen=True)
class _View:
    """What was asked for, shown as often as wanted: the metadata is read anew each time."""

    around: CliContext
    metadata: str
    names: tuple[str, ...]
    query: TableQuery
    as_json: bool

    def show(self) -> None:
        now = self.around.now().timestamp()
        roots, rows = self._rows()
        known = _known(self.around, roots, rows, lambda: now)
        for trouble in known.troubles:
            since = f"; as of {text_of(trouble.since)}" if trouble.since else ""
            self.around.screen.warn(trouble.what + since, "yellow")
        found = standings(rows, known, now)
        # Late and failed: each narrows, as two filters do.
        for state in self.query.states or ("",):
            found = chosen(found, replace(self.query, states=(state,) if state else ()))
        if self.as_json:
            self.around.screen.records(vars(line_of(one, now)) for one in found)
        else:
            show(self.around.screen, found, now, self.query.states)

    def _rows(self) -> tuple[Roots, Sequence[TableRow]]:
        """The tables that were asked for; wrong rows are told of."""
        compiled = None if self.names else directory(self.around, self.metadata)
        if compiled is not None:
            metadata_folder.warn_of_variables(self.around)
            return compiled.roots, [row for row in compiled.rows if row.enabled]
        catalog = metadata_folder.read(self.around, self.metadata)
        tables, _ = metadata_folder.choose(self.around, catalog, self.names, self.metadata)
        return catalog.roots, table_rows(tables, pipelines(catalog.tables, catalog.tiers, catalog.dag_prefix))

    def stay(self) -> None:
        """Show it again and again, until Ctrl-C."""
        try:
            while True:
                time.sleep(_WATCH_SECONDS)
                if not self.as_json:
                    self.around.screen.clear()
                self.show()
        except KeyboardInterrupt as stopped:
            raise typer.Exit(128 + signal.SIGINT) from stopped


def _known(around: CliContext, roots: Roots, rows: Sequence[TableRow], clock: Callable[[], float]) -> LakeState:
    """The lake's state; from the records of the runs where nobody has kept any yet, or it was lost."""
    known = StateReader(roots.lake, clock, environ=around.environ).read()
    if not known.empty or known.troubles:
        return known
    by_pipeline = {"": [row.table for row in rows]}
    return rebuild(roots, by_pipeline, clock, write=False, environ=around.environ)


def _rebuilt(around: CliContext, metadata: str) -> None:
    catalog = metadata_folder.read(around, metadata)
    by_pipeline = {made.dag_id: made.tables for made in pipelines(catalog.tables, catalog.tiers, catalog.dag_prefix)}
    now = around.now().timestamp()
    known = rebuild(catalog.roots, by_pipeline, lambda: now, write=True, environ=around.environ)
    around.screen.warn(f"the state of {len(known.records)} tables was made again from their runs")


def line_of(one: BoardRow, now: float) -> TableStatus:
    """Pure: a standing in the words of `--json`."""
    record, newest, state = one.record, one.newest, one.state
    return TableStatus(
        table=one.row.table,
        status=newest.status if newest else "never",
        state=state.state,
        late=state.late,
        failed=state.failed,
        mode=newest.mode if newest else None,
        rows=record.rows if record else None,
        lag_seconds=state.lag,
        behind_seconds=state.behind,
        up_to_date_as_of=text_of(state.as_of),
        freshness_seconds=one.row.freshness,
        waiting_files=state.waiting,
        quarantined=record.quarantined if record else 0,
        late_ignored=record.late_ignored if record else 0,
        attention=list(state.attention),
        not_listed_days=newest.not_listed_days if newest else 0,
        listed_in_full_at=text_of(newest.listed) if newest else None,
        last_run=text_of(newest.started) if newest else None,
        last_success=text_of(record.succeeded) if record else None,
        last_look=text_of(one.look.looked) if one.look else None,
        age_seconds=now - newest.started if newest else None,
        error=_error(one),
    )


def _error(one: BoardRow) -> str | None:
    newest = one.newest
    if one.record is None or newest is None or not one.record.failed:
        return None
    return summary.coded(newest.error or "UNKNOWN", one.record.error or "")


def show(screen: Screen, found: Sequence[BoardRow], now: float, states: Sequence[str] = ()) -> None:
    """A row for each table, the most urgent first; errors and a count of the states below.

    Args:
        states: that were asked for; empty: all.
    """
    if not found:
        screen.say(_NONE[tuple(states)], "green" if states else "")
        return
    lines = [line_of(one, now) for one in found]
    screen.table(_COLUMNS, [_cells(line) for line in lines])
    for line in lines:
        if line.error:
            screen.say(f"{line.table}: {line.error}", "red")
        elif line.attention:
            screen.say(f"{line.table}: look at the last run: {', '.join(line.attention)}", "yellow")
        if line.not_listed_days:
            since = line.listed_in_full_at or "its first run"
            screen.say(f"{line.table}: {count(line.not_listed_days)} days not looked at since {since}")
    numbers = ", ".join(f"{number} {state}" for state, number in counts(found).items() if number)
    screen.say(numbers)


def _cells(line: TableStatus) -> list[Cell | str]:
    return [
        line.table,
        Cell(line.state, _STYLES.get(line.state, "dim")),
        line.mode or "",
        count(line.rows),
        duration(line.lag_seconds),
        Cell(duration(line.behind_seconds) + (" LATE" if line.late else ""), "bold red" if line.late else ""),
        duration(line.freshness_seconds),
        Cell(count(line.waiting_files) if line.waiting_files else "", "yellow"),
        Cell(count(line.quarantined) if line.quarantined else "", "yellow"),
        Cell(count(line.late_ignored) if line.late_ignored else "", "yellow"),
        f"{duration(line.age_seconds)} ago" if line.age_seconds is not None else "never",
        line.last_success or "never",
    ]
