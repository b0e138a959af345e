"""Problems of the metadata in the formats of `gddl validate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_gddl.cli.screen import Cell, Screen
from airflow_gddl.cli.text import counted

if TYPE_CHECKING:
    from airflow_gddl.metadata.problems import Problem


def show(screen: Screen, problems: Sequence[Problem], folder: str, *, error: bool) -> None:
    """Show one line for each problem in the format of compilers, and their number; on standard output or standard
    error.

    Args:
        folder: the metadata folder as the user named it.
    """
    for problem in problems:
        place, code, rest = problem.compiler_line(folder).partition(f": {problem.code}")
        screen.spans([Cell(place, "bold"), Cell(code, "red"), Cell(rest)], error=error)
    (screen.warn if error else screen.say)(f"{counted(len(problems), 'problem')} in the metadata", "bold red")


def github_annotation(problem: Problem, folder: str, level: str = "error") -> str:
    """A workflow command of GitHub Actions, which shows the problem at its line of the pull request.

    Args:
        level: `error` or `warning`.
    """
    shown = {"file": problem.path(folder), "line": problem.line, "col": problem.column, "title": problem.code}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in shown.items() if value is not None)
    return f"::{level} {properties}::{_data(problem.text_in(folder))}"


def _data(text: str) -> str:
    """Escaped as GitHub's toolkit does."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
