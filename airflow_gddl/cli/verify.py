"""`gddl verify`: whether replicas equal their changes and their source."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, carry_out
from airflow_gddl.contract import durations
from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.codes import AGAINST_REFUSED, FIELD_VALUE
from airflow_gddl.contract.connections import url_of
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.row_checks import CONNECTION_NAME
from airflow_gddl.contract.spec import TableSpec

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata


class Windows(StrEnum):
    HOUR = "hour"
    DAY = "day"


Against = Annotated[
    str, typer.Option(metavar="TABLE", help="Compare with this Delta table alone: schema.name in the lake, or a path.")
]
Settle = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="How long a change may take; 0: no changes are on their way."),
]
Since = Annotated[
    str, typer.Option(metavar="DURATION", help="Compare rows changed in this time alone, by windows: 24h, 7d.")
]
By = Annotated[Windows | None, typer.Option(help="Length of a window, with --since; by default hour.")]
Column = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="With --since: the column with the time of the last change; by default as updated_at."
    ),
]


def verify(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    source_connection: options.SourceConnection = "",
    against: Against = "",
    settle: Settle = None,
    since: Since = "",
    by: By = None,
    column: Column = "",
) -> None:
    """Compare each replica with its changes and its source; exit status 1 when one fails.

    With --since, only rows that were changed lately are compared, with the source. With --against, one replica is
    compared with another Delta table.
    """
    if against:
        _require_against_alone(table or (), others=bool(source_connection or since))
    if not since:
        options.require_beside("--since", {"--by": by, "--column": column})
    require_name(source_connection)
    cli = context.of(ctx).lending(source_connection)
    action = Verify(
        source_connection=source_connection,
        against=against,
        settle_seconds=settle,
        since_seconds=_duration(since) if since else None,
        window=(by or Windows.HOUR).value,
        window_column=column,
    )
    check = partial(require_connection, cli, source_connection)
    show = job.show_against if against else job.show_windows if since else job.show_verdicts
    request = Request(metadata, table, action, as_json=json, check=check)
    carry_out(cli, request, show, lambda result: job.verdict(result) == "different")


def _require_against_alone(tables: Sequence[str], *, others: bool) -> None:
    """
    Raises:
        MetadataError: `AGAINST_REFUSED`.
    """
    if len(tables) != 1:
        what = f"--against compares one table, and {len(tables)} are named"
        raise MetadataError(AGAINST_REFUSED, what, remedy="name it by --table")
    if others:
        what = "--against compares with that table alone"
        raise MetadataError(AGAINST_REFUSED, what, remedy="leave --source-connection and --since out")


def _duration(text: str) -> float:
    """
    Raises:
        MetadataError: `FIELD_VALUE`.
    """
    if not durations.is_duration(text):
        raise MetadataError(FIELD_VALUE, f"not a duration: {text!r}", remedy=durations.remedy(text))
    return durations.seconds(text)


def require_name(connection: str) -> None:
    """
    Raises:
        MetadataError: `FIELD_VALUE`; the value may be a URL with a password, so it is not shown.
    """
    if connection and not CONNECTION_NAME.fullmatch(connection):
        remedy = "put the URL into a variable, and pass its name, e.g. SHOP_DB"
        raise MetadataError(FIELD_VALUE, "not the name of a connection", remedy=remedy)


def require_connection(cli: CliContext, connection: str, loaded: LoadedMetadata, _tables: Sequence[TableSpec]) -> None:
    """Look for a named connection where jobs run on this machine, before one is started.

    Raises:
        FatalError: `SOURCE_CONNECTION_MISSING`.
    """
    from airflow_gddl.metadata.settings import is_remote  # noqa: PLC0415 - pydantic, as in `metadata.read`

    if connection and not is_remote(loaded.runner) and importlib.util.find_spec("sqlalchemy") is not None:
        url_of(importlib.import_module("sqlalchemy"), connection, cli.environ)
