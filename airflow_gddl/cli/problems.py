"""Wrong metadata rows, shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn

if TYPE_CHECKING:
    from airflow_gddl.metadata.problems import Problem

_COLUMNS = (
    ScreenColumn("where"),
    ScreenColumn("table"),
    ScreenColumn("field"),
    ScreenColumn("value"),
    ScreenColumn("problem"),
    ScreenColumn("remedy"),
)


def show(screen: Screen, problems: Sequence[Problem], *, error: bool) -> None:
    """A table of them, and how many; on standard output, or on standard error."""
    screen.table(_COLUMNS, [_row(problem) for problem in problems], error=error)
    many = f"{len(problems)} problem{'s' if len(problems) != 1 else ''} in the metadata"
    (screen.warn if error else screen.say)(many, "bold red")


def _row(problem: Problem) -> tuple[Cell | str, ...]:
    what = Cell(f"[{problem.code}] {problem.message}", "red")
    return (Cell(problem.place, "bold"), problem.table or "", problem.field, problem.value, what, problem.remedy)
