"""`gddl maintain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_gddl.cli import context, options, summary
from airflow_gddl.cli.execution import carry_out, show_counts
from airflow_gddl.cli.job import Request
from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.text import count
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions

_COUNTS = (
    "files_removed",
    "log_files_removed",
    "tombstones_removed",
    "changes_cut",
    "runs_removed",
    "leftovers_removed",
)


def maintain(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Show pending work without doing it.")] = False,
    wait: options.Wait = 0.0,
) -> None:
    """Compact small files and remove unreferenced ones; readers see no change."""
    asked = JobOptions(action="maintain", dry_run=dry_run, wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table or ()), options=asked, as_json=json)
    carry_out(context.of(ctx), request, show_upkeep)


def show_upkeep(screen: Screen, results: Sequence[JobResult]) -> None:
    """Show compacted and removed files of each table."""
    titles = ("files joined", "files removed", "log files", "tombstones", "changes cut", "runs", "leftovers")
    show_counts(screen, titles, results, _counts)


def _counts(result: JobResult) -> list[str]:
    found = summary.answer(result)
    joined = sum(c["files_before"] - c["files_after"] for c in found.get("compacted", {}).values())
    return [count(joined), *(count(found.get(name)) for name in _COUNTS)]
