"""`gddl pools`."""

from __future__ import annotations

import typer

from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import metadata as catalogs
from airflow_gddl.cli import options
from airflow_gddl.metadata.topology import pipelines
from airflow_gddl.metadata.topology import pools as pools_of


def pools(ctx: typer.Context, *, metadata: options.Metadata = "metadata") -> None:
    """Print the Airflow pools that the tiers need, as JSON for `airflow pools import FILE`."""
    around = surroundings.of(ctx)
    catalog = catalogs.read(around, metadata)
    needed = pools_of(pipelines(catalog.tables, catalog.tiers, catalog.dag_prefix))
    around.screen.record(needed)
