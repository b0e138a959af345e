"""What is shown while a job runs: bars on a terminal, a line a table elsewhere; always on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.summary import STYLES
from airflow_gddl.cli.text import count, duration, safe
from airflow_gddl.contract.result import JobResult
from airflow_gddl.runtime.runners.base import Listener, ProgressEvent


@contextmanager
def display(screen: Screen, tables: int, *, as_json: bool) -> Iterator[Listener]:
    """The listener that fits; with `as_json` every result also goes to standard output the moment it is there."""
    if screen.err.is_terminal:
        with _progress(screen) as progress:
            bars = ProgressBars(progress, screen, tables)
            yield DisplayRecords(screen, bars) if as_json else bars
    else:
        lines = Lines(screen, tables)
        yield DisplayRecords(screen, lines) if as_json else lines


class Lines:
    """A line for each table that is done; progress would be too much for a log.

    Args:
        tables: how many there are; null where tables are done again and again.
    """

    def __init__(self, screen: Screen, tables: int | None = None) -> None:
        self._screen = screen
        self._tables = tables
        self._done = 0

    def on_progress(self, event: ProgressEvent) -> None: ...

    def on_result(self, result: JobResult) -> None:
        self._done += 1
        read = f" ({result.mode}), {count(result.rows_read)} rows read" if result.batches else ""
        told = f"{result.table}: {result.status}{read} in {duration(result.seconds)}"
        place = "" if self._tables is None else f"{self._done} of {self._tables}  "
        self._screen.warn(f"{place}{told}", STYLES.get(result.status, ""))


class ProgressBars:
    """A bar for the job, and one for each table that is at work; above them a line for each table that is done."""

    def __init__(self, progress: Progress, screen: Screen, tables: int) -> None:
        self._progress = progress
        self._lines = Lines(screen, tables)
        self._all = progress.add_task("starting", total=tables, note="")
        self._tables: dict[str, TaskID] = {}

    def on_progress(self, event: ProgressEvent) -> None:
        self._progress.update(self._all, description="tables")
        task = self._tables.get(event.table)
        if task is None:
            if event.step == "done":
                return  # its result may have been there before, and nothing would take the bar away again
            task = self._tables[event.table] = self._progress.add_task(safe(event.table), total=None, note="")
        note = f"{event.step}, {count(event.rows)} rows"
        self._progress.update(task, total=event.batches, completed=max(event.batch - 1, 0), note=note)

    def on_result(self, result: JobResult) -> None:
        self._lines.on_result(result)
        task = self._tables.pop(result.table, None)
        if task is not None:
            self._progress.remove_task(task)
        self._progress.update(self._all, advance=1, description="tables")


class DisplayRecords:
    """Results as JSON lines on standard output, beside another listener."""

    def __init__(self, screen: Screen, beside: Listener) -> None:
        self._screen = screen
        self._beside = beside

    def on_progress(self, event: ProgressEvent) -> None:
        self._beside.on_progress(event)

    def on_result(self, result: JobResult) -> None:
        self._beside.on_result(result)
        self._screen.record(result)


def _progress(screen: Screen) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        console=screen.err,
        transient=True,
    )
