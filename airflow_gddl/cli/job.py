"""Runs a job for a command (metadata, selection, request, run), and shows its results as tables."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from airflow_gddl.cli import context, metadata
from airflow_gddl.cli.context import CliContext, of_outcome
from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, count, counted, duration, number_columns, safe
from airflow_gddl.contract.actions import Action, Load, Maintain, Run, Verify
from airflow_gddl.contract.alike import Group, Message, grouped, the_same_in
from airflow_gddl.contract.basics import CLEARING, LOADS
from airflow_gddl.contract.completeness import WINDOWS
from airflow_gddl.contract.errors import coded, documented, invalid_option
from airflow_gddl.contract.names import few
from airflow_gddl.contract.result import STARTING_SPARK, JobResult, Status
from airflow_gddl.contract.source_access import of_tables
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.runners.child import nothing
from airflow_gddl.runners.descriptor import RunnerSettings, SubmissionContext, make_runner
from airflow_gddl.runners.interface import JobOutcome, ProgressEvent, Runner
from airflow_gddl.runners.remote import RemoteRunner, TaskKey
from airflow_gddl.runners.this_machine import Heartbeat
from airflow_gddl.runtime.state.documents import BY_HAND
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.table_status import MOST_QUARANTINED, attention_of, what_to_do

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

_NAMED = 10


def show_plans(screen: Screen, results: Sequence[JobResult]) -> None:
    """A row for each batch, or one for a table without any; below them the first files of each batch."""
    rows = [row for result in results for row in _rows(result)]
    screen.table(["table", "status", "mode", *number_columns("batch", "files", "bytes"), "note"], rows)
    for result in results:
        for batch in _batches(result):
            paths = batch["files"]
            more = [f"and {count(len(paths) - _NAMED)} more"] if len(paths) > _NAMED else []
            for path in [*paths[:_NAMED], *more]:
                screen.say(f"{result.table}: {path}", "dim")


_READ_FIRST = {
    "source": "a run reads the table from its source first",
    "log": "nothing new has landed; a run reads its source's log first",
    "topic": "nothing new has landed; a run reads its topic first",
}


def _rows(result: JobResult) -> list[list[Cell | str]]:
    batches = _batches(result)
    if not batches:
        plan = answer(result)
        reason = "the landing folder does not exist" if plan.get("folder_missing") else "nothing new"
        note = _READ_FIRST.get(plan.get("reads_first") or "", reason)
        return [[result.table, status(result.status), "", "", "", "", "" if result.error else note]]
    return [_row(result, batch) for batch in batches]


def _row(result: JobResult, batch: dict[str, Any]) -> list[Cell | str]:
    notes = {"resumed": "begun before, resumed", "sweep": "missing rows of the previous load are removed"}
    note = ", ".join(text for name, text in notes.items() if batch.get(name))
    numbers = (batch["batch"], len(batch["files"]), batch["bytes"])
    return [result.table, status(result.status), batch["mode"], *(count(number) for number in numbers), note]


def _batches(result: JobResult) -> list[dict[str, Any]]:
    return list(answer(result).get("batches", []))


STYLES = {"succeeded": "green", "failed": "bold red", "skipped": "dim", "equal": "green", "different": "bold red",
          "held": "bold red", "ok": "green", "missing": "bold red", "extra": "bold red",
          "unsettled": "yellow", "open": "dim"}  # fmt: skip
_STATUSES: tuple[Status, ...] = ("succeeded", "skipped", "failed")
_NUMBERS = {
    "batches": 6,
    "files": 3,
    "read": 0,
    "inserted": 1,
    "updated": 1,
    "deleted": 1,
    "rows": 0,
    "quarantined": 0,
    "late": 7,
    "lag": 4,
    "took": 2,
}
"""Priority for hiding columns on a narrow terminal, by title."""


def show_runs(screen: Screen, results: Sequence[JobResult]) -> None:
    """One row for each table with rows read and changes of the replica; totals below."""
    numbers = [ScreenColumn(title, "right", spare=spare) for title, spare in _NUMBERS.items()]
    screen.table(["table", "status", ScreenColumn("mode", spare=5), *numbers], [_run_row(result) for result in results])
    screen.say(totals(results), "bold")
    if places := Counter(result.place for result in results if result.place):
        screen.say("; ".join(f"worked on by {place}: {counted(number, 'table')}" for place, number in places.items()))


def totals(results: Sequence[JobResult]) -> str:
    """`3 tables: 1 succeeded, 2 skipped; 1,234 rows read, 5 quarantined`."""
    numbers: Counter[str] = Counter(result.status for result in results)
    by_status = ", ".join(f"{count(numbers[status])} {status}" for status in _STATUSES if numbers[status])
    read, bad = sum(result.rows_read for result in results), sum(result.quarantined for result in results)
    quarantined = f", {count(bad)} quarantined" if bad else ""
    return f"{counted(len(results), 'table')}: {by_status}; {counted(read, 'row')} read{quarantined}"


def _run_row(result: JobResult) -> list[Cell | str]:
    main = result.main
    numbers = (result.batches, result.files, result.rows_read, main.inserted, main.updated, main.deleted, main.rows)
    return [
        result.table,
        status(result.status),
        result.mode,
        *(count(number) for number in numbers),
        Cell(count(result.quarantined), "yellow" if result.quarantined else ""),
        Cell(count(result.late_ignored), "yellow" if result.late_ignored else ""),
        duration(result.freshness.lag_seconds),
        duration(result.seconds),
    ]


def show_verdicts(screen: Screen, results: Sequence[JobResult]) -> None:
    """One row for each table: whether the replica equals its changes, and its source where requested."""
    numbers = number_columns("rows", "expected", "in the source", "unsettled")
    compared = ScreenColumn("compared with", spare=1)
    screen.table(["table", "verdict", compared, *numbers, "keys"], [_verdict_row(result) for result in results])
    if any(answer(result).get("compared") == ["its changes"] for result in results):
        without = "Whether a table equals its source is not known without a connection to it: "
        without += documented("repair.md", "verify")
        screen.say(without, "yellow")
    for result in results:
        left_out = (answer(result).get("source") or {}).get("not_compared") or {}
        for column, reason in left_out.items():
            screen.say(f"{result.table}: {column} was not compared with the source: {reason}", "yellow")


_WINDOW_NUMBERS = ("source_rows", "rows", "missing", "different", "extra", "unsettled", "files")


def show_windows(screen: Screen, results: Sequence[JobResult]) -> None:
    """One row for each window of each table: whether what was changed in it has come."""
    numbers = number_columns("in the source", "rows", "missing", "different", "extra", "unsettled", "files")
    rows: list[list[Cell | str]] = [
        [
            result.table,
            f"{window['start']:.16}",
            status(str(window["state"]).replace("_", " ")),
            *(count(window[name]) for name in _WINDOW_NUMBERS),
        ]
        for result in results
        for window in (answer(result).get(WINDOWS) or {}).get("windows") or ()
    ]
    screen.table(["table", "window (UTC)", "state", *numbers], rows)
    for result in results:
        if result.freshness.complete_until:
            screen.say(f"{result.table}: complete until {result.freshness.complete_until}")


def show_against(screen: Screen, results: Sequence[JobResult]) -> None:
    """How many rows of both tables are equal, and both sides of some that differ."""
    for result in results:
        found = answer(result).get("against")
        if found is not None:
            _show_against(screen, result.table, found)


def _show_against(screen: Screen, table: str, found: Mapping[str, Any]) -> None:
    other = f"the other table has {found['their_rows']} at version {found['version']}"
    screen.say(f"{table}: {counted(found['rows'], 'row')}; {other}")
    screen.say(f"  {counted(found['equal'], 'key')} equal", "green" if not found["different"] else "")
    if found["behind"]:
        keys = ", ".join(found["behind_keys"])
        screen.say(f"  {found['behind']} are there as the replica's were earlier, e.g. {keys}", "yellow")
    if found["ahead"]:
        screen.say(f"  {found['ahead']} have changes in files that are not loaded:", "yellow")
        for path, keys_in_file in found["in_files"].items():
            screen.say(f"    {path}: {keys_in_file}")
    if found["different"]:
        screen.say(f"  {found['different']} differ:", "bold red")
    for row in found["rows_different"]:
        screen.say(f"    {row['key']}")
        screen.spans([Cell("      ours   ", "dim"), Cell(row["ours"] or "no row")])
        screen.spans([Cell("      theirs ", "dim"), Cell(row["theirs"] or "no row")])
    for column, why in found["not_compared"].items():
        screen.say(f"  {column} was not compared: {why}", "yellow")


def verdict(result: JobResult) -> str:
    """`equal`, `different` or `held` (equal, while a sweep is held); else the status."""
    return str(answer(result).get("verdict", result.status))


def answer(result: JobResult) -> dict[str, Any]:
    """The result's details, when they are an object; else empty."""
    return result.details if isinstance(result.details, dict) else {}


def _verdict_row(result: JobResult) -> list[Cell | str]:
    details = answer(result)
    source = details.get("source") or {}
    keys = [f"{key['key']} {key['state']}" for of in (details, source) for key in of.get("keys") or ()]
    return [
        result.table,
        _verdict_cell(result),
        " and ".join(details.get("compared") or ()),
        count(details.get("rows")),
        count(details.get("expected_rows")),
        count(source.get("source_rows")),
        count(source.get("unsettled")),
        few(keys),
    ]


def _verdict_cell(result: JobResult) -> Cell:
    """The verdict; of a table that equals its source in a part of its columns, in how many."""
    said = verdict(result)
    done, every = (answer(result).get("source") or {}).get("columns") or (0, 0)
    return Cell(f"{said} in {done} of {every} columns", "yellow") if said == "equal" and done < every else status(said)


def status(text: str) -> Cell:
    """A status or verdict in its colour."""
    return Cell(text, STYLES.get(text, ""))


def quarantine_rate(cli: CliContext) -> float:
    """Airflow's setting, where its environment variable is set: commands do without Airflow."""
    with suppress(KeyError, ValueError):
        return float(cli.environ["AIRFLOW__GDDL__ALERT_QUARANTINE_RATE"])
    return MOST_QUARANTINED


def show_troubles(cli: CliContext, outcome: JobOutcome) -> None:
    """Show warnings and errors on standard error, and other codes for which tables need attention now; what many tables
    share is shown once (`alike.grouped`)."""
    screen = cli.screen
    warnings: list[Message] = []
    errors: list[Message] = []
    for result in outcome.results:
        said = (*_warnings_of(result), *_attention_of(cli, result))
        warnings += [Message(result.table, code, text) for code, text in said]
        for one in result.expectations:
            if one.failed:
                fail = f"{count(one.failed)} of {counted(one.checked, 'row')} fail"
                screen.warn(f"{result.table}: expectation {one.name} (on: {one.on}): {fail}", "yellow")
        if result.error is not None:
            errors.append(Message(result.table, result.error.code, result.error.message))
    show_messages(screen.warn, warnings, "yellow")
    show_messages(screen.warn, errors, "red")
    if errors and outcome.log is not None:
        screen.warn(f"log of the job: {outcome.log}")


def show_messages(say: Callable[[str, str], None], messages: Iterable[Message], style: str) -> None:
    """A line for each message, or for those that many tables share (`alike.grouped`)."""
    for group in grouped(messages):
        say(_line(group), style)


def _line(group: Group) -> str:
    text = coded(group.code, group.text) if group.code else group.text
    line = f"{few(group.tables)}: {text}"
    if not group.others:
        return line
    end = "\n  " if "\n" in line else " " if line.endswith(".") else ". "
    return f"{line}{end}{the_same_in(group.others, 'tables')}"


def _warnings_of(result: JobResult) -> Iterator[tuple[str, str]]:
    for warning in result.warnings:
        times = f" ({count(warning.count)} times)" if warning.count > 1 else ""
        sample = f", e.g. {', '.join(str(item) for item in warning.sample)}" if warning.sample else ""
        yield warning.code, warning.message + times + sample


def _attention_of(cli: CliContext, result: JobResult) -> Iterator[tuple[str, str]]:
    """Codes of the table's state that the result has no warning or error of, as it follows from counts."""
    said = {warning.code for warning in result.warnings} | ({result.error.code} if result.error is not None else set())
    for code in attention_of(result, cli.now().timestamp(), quarantine_rate(cli)):
        if code not in said:
            yield code, what_to_do(code, result.table)


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
        self._clock = clock
        self._heartbeat = Heartbeat(clock)
        self._starting: dict[str, float] = {}
        self._done = 0

    def on_progress(self, event: ProgressEvent) -> None:
        self._heartbeat.moved(event)
        if event.step == STARTING_SPARK:
            if not self._starting:
                self._screen.warn(STARTING_SPARK, "dim")
            self._starting.setdefault(event.table, self._clock())
        elif event.table in self._starting:
            first = min(self._starting.values())
            self._starting.clear()
            self._screen.warn(f"Spark started in {duration(self._clock() - first)}", "dim")

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


Show = Callable[[Screen, Sequence[JobResult]], None]


def carry_out(
    cli: CliContext, request: Request, show: Show, is_finding: Callable[[JobResult], object] | None = None
) -> NoReturn:
    """Run the request, show the results unless they are printed as JSON, and exit.

    Args:
        is_finding: whether a result makes a command fail that else succeeds; None: none does.

    Raises:
        typer.Exit: always, with the command's status.
        GddlError: nothing was run.
    """
    finish(cli, request, perform(cli, request), show, is_finding)


def finish(
    cli: CliContext,
    request: Request,
    outcome: JobOutcome,
    show: Show,
    is_finding: Callable[[JobResult], object] | None = None,
) -> NoReturn:
    """See `carry_out`; after `perform`."""
    if not request.as_json:
        show(cli.screen, outcome.results)
    show_troubles(cli, outcome)
    has_finding = is_finding is not None and any(map(is_finding, outcome.results))
    raise typer.Exit(context.FAILED if has_finding and outcome.exit_status == context.OK else outcome.exit_status)


def ask(question: str, *, yes: bool) -> None:
    """Ask at a terminal before something that can't be taken back; elsewhere nobody could answer.

    Raises:
        typer.Exit: the answer is no.
    """
    if not yes and sys.stdin.isatty() and not typer.confirm(question, default=False, err=True):
        raise typer.Exit(context.FAILED)


def ask_for_all(tables: Sequence[str], *, every: bool, unasked: bool) -> None:
    """Require a rebuild of all tables to be meant: `--all`, and an answer at a terminal.

    Args:
        every: `--all` was given.
        unasked: `--yes` or `--dry-run` was given.

    Raises:
        MetadataError: `OPTION_INVALID`.
        typer.Exit: the answer is no.
    """
    if bool(tables) == every:
        what = "--all was given beside --table" if every else "no table is named to be rebuilt"
        raise invalid_option(what, "write --table SCHEMA.NAME, or --all for all tables")
    if every:
        ask("Rebuild all tables?", yes=unasked)


def each(show: Callable[[Screen, JobResult], None]) -> Show:
    """Shows results one by one."""

    def show_all(screen: Screen, results: Sequence[JobResult]) -> None:
        for result in results:
            show(screen, result)

    return show_all


def show_counts(
    screen: Screen, titles: Sequence[str], results: Sequence[JobResult], counts: Callable[[JobResult], Sequence[str]]
) -> None:
    """A row for each table: its status, and numbers under these titles."""
    rows: list[list[Cell | str]] = [[r.table, status(r.status), *counts(r)] for r in results]
    screen.table(["table", "status", *number_columns(*titles)], rows)


@dataclass(frozen=True)
class Request:
    """A command's request.

    Attributes:
        tables: None or empty: all enabled tables.
        wait, full_listing: see `JobOptions`.
        check: raises an error where the tables can't do what is asked, before anything is run.
    """

    metadata: str
    tables: Sequence[str] | None = None
    action: Action = field(default_factory=Run)
    wait: float = 0.0
    full_listing: bool = False
    as_json: bool = False
    check: Callable[[LoadedMetadata, tuple[TableSpec, ...]], None] | None = None


def perform(cli: CliContext, request: Request) -> JobOutcome:
    """Run the request's tables; invalid rows are reported and do not stop other tables.

    Returns:
        the job's outcome, with the exit status of the command.

    Raises:
        GddlError: nothing was run.
    """
    loaded = metadata.read(cli, request.metadata)
    tables, bad = metadata.choose(cli, loaded, request.tables or (), request.metadata)
    if not tables and not bad:
        raise metadata.none_enabled(request.metadata)
    if request.check is not None:
        request.check(loaded, tables)
    outcome = JobOutcome(results=(), exit_status=0)
    if tables:
        job_options = JobOptions(action=request.action, wait_seconds=request.wait, full_listing=request.full_listing)
        outcome = run_tables(cli, loaded, tables, job_options, as_json=request.as_json)
    return replace(outcome, exit_status=of_outcome(outcome, bad_rows=bool(bad)))


def run_tables(
    cli: CliContext,
    loaded: LoadedMetadata,
    tables: tuple[TableSpec, ...],
    job_options: JobOptions,
    *,
    as_json: bool = False,
) -> JobOutcome:
    """A job of these tables.

    Raises:
        GddlError: nothing was run.
    """
    spec = job_of(cli.run_id(), loaded, tables, job_options)
    with display(cli.screen, len(tables), as_json=as_json) as listener:
        runner = runner_of(cli, loaded, spec.run_id, listener.tick)
        outcome = runner.run(spec, listener)
    if isinstance(runner, RemoteRunner):
        runner.settle()
    if job_options.action.does in (*LOADS, *CLEARING) and not job_options.dry_run:
        recorder = recorder_of(cli, loaded)
        for result in outcome.results:
            recorder.take(result, whole=isinstance(job_options.action, Load))
        recorder.flush()
    elif isinstance(job_options.action, Maintain | Verify) and not job_options.dry_run:
        recorder_of(cli, loaded).take_maintenance(outcome.results)
    return outcome


def job_of(run_id: str, loaded: LoadedMetadata, tables: tuple[TableSpec, ...], job_options: JobOptions) -> JobSpec:
    return JobSpec(
        run_id=run_id,
        roots=loaded.roots,
        tables=tables,
        tiers=loaded.tiers,
        options=job_options,
        catalogs=loaded.catalogs,
        access=of_tables(loaded.access, tables),
    )


def recorder_of(cli: CliContext, loaded: LoadedMetadata) -> StateRecorder:
    """Recorder for runs of commands.

    Without a state of manual runs, earlier records are read, too, so that the state covers all tables.
    """
    known = tuple(row.table for row in loaded.tables)
    clock = lambda: cli.now().timestamp()  # noqa: E731 - passed as a value
    return StateRecorder(loaded.roots, BY_HAND, known, clock, cli.environ)


def runner_of(cli: CliContext, loaded: LoadedMetadata, run_id: str, tick: Callable[[], None] = nothing) -> Runner:
    """The runner that the metadata names, for this run.

    Raises:
        GddlError: as `make_runner`.
    """
    settings = RunnerSettings(
        command=cli.job_command,
        environ=cli.environ,
        declared=loaded.runners.get(loaded.runner, {}),
        submission=SubmissionContext(task=TaskKey(pipeline="command", run=run_id, task="run"), roots=loaded.roots),
        tick=tick,
    )
    return make_runner(loaded.runner, settings)
