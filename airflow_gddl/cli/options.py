"""Options shared by several commands, and their values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.s3 import is_s3

Metadata = Annotated[
    str, typer.Option("--metadata", metavar="DIR", envvar="GDDL_METADATA", help="Folder of gddl.yaml and tables/.")
]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="SCHEMA.NAME", help="Only this table; may be given several times. Default: all."),
]
Yes = Annotated[bool, typer.Option("--yes", metavar="", help="Don't ask.")]
All = Annotated[bool, typer.Option("--all", metavar="", help="All tables, where none is named.")]
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


def check_names(tables: Iterable[str]) -> None:
    """
    Raises:
        MetadataError: `TABLE_NAME_INVALID`.
    """
    for table in sorted(tables):
        if fault := table_name_fault(table):
            raise MetadataError("TABLE_NAME_INVALID", f"{table!r:.80}: {fault}", remedy="write schema.name")


def absolute(root: str) -> str:
    return root if is_s3(root) else os.path.normpath(Path(root).absolute())
