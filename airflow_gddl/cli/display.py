"""Progress of a job: bars on a terminal, otherwise one line for each table; always on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.summary import STYLES
from airflow_gddl.cli.text import count, counted, duration, safe
from airflow_gddl.contract.result import JobResult
from airflow_gddl.runtime.runners.base import STARTING_SPARK, ProgressEvent
from airflow_gddl.runtime.runners.heartbeat import Heartbeat


@contextmanager
def display(screen: Screen, tables: int, *, as_json: bool) -> Iterator[Lines | ProgressBars]:
    """The display for the terminal; see `Lines` for its arguments."""
    lines = Lines(screen, tables, as_json=as_json)
    if screen.err.is_terminal:
        with _progress(screen) as progress:
            yield ProgressBars(progress, lines, tables)
    else:
        yield lines


class Lines:
    """One line for each finished table, for the start of Spark, and after half a minute without output.

    Args:
        tables: number of tables; null in a continuous job.
        as_json: also write every result to standard output immediately, as a line of JSON.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        screen: Screen,
        tables: int | None = None,
        *,
        as_json: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._tables = tables
        self._as_json = as_json
        self._heartbeat = Heartbeat(clock)
        self._is_starting = False
        self._done = 0

    def on_progress(self, event: ProgressEvent) -> None:
        self._heartbeat.moved(event)
        is_starting = event.step == STARTING_SPARK
        if is_starting and not self._is_starting:
            self._screen.warn(STARTING_SPARK, "dim")
        self._is_starting = is_starting

    def tick(self) -> None:
        """Called several times a second while the job runs."""
        if (line := self._heartbeat.line()) is not None:
            self._screen.warn(line, "dim")

    def on_result(self, result: JobResult) -> None:
        self._heartbeat.ended(result.table)
        self._done += 1
        read = f" ({result.mode}), {counted(result.rows_read, 'row')} read" if result.batches else ""
        number = "" if self._tables is None else f"{self._done} of {self._tables}  "
        line = f"{number}{result.table}: {result.status}{read} in {duration(result.seconds)}"
        self._screen.warn(line, STYLES.get(result.status, ""))
        if self._as_json:
            self._screen.record(result)


class ProgressBars:
    """A bar for the job and for each running table, with a line above for each finished table."""

    def __init__(self, progress: Progress, lines: Lines, tables: int) -> None:
        self._progress = progress
        self._lines = lines
        self._all = progress.add_task("starting the job", total=tables, note="")
        self._tables: dict[str, TaskID] = {}

    def on_progress(self, event: ProgressEvent) -> None:
        self._progress.update(self._all, description="tables")
        task = self._tables.get(event.table)
        if task is None:
            if event.step == "done":
                return  # a late event of a finished table would leave its bar on the screen
            task = self._tables[event.table] = self._progress.add_task(safe(event.table), total=None, note="")
        note = f"{event.step}, {count(event.rows)} rows" if event.rows else event.step
        self._progress.update(task, total=event.batches, completed=max(event.batch - 1, 0), note=note)

    def tick(self) -> None:
        """Bars refresh themselves."""

    def on_result(self, result: JobResult) -> None:
        self._lines.on_result(result)
        task = self._tables.pop(result.table, None)
        if task is not None:
            self._progress.remove_task(task)
        self._progress.update(self._all, advance=1, description="tables")


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
