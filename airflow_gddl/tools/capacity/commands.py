"""`gddl plan`: counts what the metadata gives before deployment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import Cell, Screen, count, counted, number_columns
from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.contract.codes import NO_TABLES, REVISION_UNREADABLE
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.runtime.state.lake_state import StateReader
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.tools.capacity.metadata_diff import Deployment, as_shown, compare, show_result
from airflow_gddl.tools.capacity.plan import Metadata, Plan, make_plan

_NAMED = 5


def show(screen: Screen, plan: Plan) -> None:
    """Show everything, the advice last."""
    kinds = ", ".join(f"{many:,} {kind}" for kind, many in plan.started_by.items())
    screen.say(f"{counted(plan.tables, 'table')} in {plan.dags:,} DAGs ({kinds}, 2 of upkeep)", "bold")
    screen.say(
        f"{counted(plan.runs, 'run')} with {counted(plan.task_instances, 'task instance')} on {plan.day}, "
        "the busiest of the next 31 days"
    )
    screen.say(f"MWAA: {plan.mwaa_class or 'no class'} is documented for as many DAGs")
    _tiers(screen, plan)
    for move in moves(plan):
        screen.say(move)
    for dag_id, views in plan.changed_views.items():
        screen.say(as_shown(dag_id, views))
    _advice(screen, plan)


def moves(plan: Plan) -> Iterator[str]:
    """Tables that change their DAG, one line for each pair of DAGs, truncated."""
    pairs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for table, pair in plan.moves.items():
        pairs[pair].append(table)
    if pairs:
        yield f"\n{counted(len(plan.moves), 'table')} will be loaded by another DAG; the old one ends its runs"
    for (before, after), tables in sorted(pairs.items()):
        more = f" and {count(len(tables) - _NAMED)} more" if len(tables) > _NAMED else ""
        yield f"{before} -> {after}: {', '.join(tables[:_NAMED])}{more}"


def _tiers(screen: Screen, plan: Plan) -> None:
    rows = [
        (tier.tier, count(tier.tables), count(tier.dags), count(tier.runs), tier.tasks, _views(tier.views))
        for tier in plan.tiers
    ]
    screen.say("")
    screen.table(("tier", *number_columns("tables", "DAGs", "runs"), "tasks", "Airflow shows"), rows)


def _views(views: Mapping[AirflowView, int]) -> str:
    """The view of all tables, or how many have which."""
    return next(iter(views)) if len(views) == 1 else ", ".join(f"{many:,} {view}" for view, many in views.items())


def _advice(screen: Screen, plan: Plan) -> None:
    screen.say("")
    if not plan.advice:
        screen.say("nothing to change", "green")
    for advice in plan.advice:
        screen.spans([Cell(f"[{advice.code}] ", "yellow"), Cell(advice.message)])
        screen.spans([Cell("    change ", "bold"), Cell(advice.change)])
        if advice.tables:
            more = f" and {advice.count - len(advice.tables):,} more" if advice.count > len(advice.tables) else ""
            screen.spans([Cell("    tables ", "bold"), Cell(", ".join(advice.tables) + more)])


_NoRecords = Annotated[bool, typer.Option("--no-records", help="With --diff: don't read past runs from the lake.")]
_Diff = Annotated[
    str,
    typer.Option(
        "--diff", metavar="REF", help="Compare with the metadata folder at this Git revision, e.g. origin/main."
    ),
]
_Markdown = Annotated[bool, typer.Option("--markdown", help="With --diff: Markdown, for a comment on a pull request.")]


def plan(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    no_records: _NoRecords = False,
    diff: _Diff = "",
    markdown: _Markdown = False,
) -> None:
    """Count DAGs, task instances and starts, and name tables that move to another DAG.

    With --diff, show what an edit of the metadata does to what is deployed: tables that are new, removed or renamed,
    that need a rebuild, or get another DAG, and the counts before and after.
    """
    cli = context.of(ctx)
    if not diff:
        options.require_beside("--diff", {"--no-records": no_records, "--markdown": markdown})
    loaded = metadata_folder.read(cli, metadata)
    metadata_folder.show(cli.screen, loaded.problems, metadata)
    planned = replace(_metadata_of(loaded), before=metadata_folder.placed(cli, loaded))
    today = cli.now().date()
    if not diff and not planned.pipelines:
        raise MetadataError(NO_TABLES, "no enabled table in the metadata", remedy="add a metadata row to tables/")
    shown = make_plan(planned, today) if planned.pipelines else None
    if diff:
        before = _revision(cli, metadata, diff)
        earlier = replace(_metadata_of(before), before=planned.before)
        past = make_plan(earlier, today) if earlier.pipelines else None
        records = {} if no_records else _records(cli, loaded)
        sides = Deployment(before, earlier.pipelines, past), Deployment(loaded, planned.pipelines, shown)
        show_result(cli.screen, compare(*sides, records or None, diff), json=json, markdown=markdown)
    elif shown is not None:
        cli.screen.record(shown) if json else show(cli.screen, shown)
    if loaded.problems:
        raise typer.Exit(context.BAD_METADATA)


def _metadata_of(loaded: LoadedMetadata) -> Metadata:
    """Input of a plan, as if nothing were deployed."""
    return Metadata(dag_prefix=loaded.dag_prefix, tables=loaded.tables, tiers=loaded.tiers)


def _revision(cli: CliContext, folder: str, revision: str) -> LoadedMetadata:
    """The metadata as they were.

    Raises:
        FatalError: `REVISION_UNREADABLE`.
    """
    from airflow_gddl.metadata.folder import RevisionFolder  # noqa: PLC0415 - of --diff alone
    from airflow_gddl.metadata.loading import load_folder  # noqa: PLC0415 - as above

    try:
        before = RevisionFolder.read_from(folder, revision)
        return load_folder(before, cli.environ)
    except MetadataError as error:
        what, remedy = f"the settings of {revision!r}: {error.what}", "compare with a revision whose settings are valid"
        raise FatalError(REVISION_UNREADABLE, what, remedy=remedy) from error


def _records(cli: CliContext, loaded: LoadedMetadata) -> Mapping[str, TableRecord]:
    """Past runs; none, with a warning, where the lake can't be read."""
    now = cli.now().timestamp()
    try:
        known = StateReader(loaded.roots.lake, lambda: now, environ=cli.environ).read()
    except GddlError as error:
        cli.screen.warn(f"no records of runs: {error}", "yellow")
        return {}
    for trouble in known.troubles:
        cli.screen.warn(trouble.what, "yellow")
    return {name: record for name, record in known.records.items() if record.has_run}
