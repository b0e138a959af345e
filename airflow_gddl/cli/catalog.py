"""`gddl catalog diff` and `gddl catalog sync`: tables as catalogs have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.job import Request, carry_out
from airflow_gddl.cli.screen import Cell, Screen
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Action, JobOptions

app = Group("Tables in catalogs: compare them, or register them.")
_COLORS = {"missing": "red", "different": "yellow", "problem": "red", "registered": "green", "altered": "green"}


@app.command()
def diff(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Show missing and different catalog entries; exit status 1 if there are any."""
    _compare(ctx, "catalog_diff", metadata, table, json)


@app.command()
def sync(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Register missing tables, including dropped entries, and update different entries."""
    _compare(ctx, "catalog_sync", metadata, table, json)


def _compare(ctx: typer.Context, action: Action, metadata: str, table: list[str] | None, json: bool) -> None:
    request = Request(metadata=metadata, tables=tuple(table or ()), options=JobOptions(action=action), as_json=json)
    acted = action == "catalog_sync"
    carry_out(context.of(ctx), request, partial(show, acted=acted), partial(is_different, acted=acted))


def show(screen: Screen, results: Sequence[JobResult], *, acted: bool) -> None:
    """Show one line for each difference or change, or that there is none; nothing where a catalog was not reached."""
    rows = [line for result in results for line in _lines(result, acted=acted)]
    if rows:
        titles = ("table", "catalog", "entry", "state", "what", "registered", "wanted")
        screen.table(titles, rows)
        return
    many = sum(len(_tables(result)) for result in results)
    if many:
        screen.say(f"{many} entries are up to date", "green")
    elif not any(result.warnings or result.status == "failed" for result in results):
        screen.say("no table to register: rows name no catalog, or nothing is loaded yet", "yellow")


def is_different(result: JobResult, *, acted: bool) -> bool:
    """Whether a difference remains."""
    if result.warnings:
        return True
    return any(table["left"] or (not acted and table["action"] != "none") for table in _tables(result))


def _lines(result: JobResult, *, acted: bool) -> Iterator[list[Cell | str]]:
    for table in _tables(result):
        first = [result.table, result.details["catalog"], table["name"]]
        if table["code"]:
            yield [*first, _state("problem"), table["code"], "", ""]
        if table["action"] == "create":
            yield [*first, _state("registered" if acted else "missing"), "", "", ""]
        for one in table["differences"]:
            what = f"{one['aspect']} {one['name']}".strip()
            yield [*first, _state("altered" if acted else "different"), what, one["registered"], one["wanted"]]
        for one in table["left"]:
            what = f"{one['aspect']} {one['name']}".strip()
            yield [*first, _state("different"), f"{what} (can't be altered)", one["registered"], one["wanted"]]


def _state(word: str) -> Cell:
    return Cell(word, _COLORS[word])


def _tables(result: JobResult) -> list[dict[str, Any]]:
    return list(result.details.get("tables", [])) if isinstance(result.details, dict) else []
