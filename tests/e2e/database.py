"""Options of Airflow on a PostgreSQL."""

from __future__ import annotations

from typing import Any

CONNECT_ARGS: dict[str, Any] = {}
"""Airflow's driver gets none, where the standalone Airflow passes SQLite's."""


def options(url: str) -> dict[str, str]:
    """Section `[database]`.

    Args:
        url: `postgresql://…`, without a driver.
    """
    rest = url.partition("://")[2]
    return {
        "sql_alchemy_conn": f"postgresql+psycopg2://{rest}",
        "sql_alchemy_conn_async": f"postgresql+asyncpg://{rest}",
        "sql_alchemy_connect_args": f"{__name__}.CONNECT_ARGS",
        "sql_alchemy_connect_args_async": f"{__name__}.CONNECT_ARGS",
    }
