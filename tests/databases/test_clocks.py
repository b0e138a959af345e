"""The clock of a source, whatever zone its session is in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from spark_jobs import source_tables
from tests.databases.mariadb import SERVER, mariadb
from tests.one_task.postgres import postgres

ZONES = ("-11:00", "+13:00")


DATABASES = {
    "mariadb": (mariadb, "shop", "init_command", "SET time_zone = '{}'"),
    "postgresql": (postgres, "public", "options", "-c timezone={}"),
}
"""How each starts, a schema, and how its sessions get a zone."""
WITHOUT = pytest.mark.skipif(SERVER is None, reason="no MariaDB: install Debian's mariadb-server")


@pytest.mark.parametrize("database", [pytest.param("mariadb", marks=WITHOUT), "postgresql"])
def test_the_clock_of_a_session_in_another_zone_is_utc(database: str) -> None:
    start, schema, option, setting = DATABASES[database]
    with start() as engine:
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE t (id int PRIMARY KEY)"))
        for zone in ZONES:
            url = engine.url.update_query_dict({option: setting.format(zone)})
            with source_tables.opened(url, f"{schema}.t") as table:
                assert abs(table.now() - datetime.now(UTC)) < timedelta(hours=1)
