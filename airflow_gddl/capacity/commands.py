"""`gddl plan`: estimates the load of the metadata before deployment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from airflow_gddl.capacity import AIRFLOW, MWAA, Metadata, Plan, PlatformLimits, make_plan
from airflow_gddl.capacity.day import PoolSlots
from airflow_gddl.capacity.metadata_diff import Deployment, as_shown, compare, show_result
from airflow_gddl.capacity.parallelism import Parallelism
from airflow_gddl.capacity.rules import Figure, mwaa_limits
from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, count, counted, duration, number_columns
from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.runtime.state.lake_state import StateReader
from airflow_gddl.runtime.state.table_runs import TableRecord

_NAMED = 5


def show(screen: Screen, plan: Plan) -> None:
    """Show everything, the advice last."""
    kinds = ", ".join(f"{many:,} {kind}" for kind, many in plan.started_by.items())
    screen.say(
        f"{counted(plan.tables, 'table')} in {plan.dags:,} DAGs ({kinds}, 2 of upkeep), runner {plan.runner}", "bold"
    )
    _table(screen, ("", *number_columns("planned", "limit"), ""), [_figure(figure) for figure in plan.figures])
    _tiers(screen, plan)
    _table(screen, ("pool", *number_columns("slots", "DAGs", "loads at once")), [_pool(pool) for pool in plan.pools])
    _parallelism(screen, plan.parallelism)
    screen.say("")
    fullest = f"; the fullest minute is {plan.fullest_minute} (UTC)" if plan.fullest_minute else ""
    screen.say(f"{counted(plan.runs, 'run')} on {plan.day}, the busiest of the next 31 days{fullest}", "bold")
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
    numbers = number_columns("tables", "DAGs", "runs")
    rows = [
        (
            tier.tier,
            count(tier.tables),
            count(tier.dags),
            count(tier.runs),
            tier.tasks,
            _views(tier.views),
        )
        for tier in plan.tiers
    ]
    _table(screen, ("tier", *numbers, "tasks", "Airflow shows"), rows)
    for tier in plan.tiers:
        if tier.merged:
            tables, beside = counted(tier.merged, "table"), f"{duration(tier.direct_seconds)} with direct (benchmarks)"
            screen.say(
                f"commit: merge  {tier.tier}: {tables}, {duration(tier.merge_seconds)} a batch, {beside}; "
                f"{tier.merge_hours:,.1f} hours of this day more"
            )


def _parallelism(screen: Screen, needed: Parallelism) -> None:
    rows = [(_named(need.setting), count(need.least), need.why) for need in needed.needs]
    if needed.mwaa_class is not None:
        workers = count(needed.mwaa_workers or 0)
        rows.append((f"MWAA: {needed.mwaa_class}", workers, "workers, by AWS's figures of DAGs and tasks"))
    _table(screen, ("Airflow must have", *number_columns("at least"), "for"), rows)


def _named(setting: str) -> str:
    """The setting as Airflow's pages write it."""
    section, dot, option = setting.partition(".")
    return f"[{section}] {option}" if dot else setting


def _views(views: Mapping[AirflowView, int]) -> str:
    """The view of all tables, or how many have which."""
    return next(iter(views)) if len(views) == 1 else ", ".join(f"{many:,} {view}" for view, many in views.items())


def _table(screen: Screen, heads: Sequence[ScreenColumn | str], rows: Sequence[Sequence[Cell | str]]) -> None:
    screen.say("")
    screen.table(heads, rows)


def _figure(figure: Figure) -> list[Cell | str]:
    above = ("tight", "yellow") if figure.soft else ("TOO MUCH", "bold red")
    verdict, style = ("fits", "green") if figure.fits else above
    limit = "" if figure.limit is None else count(round(figure.limit))
    return [figure.text, count(round(figure.planned)), limit, Cell(verdict if figure.limit is not None else "", style)]


def _pool(pool: PoolSlots) -> list[Cell | str]:
    return [pool.pool, count(pool.slots), count(pool.dags), count(pool.at_once)]


def _advice(screen: Screen, plan: Plan) -> None:
    screen.say("")
    if not plan.advice:
        screen.say("nothing to change", "green")
    for advice in plan.advice:
        style = "bold red" if advice.level == "limit" else "yellow"
        screen.spans([Cell(f"[{advice.code}] ", style), Cell(advice.message)])
        screen.spans([Cell("    change ", "bold"), Cell(advice.change)])
        if advice.tables:
            more = f" and {advice.count - len(advice.tables):,} more" if advice.count > len(advice.tables) else ""
            screen.spans([Cell("    tables ", "bold"), Cell(", ".join(advice.tables) + more)])
    if not plan.fits:
        screen.say("")
        screen.say("a limit is exceeded", "bold red")


_MwaaClass = Annotated[
    str, typer.Option("--mwaa-class", metavar="CLASS", help=f"Airflow on MWAA: {', '.join(MWAA)}. Default: your own.")
]
_Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", min=1, help="MWAA: maximum of workers. Default: 10.")
]
_Schedulers = Annotated[
    int | None, typer.Option("--schedulers", metavar="N", min=1, help="Number of schedulers. Default: 1, on MWAA 2.")
]
_Triggers = Annotated[
    int | None,
    typer.Option(
        "--triggers", metavar="N", min=1, help="Triggers that triggerers can run. Default: 1000, on MWAA per scheduler."
    ),
]
_Tasks = Annotated[
    int | None,
    typer.Option(
        "--tasks", metavar="N", min=1, help="Tasks that all workers can run. Default: 32, on MWAA by class and workers."
    ),
]
_Vcpus = Annotated[
    int | None, typer.Option("--emr-vcpus", metavar="N", min=1, help="Quota of EMR Serverless. Default: 16.")
]
_NoRecords = Annotated[bool, typer.Option("--no-records", help="With --diff: don't read past runs from the lake.")]
_Diff = Annotated[
    str,
    typer.Option(
        "--diff", metavar="REF", help="Compare with the metadata folder at this Git revision, e.g. origin/main."
    ),
]
_Markdown = Annotated[bool, typer.Option("--markdown", help="With --diff: Markdown, for a comment on a pull request.")]


def plan(  # noqa: PLR0913, PLR0917 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    mwaa_class: _MwaaClass = "",
    workers: _Workers = None,
    schedulers: _Schedulers = None,
    triggers: _Triggers = None,
    tasks: _Tasks = None,
    emr_vcpus: _Vcpus = None,
    no_records: _NoRecords = False,
    diff: _Diff = "",
    markdown: _Markdown = False,
) -> None:
    """Count the load on Airflow and the platform, with advice; exit status 1 if a limit is exceeded.

    With --diff, show what an edit of the metadata does to what is deployed: tables that are new, removed or renamed,
    that need a rebuild, or get another DAG, and the counts before and after.
    """
    cli = context.of(ctx)
    made = _of_class(mwaa_class, workers, schedulers) if mwaa_class else AIRFLOW
    overrides: dict[str, Any] = {"schedulers": schedulers, "triggers": triggers, "tasks": tasks, "emr_vcpus": emr_vcpus}
    limits = replace(made, **{name: value for name, value in overrides.items() if value is not None})
    loaded = metadata_folder.read(cli, metadata)
    metadata_folder.show_problems(cli, loaded.problems, metadata)
    planned = replace(metadata_of(loaded), before=metadata_folder.placed(cli, loaded))
    today = cli.now().date()
    if not diff:
        _require_tables(planned)
    shown = make_plan(planned, limits, today) if planned.pipelines else None
    if diff:
        before = _revision(cli, metadata, diff)
        earlier = replace(metadata_of(before), before=planned.before)
        past = make_plan(earlier, limits, today) if earlier.pipelines else None
        records = {} if no_records else _records(cli, loaded)
        sides = Deployment(before, earlier.pipelines, past), Deployment(loaded, planned.pipelines, shown)
        show_result(cli.screen, compare(*sides, records or None, diff), json=json, markdown=markdown)
    elif shown is not None:
        _show(cli.screen, shown, json=json)
    if loaded.problems:
        raise typer.Exit(context.BAD_METADATA)
    if shown is not None and not shown.fits:
        raise typer.Exit(context.FAILED)


def _of_class(name: str, workers: int | None, schedulers: int | None) -> PlatformLimits:
    if name not in MWAA:
        raise _wrong(f"--mwaa-class {name!r} is none of AWS's classes", f"name one of {', '.join(MWAA)}")
    return mwaa_limits(name, workers, schedulers)


def metadata_of(loaded: LoadedMetadata) -> Metadata:
    """Input of a plan, as if nothing were deployed."""
    return Metadata(
        dag_prefix=loaded.dag_prefix,
        tables=loaded.tables,
        tiers=loaded.tiers,
        runner=loaded.runner,
        settings=loaded.runners.get(loaded.runner) or {},
    )


def _show(screen: Screen, shown: Plan, *, json: bool) -> None:
    if json:
        screen.record({"fits": shown.fits, **plain(shown)})
    else:
        show(screen, shown)


def _require_tables(made: Metadata) -> None:
    if not made.pipelines:
        raise MetadataError("NO_TABLES", "no enabled table in the metadata", remedy="add a metadata row to tables/")


def _revision(cli: CliContext, folder: str, revision: str) -> LoadedMetadata:
    """The metadata as they were.

    Raises:
        FatalError: `REVISION_UNREADABLE`.
    """
    from airflow_gddl.metadata.folder import RevisionFolder  # noqa: PLC0415 - of --diff alone
    from airflow_gddl.metadata.loading import load_folder  # noqa: PLC0415 - as above

    try:
        before = RevisionFolder.read_from(folder, revision)
        return load_folder(before, cli.environ, lake=partial(metadata_folder.lake_rows, cli))
    except MetadataError as error:
        what, remedy = f"the settings of {revision!r}: {error.what}", "compare with a revision whose settings are valid"
        raise FatalError("REVISION_UNREADABLE", what, remedy=remedy) from error


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
    return known.records


def _wrong(what: str, remedy: str) -> MetadataError:
    return MetadataError("PLAN_OPTION_INVALID", what, remedy=remedy)
