"""`gddl shadow`: what comparisons with Spark's `MERGE` have found, and that a person has looked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import Cell, Screen, counted
from airflow_gddl.contract.codec import from_json, plain, to_document
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.features.shadow import (
    DECIDED,
    FOUND,
    ShadowDecision,
    ShadowDifference,
    places_of,
    shadow_folder,
)
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import open_store

app = Group("Batches that differ from Spark's MERGE (SHADOW_DIFFERENCE): show both sides, let our commits go on.")


@app.callback()
def shadow() -> None:
    """Batches that differ from Spark's MERGE (SHADOW_DIFFERENCE): show both sides, let our commits go on."""


@app.command()
def show(
    ctx: typer.Context,
    *,
    table: options.OneTable,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
) -> None:
    """Show the differences of a table that wait for a decision, with both rows of some keys; changes nothing."""
    cli = context.of(ctx)
    waiting = [found for _, found in _waiting(cli, table, metadata)]
    if json:
        cli.screen.records(plain(found) for found in waiting)
        return
    for found in waiting:
        _show(cli.screen, found)
    cli.screen.say(f"{table}: {counted(len(waiting), 'difference')} to decide on", "yellow" if waiting else "green")


@app.command()
def release(
    ctx: typer.Context,
    *,
    table: options.OneTable,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="What was found and done about it, for the record.")
    ],
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
) -> None:
    """Let our commits go on after a difference, from the next run on; until then Spark's MERGE commits the table."""
    if not reason.strip():
        raise MetadataError("REASON_MISSING", "--reason is empty", remedy="say what was found and done about it")
    cli = context.of(ctx)
    store = open_store(cli.environ)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    decision = ShadowDecision(decided_at=now, decided_by=context.user_name(), reason=reason)
    released = []
    for folder, found in _waiting(cli, table, metadata):
        if store.create_once(join(folder, DECIDED), to_document(decision).encode()):
            released.append(found.batch_id)
    if json:
        cli.screen.record({"table": table, "released": released})
    else:
        cli.screen.say(f"{table}: {counted(len(released), 'difference')} released")


def _waiting(cli: CliContext, table: str, metadata: str) -> Iterator[tuple[str, ShadowDifference]]:
    """Differences without a decision, and their folders."""
    loaded = metadata_folder.read(cli, metadata)
    (spec,), _ = metadata_folder.choose(cli, loaded, (table,), metadata)
    store = open_store(cli.environ)
    for folder, decided in places_of(item.path for item in store.list(shadow_folder(loaded.roots.lake, spec))):
        if not decided:
            yield folder, from_json(ShadowDifference, store.read(join(folder, FOUND)).decode())


def _show(screen: Screen, found: ShadowDifference) -> None:
    sorts = ", ".join(f"{count} {sort}" for sort, count in sorted(found.sorts.items()))
    screen.say(f"batch {found.batch_id}, {found.kind} at version {found.version}, {found.found_at}: {sorts}", "red")
    for note in found.notes:
        screen.say(f"  {note}")
    for one in found.keys:
        screen.say(f"  {one.key} differs in {', '.join(one.columns) or 'the whole row'}")
        screen.spans([Cell("    ours   ", "dim"), Cell(one.ours or "no row")])
        screen.spans([Cell("    Spark  ", "dim"), Cell(one.spark or "no row")])
    for side, folder in sorted(found.sides.items()):
        screen.say(f"  {side}: {folder}")
