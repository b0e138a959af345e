"""`gddl validate`."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import context, metadata, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import BAD_METADATA
from airflow_gddl.cli.screen import Screen, counted

if TYPE_CHECKING:
    from airflow_gddl.metadata.problems import Problem

_FIRST_TABLE = "add a row to metadata/tables/shop.yaml, or let `gddl onboard SOURCE` write the rows"


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
    from airflow_gddl.metadata.advice import advise  # noqa: PLC0415 - see `metadata.read`
    from airflow_gddl.metadata.folder import open_folder  # noqa: PLC0415 - see `metadata.read`
    from airflow_gddl.metadata.loading import unread  # noqa: PLC0415 - as above
    from airflow_gddl.metadata.settings import SettingsError  # noqa: PLC0415 - as above

    cli = context.of(ctx)
    form = Format.JSON if json else form
    try:
        catalog = metadata_folder.read(cli, metadata)
    except SettingsError as error:
        _answer(cli.screen, error.problems, metadata, form)
        raise typer.Exit(BAD_METADATA) from error
    _answer(cli.screen, catalog.problems, metadata, form)
    unread_files = unread(open_folder(metadata, cli.environ), catalog)
    for warning in (*catalog.unused_keys, *unread_files, *advise(catalog)):
        _warn(cli.screen, warning, metadata, form)
    if catalog.problems:
        raise typer.Exit(BAD_METADATA)
    if form is Format.JSON:
        return
    if catalog.tables:
        cli.screen.say(f"{counted(len(catalog.tables), 'table')}, no problems", "green")
    else:
        cli.screen.say(f"no table yet: {_FIRST_TABLE}", "yellow")


def _answer(screen: Screen, found: tuple[Problem, ...], folder: str, form: Format) -> None:
    if form is Format.TEXT and found:
        metadata.show(screen, found, folder, error=False)
    for problem in found:
        if form is Format.JSON:
            screen.record(problem)
        elif form is Format.GITHUB:
            screen.dictate(metadata.github_annotation(problem, folder))


def _warn(screen: Screen, warning: Problem, folder: str, form: Format) -> None:
    """On standard error, unless for programs."""
    if form is Format.JSON:
        screen.records([{**asdict(warning), "level": "warning"}])
    elif form is Format.GITHUB:
        screen.dictate(metadata.github_annotation(warning, folder, "warning"))
    else:
        screen.warn(warning.compiler_line(folder), "yellow")
