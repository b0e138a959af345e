"""`gddl deploy databricks` and `gddl deploy glue`: creates the jobs that the metadata needs on a platform."""

from __future__ import annotations

import importlib.util
import json as json_module
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as catalogs
from airflow_gddl.cli.screen import Cell, Screen
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.runtime.runners.connections import DatabricksAccess
from airflow_gddl.runtime.runners.own import settings_of

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import Catalog
    from airflow_gddl.runtime.runners.changes import JobChange

app = typer.Typer(help="Create the jobs that the metadata needs on a platform.", no_args_is_help=True)
_STYLES = {"create": "green", "update": "yellow", "keep": ""}


@app.command()
def databricks(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Show what would change, and change nothing.")
    ] = False,
    render_bundle: Annotated[
        Path | None, typer.Option("--render-bundle", metavar="DIR", help="Write databricks.yml there instead.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Create or update the saved Databricks jobs, one for each tier with tables."""
    cli = context.of(ctx)
    require_package("databricks", "databricks-sdk", "databricks")
    # Imported here, since the SDK takes a second to import.
    from airflow_gddl.metadata.runners.databricks import DatabricksSettings  # noqa: PLC0415 - imported when needed
    from airflow_gddl.runtime.runners.databricks import deploy, jobs  # noqa: PLC0415 - imported when needed
    from airflow_gddl.runtime.runners.databricks.workspace import connect  # noqa: PLC0415 - imported when needed

    catalog = catalogs.read(cli, metadata)
    settings = settings_of("databricks", DatabricksSettings, catalog.runners.get("databricks", {}))
    wanted = jobs.jobs_of(_used(catalog), settings)
    if warning := deploy.serverless_warning(_used(catalog), settings, catalog.roots):
        cli.screen.warn(warning, "yellow")
    if render_bundle is not None:
        path = deploy.render_bundle(render_bundle, settings.job_name, wanted)
        cli.screen.say(f"{len(wanted)} jobs written to {path}; `databricks bundle deploy` creates them")
        return
    workspace = connect(DatabricksAccess())
    changes = deploy.plan(workspace, wanted)
    (_record if json else _show)(cli.screen, changes)
    if not dry_run:
        deploy.apply(workspace, changes)


@app.command()
def glue(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Show what would change, and change nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Create or update the saved Glue jobs, one for each tier with tables."""
    cli = context.of(ctx)
    require_package("boto3", "boto3", "glue")
    from airflow_gddl.metadata.runners.glue import GlueSettings  # noqa: PLC0415 - imported when needed
    from airflow_gddl.runtime.runners.connections import FromEnvironment  # noqa: PLC0415 - imported when needed
    from airflow_gddl.runtime.runners.glue import deploy, jobs  # noqa: PLC0415 - imported when needed

    catalog = catalogs.read(cli, metadata)
    settings = settings_of("glue", GlueSettings, catalog.runners.get("glue", {}))
    client = deploy.connect(settings, FromEnvironment())
    changes = deploy.plan(client, jobs.jobs_of(_used(catalog), settings))
    (_record if json else _show)(cli.screen, changes)
    if not dry_run:
        deploy.apply(client, changes, settings.tags)


def _used(catalog: Catalog) -> Mapping[str, TierSpec]:
    """Tiers of the enabled tables."""
    sizes = {spec.size for spec in catalog.tables if spec.enabled}
    return {size: tier for size, tier in catalog.tiers.items() if size in sizes}


def require_package(module: str, package: str, extra: str) -> None:
    """
    Raises:
        FatalError: `RUNNER_PACKAGE_MISSING`.
    """
    if importlib.util.find_spec(module) is None:
        remedy = f"pip install 'airflow-gddl[{extra}]'"
        raise FatalError("RUNNER_PACKAGE_MISSING", f"{package} is not installed", remedy=remedy)


def _show(screen: Screen, changes: Sequence[JobChange[Any]]) -> None:
    rows: list[Sequence[Cell | str]] = []
    for change in changes:
        rows.append((change.name, Cell(change.action, _STYLES[change.action]), "", "", ""))
        rows += [("", "", field.path, _text(field.before), _text(field.after)) for field in change.fields]
    screen.table(("job", "action", "field", "is", "becomes"), rows)


def _record(screen: Screen, changes: Sequence[JobChange[Any]]) -> None:
    for change in changes:
        screen.record({"job": change.name, "action": change.action, "fields": change.fields})


def _text(value: Any) -> str:
    return "" if value is None else json_module.dumps(value)
