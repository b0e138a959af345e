"""URLs of this package's pages."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TypeGuard
from urllib.parse import quote, urlencode

PREFIX = "/gddl"
"""Path prefix of the page, below Airflow's URL."""


def is_page(log: str | None) -> TypeGuard[str]:
    """Whether the log is a web page; other logs are files, found by the run's id."""
    return log is not None and log.startswith(("https://", "http://"))


def table_page(base: str, table: str) -> str:
    """URL of a table's page; empty where Airflow's address is not known.

    Args:
        base: as of `log_page`.
    """
    return f"{base}{PREFIX}/#/table/{quote(table, safe='')}" if base else ""


REPAIRS = ("reload", "rebuild", "replay")
"""Actions that a table's page asks about at once when its address names them."""


def action_page(base: str, table: str, action: str) -> str:
    """Address of a table's page that asks about one of `REPAIRS`; a path where Airflow's address is not known.

    Args:
        base: as of `log_page`.
    """
    return f"{base}{PREFIX}/#/table/{quote(table, safe='')}?action={action}"


def log_page(base: str, log: str) -> str:
    """URL of the page of a job's log; empty for a log that is not in a lake.

    Args:
        base: Airflow's address, without a slash at its end.
        log: path or URL of the log.
    """
    from airflow_gddl.contract.layout import log_folder  # noqa: PLC0415 - of a page that is shown

    path = PurePosixPath(log)
    if len(path.parts) < 3 or not log.endswith(log_folder("", path.parent.name) + f"/{path.name}"):
        return ""
    return f"{base}{PREFIX}/#/log?{urlencode({'dag_id': path.parent.name, 'job': path.stem})}"
