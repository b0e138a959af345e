"""The metadata folder that a command was pointed at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gddl.cli import problems
from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.topology.selection import select
from airflow_gddl.metadata.variables import misspelt

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import Catalog
    from airflow_gddl.metadata.problems import Problem


def read(around: CliContext, folder: str) -> Catalog:
    """The folder's catalog.

    Raises:
        MetadataError: `METADATA_MISSING`, or `SETTINGS_INVALID` (a `SettingsError`).
        RetriableError: its store does not answer.
    """
    if "://" not in folder and not Path(folder).is_dir():
        remedy = "make one with `gddl init`, or name yours with --metadata or GDDL_METADATA"
        raise MetadataError("METADATA_MISSING", f"there is no folder {folder!r}", remedy=remedy)
    # Checking rows takes pydantic, whose import costs more than all that most commands do themselves.
    from airflow_gddl.metadata.loading import load  # noqa: PLC0415 - as said above

    warn_of_variables(around)
    return load(folder, around.environ)


def warn_of_variables(around: CliContext) -> None:
    """Name each variable that is one of this package's but for its spelling."""
    for problem in misspelt(around.environ):
        around.screen.warn(problem.compiler_line(""), "yellow")


def choose(
    around: CliContext, catalog: Catalog, names: Sequence[str], folder: str
) -> tuple[tuple[TableSpec, ...], list[Problem]]:
    """The tables that the names mean (all enabled ones when there is none), and the problems that concern them.

    The problems are shown on standard error: they stop nobody else.

    Raises:
        MetadataError: as `select`.
    """
    bad = [problem for problem in catalog.problems if not names or problem.table in names]
    if bad:
        problems.show(around.screen, bad, folder, error=True)
    return select(catalog.tables, names, [problem.table for problem in bad if problem.table]), bad
