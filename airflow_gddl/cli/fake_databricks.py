"""`gddl fake-databricks`: a local Databricks workspace, without an account."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Annotated

import typer

from airflow_gddl.cli import context, deploy


def fake_databricks(
    ctx: typer.Context,
    *,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port on the loopback; 0: a free one.")
    ] = 8765,
) -> None:
    """Serve a Databricks Jobs API that runs jobs as local processes, until Ctrl-C."""
    cli = context.of(ctx)
    deploy.require_package("databricks", "databricks-sdk", "databricks")
    from airflow_gddl.devtools.fakes.databricks.server import serving  # noqa: PLC0415 - imports the SDK, which takes long

    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with serving(cli.job_command, port) as fake:
        cli.screen.dictate(f"export DATABRICKS_HOST={fake.workspace.url} DATABRICKS_TOKEN={fake.token}")
        ended.wait()
