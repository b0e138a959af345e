"""Options shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

Metadata = Annotated[
    str, typer.Option("--metadata", metavar="DIR", envvar="GDDL_METADATA", help="Folder of gddl.yaml and tables/.")
]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="SCHEMA.NAME", help="Only this table; may be given several times. Default: all."),
]
# Flags have an empty metavar, else newer versions of typer show `<bool>`, as for an option with a value.
Json = Annotated[
    bool, typer.Option("--json", metavar="", help="JSON lines on standard output, and nothing else there.")
]
Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for a table that another run holds."),
]
SourceConnection = Annotated[
    str,
    typer.Option(
        "--source-connection",
        metavar="NAME",
        help="Compare with the source too: a variable with an SQLAlchemy URL, or AIRFLOW_CONN_NAME.",
    ),
]
