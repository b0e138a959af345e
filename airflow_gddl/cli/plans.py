"""Shows the result of `gddl run --dry-run`: the planned batches of each table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_gddl.cli.screen import Cell, Screen, number_columns
from airflow_gddl.cli.summary import answer, status
from airflow_gddl.cli.text import count
from airflow_gddl.contract.result import JobResult

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
