"""`gddl plan`: estimates the load of the metadata before deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Annotated, Any

import typer

from airflow_gddl.cli import context, exits, options, plan_view
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.errors import GddlError, MetadataError
from airflow_gddl.metadata.loading import Catalog
from airflow_gddl.planning import AIRFLOW, MWAA, Metadata, PlatformLimits, make_plan
from airflow_gddl.planning.limits import mwaa_limits
from airflow_gddl.runtime.state.facts import TableRecord
from airflow_gddl.runtime.state.reading import StateReader

_MwaaClass = Annotated[
    str, typer.Option("--mwaa-class", metavar="CLASS", help=f"Airflow on MWAA: {', '.join(MWAA)}. Default: your own.")
]
_Workers = Annotated[int | None, typer.Option("--workers", min=1, help="MWAA: maximum of workers. Default: 10.")]
_Schedulers = Annotated[
    int | None, typer.Option("--schedulers", min=1, help="Number of schedulers. Default: 1, on MWAA 2.")
]
_Triggers = Annotated[
    int | None,
    typer.Option("--triggers", min=1, help="Triggers that triggerers can run. Default: 1000, on MWAA per scheduler."),
]
_Tasks = Annotated[
    int | None,
    typer.Option("--tasks", min=1, help="Tasks that all workers can run. Default: 32, on MWAA by class and workers."),
]
_Vcpus = Annotated[int | None, typer.Option("--emr-vcpus", min=1, help="Quota of EMR Serverless. Default: 16.")]
_Day = Annotated[str, typer.Option("--day", metavar="DATE", help="Day to show. Default: the busiest of the next 31.")]
_Seconds = Annotated[
    list[str] | None,
    typer.Option("--seconds", metavar="TIER=SECONDS", help="Seconds per table of a tier, instead of the estimate."),
]
_NoRecords = Annotated[bool, typer.Option("--no-records", metavar="", help="Don't read past runs from the lake.")]


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
    day: _Day = "",
    seconds: _Seconds = None,
    no_records: _NoRecords = False,
) -> None:
    """Estimate the load on Airflow and the platform, with advice; exit status 1 if a limit is exceeded."""
    cli = context.of(ctx)
    made = _of_class(mwaa_class, workers, schedulers) if mwaa_class else AIRFLOW
    own: dict[str, Any] = {"schedulers": schedulers, "triggers": triggers, "tasks": tasks, "emr_vcpus": emr_vcpus}
    limits = replace(made, **{name: value for name, value in own.items() if value is not None})
    chosen = _day(day)
    catalog = metadata_folder.read(cli, metadata)
    metadata_folder.show_problems(cli, catalog.problems, metadata)
    records = {} if no_records else _records(cli, catalog)
    planned = _planned(cli, catalog, records, _given(seconds or (), catalog))
    shown = make_plan(planned, limits, cli.now().date(), chosen)
    if json:
        cli.screen.record({"fits": shown.fits, **plain(shown)})
    else:
        plan_view.show(cli.screen, shown)
    if catalog.problems:
        raise typer.Exit(exits.BAD_METADATA)
    if not shown.fits:
        raise typer.Exit(exits.FAILED)


def _of_class(name: str, workers: int | None, schedulers: int | None) -> PlatformLimits:
    if name not in MWAA:
        raise _wrong(f"--mwaa-class {name!r} is none of AWS's classes", f"name one of {', '.join(MWAA)}")
    return mwaa_limits(name, workers, schedulers)


def _planned(
    cli: CliContext, catalog: Catalog, records: Mapping[str, TableRecord], given: Mapping[str, float]
) -> Metadata:
    made = Metadata(
        before=metadata_folder.placed(cli, catalog),
        dag_prefix=catalog.dag_prefix,
        tables=catalog.tables,
        tiers=catalog.tiers,
        runner=catalog.runner,
        settings=catalog.runners.get(catalog.runner) or {},
        records=records,
        given=given,
    )
    if not made.pipelines:
        raise MetadataError("NO_TABLES", "no enabled table in the metadata", remedy="add a row to tables/")
    return made


def _records(cli: CliContext, catalog: Catalog) -> Mapping[str, TableRecord]:
    """Past runs; none, with a warning, where the lake can't be read."""
    now = cli.now().timestamp()
    try:
        known = StateReader(catalog.roots.lake, lambda: now, environ=cli.environ).read()
    except GddlError as error:
        cli.screen.warn(f"no records of runs: {error}", "yellow")
        return {}
    for trouble in known.troubles:
        cli.screen.warn(trouble.what, "yellow")
    return known.records


def _given(seconds: Sequence[str], catalog: Catalog) -> dict[str, float]:
    found = {}
    for text in seconds:
        tier, _, number = text.partition("=")
        try:
            found[tier] = float(number)
        except ValueError:
            raise _wrong(f"--seconds {text!r} is not TIER=SECONDS", "write e.g. --seconds small=0.1") from None
        if tier not in catalog.tiers or not 0 < found[tier] < 1e6:
            names = ", ".join(catalog.tiers)
            raise _wrong(f"--seconds {text!r} names no tier, or no time", f"tiers are {names}")
    return found


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise _wrong(f"--day {text!r} is no day", "write e.g. 2026-12-24") from None


def _wrong(what: str, remedy: str) -> MetadataError:
    return MetadataError("PLAN_OPTION_INVALID", what, remedy=remedy)
