"""`gddl status`: which table is late, which failed, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli import options, summary, surroundings
from airflow_gddl.cli.history import TableHistory, read_histories
from airflow_gddl.cli.screen import Cell, Column, Screen
from airflow_gddl.cli.text import count, duration
from airflow_gddl.contract import durations


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """One line of `gddl status`.

    Attributes:
        status: of the newest run; `never` before the first, `unreadable` when its record is damaged.
        rows: of the replica; null while unknown.
        lag_seconds: now minus the newest source commit applied; null while none is known.
        freshness_seconds: the longest lag the row allows; null for none.
        late: the lag is longer than that, or nothing was ever loaded.
        last_run, last_success: when the newest run, and the newest that did not fail, started; ISO 8601; null for none.
        age_seconds: now minus the start of the newest run.
    """

    table: str
    status: str
    mode: str | None
    rows: int | None
    lag_seconds: float | None
    freshness_seconds: int | None
    late: bool
    quarantined: int
    last_run: str | None
    last_success: str | None
    age_seconds: float | None
    error: str | None


def status(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    late: Annotated[bool, typer.Option("--late", help="Only tables that are late.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only tables whose last run failed.")] = False,
    json: options.Json = False,
) -> None:
    """Show where every table stands, from the records of its runs; needs no Spark."""
    around = surroundings.of(ctx)
    catalog = metadata_folder.read(around, metadata)
    tables, _ = metadata_folder.choose(around, catalog, tuple(table or ()))
    found = [table_status(history, around.now()) for history in read_histories(catalog.roots, tables, around.environ)]
    wanted = [line for line in found if (line.late or not late) and (line.status == "failed" or not failed)]
    if json:
        for line in wanted:
            around.screen.record(line)
    else:
        show(around.screen, wanted)


def table_status(history: TableHistory, now: datetime) -> TableStatus:
    """Pure: what the runs say at the time `now`."""
    runs, row = history.runs, history.table
    last = runs[0] if runs else None
    lag = _since(next((run.freshness.commit_ts for run in runs if run.freshness.commit_ts), None), now)
    allowed = durations.seconds(row.freshness) if row.freshness else None
    return TableStatus(
        table=row.table,
        status="unreadable" if history.unreadable else last.status if last else "never",
        mode=last.mode if last else None,
        rows=next((run.main.rows for run in runs if run.main.rows is not None), None),
        lag_seconds=lag,
        freshness_seconds=allowed,
        late=allowed is not None and (lag is None or lag > allowed),
        quarantined=last.quarantined if last else 0,
        last_run=last.started_at if last else None,
        last_success=next((run.started_at for run in runs if run.status != "failed"), None),
        age_seconds=_since(last.started_at, now) if last else None,
        error=summary.coded(last.error.code, last.error.message) if last and last.error else None,
    )


def show(screen: Screen, lines: list[TableStatus]) -> None:
    """A row for each table; errors below it."""
    right = ("rows", "lag", "allowed", "quarantined")
    columns = [Column("table"), Column("status"), Column("mode"), *(Column(title, "right") for title in right)]
    screen.table([*columns, Column("last run"), Column("last success")], [_cells(line) for line in lines])
    for line in lines:
        if line.error:
            screen.say(f"{line.table}: {line.error}", "red")


def _cells(line: TableStatus) -> list[Cell | str]:
    return [
        line.table,
        summary.status(line.status),
        line.mode or "",
        count(line.rows),
        Cell(duration(line.lag_seconds) + (" LATE" if line.late else ""), "bold red" if line.late else ""),
        duration(line.freshness_seconds),
        Cell(count(line.quarantined), "yellow" if line.quarantined else ""),
        f"{duration(line.age_seconds)} ago" if line.age_seconds is not None else "never",
        line.last_success or "never",
    ]


def _since(timestamp: str | None, now: datetime) -> float | None:
    """Seconds; null when there is no time, or none that can be read."""
    try:
        then = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
