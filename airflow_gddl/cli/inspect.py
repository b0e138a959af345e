"""`gddl inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli.simulate import require_pyarrow

_Landing = Annotated[
    str, typer.Option("--landing", metavar="ROOT", help="Root of the files; default: gddl.yaml's landing.")
]


def inspect(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    landing: _Landing = "",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Check the CDC service's settings by its files, and name the setting to change; exit status 1 on a finding."""
    require_pyarrow("landing files are read with")
    from airflow_gddl.cli.inspecting import carry_out  # noqa: PLC0415 - needs pyarrow, as said above

    found = carry_out(context.of(ctx), metadata, landing, frozenset(table or ()), as_json=json)
    raise typer.Exit(context.FAILED if found else context.OK)
