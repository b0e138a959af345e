"""The metadata folder of a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import Cell, Screen, counted
from airflow_gddl.contract.codes import METADATA_MISSING, NO_TABLES
from airflow_gddl.contract.errors import GddlError, MetadataError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.settings import misspelt
from airflow_gddl.runtime.compiled import placements
from airflow_gddl.runtime.table_directory import select
from airflow_gddl.topology.pipelines import Pipeline, arrange
from airflow_gddl.topology.placement import NOWHERE, Placement

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata
    from airflow_gddl.metadata.problems import Problem


def show(screen: Screen, problems: Sequence[Problem], folder: str, *, error: bool = True) -> None:
    """Show one line for each problem in the format of compilers (see `grouped` for equal ones), and their number; on
    standard error or standard output. Nothing where there are none.

    Args:
        folder: the metadata folder as the user named it.
    """
    from airflow_gddl.metadata.problems import grouped  # noqa: PLC0415 - see `read`

    if not problems:
        return
    for problem, more in grouped(problems):
        place, code, rest = problem.compiler_line(folder).partition(f": {problem.code}")
        screen.spans([Cell(place, "bold"), Cell(code, "red"), Cell(f"{rest}. {more}" if more else rest)], error=error)
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


def read(cli: CliContext, folder: str, *, keep_rows: bool = False) -> LoadedMetadata:
    """The content of the folder.

    Args:
        keep_rows: see `metadata.loading.load`.

    Raises:
        MetadataError: `METADATA_MISSING`, or `SETTINGS_INVALID` (a `SettingsError`).
        RetriableError: its store does not respond.
    """
    require_folder(folder)
    # Imported here, since pydantic takes longer to import than most commands run.
    from airflow_gddl.metadata.loading import load  # noqa: PLC0415 - as said above

    warn_of_variables(cli)
    return load(folder, cli.environ, keep_rows=keep_rows)


def require_folder(folder: str) -> None:
    """
    Raises:
        MetadataError: `METADATA_MISSING`.
    """
    if "://" not in folder and not Path(folder).is_dir():
        remedy = "create one with `gddl init`, or set --metadata or GDDL_METADATA"
        raise MetadataError(METADATA_MISSING, f"there is no folder {folder!r}", remedy=remedy)


def placed(cli: CliContext, loaded: LoadedMetadata) -> Placement:
    """Placement of tables in DAGs by the lake; with a warning, none if it can't be read."""
    path = placements.place_of(loaded.roots.lake, loaded.dag_prefix)
    try:
        return placements.read(path, cli.environ)[0]
    except GddlError as error:
        cli.screen.warn(f"DAG ids may differ from Airflow's: {error}", "yellow")
        return NOWHERE


def pipelines(cli: CliContext, loaded: LoadedMetadata) -> tuple[Pipeline, ...]:
    """DAGs as in Airflow, see `placed`."""
    return arrange(loaded.tables, loaded.tiers, loaded.dag_prefix, placed(cli, loaded)).pipelines


def warn_of_variables(cli: CliContext) -> None:
    """Warn about each misspelt variable of this package."""
    for problem in misspelt(cli.environ):
        cli.screen.warn(problem.compiler_line(""), "yellow")


def none_enabled(path: str) -> MetadataError:
    """`NO_TABLES`: there is nothing to run."""
    what = "no enabled table in the metadata"
    return MetadataError(NO_TABLES, what, where=path, remedy="add a metadata row")


def choose(
    cli: CliContext, loaded: LoadedMetadata, names: Sequence[str], folder: str
) -> tuple[tuple[TableSpec, ...], list[Problem]]:
    """The named tables (all enabled ones when none is named), and the problems that affect them.

    The problems are shown on standard error and do not stop other tables.

    Raises:
        MetadataError: as `select`.
    """
    bad = problems_of(loaded, names)
    show(cli.screen, bad, folder)
    invalid = {name for problem in bad for name in _names_of(problem)}
    # Beside an invalid row the others are loaded, as where none is named; the exit status says so.
    known = {spec.table for spec in loaded.tables}
    valid = [name for name in names if name in known or name not in invalid]
    return select(loaded.tables, valid or names, sorted(invalid)), bad


def problems_of(loaded: LoadedMetadata, names: Sequence[str]) -> list[Problem]:
    """Problems of the named tables; all when none is named."""
    return [problem for problem in loaded.problems if not names or not _names_of(problem).isdisjoint(names)]


def _names_of(problem: Problem) -> set[str]:
    """Names of a problem's table: `source:schema.table` also without its source."""
    return {problem.table, problem.table.rpartition(":")[2]} if problem.table else set()
