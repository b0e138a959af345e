"""Shows results of a job as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, count, counted, duration, number_columns
from airflow_gddl.contract.result import ExpectationCount, JobResult, Status
from airflow_gddl.runners.interface import JobOutcome

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


def _rows(result: JobResult) -> list[list[Cell | str]]:
    batches = _batches(result)
    if not batches:
        gone = "the landing folder does not exist" if answer(result).get("folder_missing") else "nothing new"
        return [[result.table, status(result.status), "", "", "", "", "" if result.error else gone]]
    return [_row(result, batch) for batch in batches]


def _row(result: JobResult, batch: dict[str, Any]) -> list[Cell | str]:
    notes = {"resumed": "begun before, resumed", "sweep": "missing rows of the previous load are removed"}
    note = ", ".join(text for name, text in notes.items() if batch.get(name))
    numbers = (batch["batch"], len(batch["files"]), batch["bytes"])
    return [result.table, status(result.status), batch["mode"], *(count(number) for number in numbers), note]


def _batches(result: JobResult) -> list[dict[str, Any]]:
    return list(answer(result).get("batches", []))


STYLES = {"succeeded": "green", "failed": "bold red", "skipped": "dim", "equal": "green", "different": "bold red"}
_STATUSES: tuple[Status, ...] = ("succeeded", "skipped", "failed")
_MOST_NAMED = 5
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
    screen.table(["table", "verdict", *numbers, "keys"], [_verdict_row(result) for result in results])


def verdict(result: JobResult) -> str:
    """`equal` or `different`; else the status."""
    return str(answer(result).get("verdict", result.status))


def answer(result: JobResult) -> dict[str, Any]:
    """The result's details, when they are an object; else empty."""
    return result.details if isinstance(result.details, dict) else {}


def _verdict_row(result: JobResult) -> list[Cell | str]:
    found = answer(result)
    source = found.get("source") or {}
    keys = [*(found.get("keys") or []), *(f"{key['key']} {key['state']}" for key in source.get("keys") or [])]
    return [
        result.table,
        status(verdict(result)),
        count(found.get("rows")),
        count(found.get("expected_rows")),
        count(source.get("source_rows")),
        count(source.get("unsettled")),
        _names([str(key) for key in keys]),
    ]


def status(text: str) -> Cell:
    """A status or verdict in its colour."""
    return Cell(text, STYLES.get(text, ""))


def show_troubles(screen: Screen, outcome: JobOutcome) -> None:
    """Show warnings and errors on standard error; one that many tables share is shown once."""
    warnings: dict[tuple[str, str], list[str]] = {}
    errors: dict[tuple[str, str], list[str]] = {}
    for result in outcome.results:
        for warning in result.warnings:
            times = f" ({count(warning.count)} times)" if warning.count > 1 else ""
            sample = f", e.g. {', '.join(str(item) for item in warning.sample)}" if warning.sample else ""
            warnings.setdefault((warning.code, warning.message + times + sample), []).append(result.table)
        for one in result.expectations:
            if one.failed:
                screen.warn(f"{result.table}: expectation {one.name} (on: {one.on}): {_share(one)} fail", "yellow")
        if result.error is not None:
            errors.setdefault((result.error.code, result.error.message), []).append(result.table)
    for (code, message), tables in warnings.items():
        screen.warn(f"{_names(tables)}: {coded(code, message)}", "yellow")
    for (code, message), tables in errors.items():
        screen.warn(f"{_names(tables)}: {coded(code, message)}", "red")
    if errors and outcome.log is not None:
        screen.warn(f"log of the job: {outcome.log}")


def _share(one: ExpectationCount) -> str:
    return f"{count(one.failed)} of {counted(one.checked, 'row')}"


def coded(code: str, message: str) -> str:
    """The message with its code before it, once."""
    return message if message.startswith(f"[{code}]") else f"[{code}] {message}"


def _names(all_names: Sequence[str]) -> str:
    more = f" and {len(all_names) - _MOST_NAMED} more" if len(all_names) > _MOST_NAMED else ""
    return ", ".join(all_names[:_MOST_NAMED]) + more
