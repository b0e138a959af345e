"""`gddl validate`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import context, options, problems
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.exits import BAD_METADATA
from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.text import counted

if TYPE_CHECKING:
    from airflow_gddl.metadata.problems import Problem


_UNREAD_REMEDY = "rename it to .yaml or .json (tables: or .csv), copy the files of a linked folder, or remove it"


class Format(StrEnum):
    """Output format of problems."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def validate(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    form: Annotated[
        Format, typer.Option("--format", help="A line a problem: text, JSON, or annotations of GitHub Actions.")
    ] = Format.TEXT,
) -> None:
    """Check every metadata row; exit status 2 when one is invalid."""
    from airflow_gddl.metadata.settings import SettingsError  # noqa: PLC0415 - see `metadata.read`

    cli = context.of(ctx)
    form = Format.JSON if json else form
    try:
        catalog = metadata_folder.read(cli, metadata)
    except SettingsError as error:
        _answer(cli.screen, error.problems, metadata, form)
        raise typer.Exit(BAD_METADATA) from error
    _answer(cli.screen, catalog.problems, metadata, form)
    if form is not Format.JSON:
        for table in catalog.unused_keys:
            cli.screen.warn(f"keys of {table} are named, but no row has that table", "yellow")
        for name in catalog.unread_files:
            cli.screen.warn(f"[FILE_NOT_READ] {name} looks like metadata, but is not read: {_UNREAD_REMEDY}", "yellow")
    if catalog.problems:
        raise typer.Exit(BAD_METADATA)
    if form is not Format.JSON:
        cli.screen.say(f"{counted(len(catalog.tables), 'table')}, no problems", "green")


def _answer(screen: Screen, found: tuple[Problem, ...], folder: str, form: Format) -> None:
    if form is Format.TEXT and found:
        problems.show(screen, found, folder, error=False)
    for problem in found:
        if form is Format.JSON:
            screen.record(problem)
        elif form is Format.GITHUB:
            screen.dictate(problems.github_annotation(problem, folder))
