"""`gddl resync`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import options, summary
from airflow_gddl.cli.execution import carry_out, show_counts
from airflow_gddl.cli.job import Request
from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.text import count
from airflow_gddl.cli.verify import require_name
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions

_COUNTS = ("rows", "appear", "vanish", "change", "far_before", "far_after")


def resync(
    ctx: typer.Context,
    *,
    table: Annotated[
        list[str], typer.Option("--table", metavar="SCHEMA.NAME", help="The table; may be given several times.")
    ],
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    source_connection: options.SourceConnection = "",
    wait: options.Wait = 0.0,
) -> None:
    """Build tables anew from their files beside the living ones, check them, and swap; readers see old or new."""
    require_name(source_connection)
    around = surroundings.of(ctx).lending(source_connection)
    asked = JobOptions(full_refresh=True, resync=True, source_connection=source_connection, wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table), options=asked, as_json=json)
    carry_out(around, request, show_checks)


def show_checks(screen: Screen, results: Sequence[JobResult]) -> None:
    """What the swap of each table has changed, and how far from the source both were."""
    show_counts(screen, ("rows", "appeared", "vanished", "changed", "far before", "far after"), results, _counts)


def _counts(result: JobResult) -> list[str]:
    found = summary.answer(result).get("resync") or {}
    return [count(found.get(name)) for name in _COUNTS]
