"""`gddl fake-databricks`: the whole way through a workspace, without an account."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Annotated

import typer

from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import deploy


def fake_databricks(
    ctx: typer.Context,
    *,
    port: Annotated[int, typer.Option("--port", help="On the loopback; 0: any that is free.")] = 8765,
) -> None:
    """Serve a Databricks Jobs API on this machine that runs jobs as processes of it, until Ctrl-C."""
    around = surroundings.of(ctx)
    deploy.require_sdk()
    from airflow_gddl.devtools.fakes.databricks.server import TOKEN, serving  # noqa: PLC0415 - imports the SDK, which takes long

    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with serving(around.job_command, port) as fake:
        around.screen.dictate(f"export DATABRICKS_HOST={fake.workspace.url} DATABRICKS_TOKEN={TOKEN}")
        ended.wait()
