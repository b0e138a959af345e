"""`gddl onboard` and `gddl inspect`: metadata of a source, and its settings as its files show them."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli.simulate import require_pyarrow

_Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Short name of the source, used for files and packs.")]
_Connection = Annotated[
    str,
    typer.Option(
        "--connection", metavar="NAME", help="Read this database: a variable with a URL, or AIRFLOW_CONN_NAME."
    ),
]
_Landing = Annotated[
    str, typer.Option("--landing", metavar="ROOT", help="Where files land; default: gddl.yaml's landing.")
]
_Lake = Annotated[
    str, typer.Option("--lake", metavar="ROOT", help="Where tables live; with --landing, for a new gddl.yaml.")
]
_Schemas = Annotated[
    list[str] | None,
    typer.Option("--schema", metavar="NAME", help="Only tables of this schema; may be given several times."),
]
_Write = Annotated[bool, typer.Option("--write", help="Write the files without asking.")]


def onboard(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    source: _Source,
    *,
    metadata: options.Metadata = "metadata",
    connection: _Connection = "",
    landing: _Landing = "",
    lake: _Lake = "",
    schema: _Schemas = None,
    table: options.Tables = None,
    write: _Write = False,
    json: options.Json = False,
) -> None:
    """Propose metadata rows and keys for all tables of a source, as a diff; exit status 1 if changes are not
    written."""
    if not connection:
        require_pyarrow("landing files are read with")
    from airflow_gddl.cli.onboarding import OnboardingOptions, carry_out  # noqa: PLC0415 - needs pyarrow, for landing folders

    given = OnboardingOptions(
        source=source,
        metadata=metadata,
        connection=connection,
        landing=landing,
        lake=lake,
        schemas=frozenset(schema or ()),
        tables=frozenset(table or ()),
        write=write,
        as_json=json,
    )
    raise typer.Exit(context.OK if carry_out(context.of(ctx), given) else context.FAILED)


_LandingRoot = Annotated[
    str, typer.Option("--landing", metavar="ROOT", help="Root of the files; default: gddl.yaml's landing.")
]


def inspect(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    landing: _LandingRoot = "",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Check the CDC service's settings by its files, and name the setting to change; exit status 1 on a finding."""
    require_pyarrow("landing files are read with")
    from airflow_gddl.cli.onboarding import carry_out_inspect  # noqa: PLC0415 - needs pyarrow, as said above

    found = carry_out_inspect(context.of(ctx), metadata, landing, frozenset(table or ()), as_json=json)
    raise typer.Exit(context.FAILED if found else context.OK)
