"""`python -m devtools.fake_databricks`: a local Databricks workspace, without an account, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from types import FrameType

from airflow_gddl.cli import context
from devtools.fake_databricks.server import serving


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m devtools.fake_databricks", description=__doc__)
    parser.add_argument("--port", type=int, default=8765, help="port on the loopback; 0: a free one")
    parser.add_argument("--bundle", type=Path, metavar="FILE", help="databricks.yml with its jobs")
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    given, cli = parser.parse_args(), context.real()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with serving(cli.job_command, given.port) as fake:
        if given.bundle:
            fake.workspace.deploy(given.bundle)
        cli.screen.dictate(f"export DATABRICKS_HOST={fake.workspace.url} DATABRICKS_TOKEN={fake.token}")
        ended.wait()


if __name__ == "__main__":
    main()
