"""`gddl pools`."""

from __future__ import annotations

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as catalogs
from airflow_gddl.metadata.topology import pipelines
from airflow_gddl.metadata.topology import pools as pools_of


def pools(ctx: typer.Context, *, metadata: options.Metadata = "metadata") -> None:
    """Print the Airflow pools that the tiers need, as JSON for `airflow pools import FILE`."""
    cli = context.of(ctx)
    catalog = catalogs.read(cli, metadata)
    needed = pools_of(pipelines(catalog.tables, catalog.tiers, catalog.dag_prefix))
    cli.screen.record(needed)
