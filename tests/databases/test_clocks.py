"""The clock of a source, whatever zone its session is in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from spark_jobs import verification
from tests.databases.mariadb import SERVER, mariadb
from tests.delta_rs.postgres import postgres

ZONES = ("-11:00", "+13:00")


@pytest.mark.skipif(SERVER is None, reason="no MariaDB: install Debian's mariadb-server")
def test_mariadb_in_another_zone_tells_utc() -> None:
    with mariadb() as engine:
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE t (id int PRIMARY KEY)"))
        for zone in ZONES:
            url = engine.url.update_query_dict({"init_command": f"SET time_zone = '{zone}'"})
            with verification.opened(url, "shop", "t") as table:
                assert abs(table.now() - datetime.now(UTC)) < timedelta(hours=1)


def test_postgresql_in_another_zone_tells_utc() -> None:
    with postgres() as engine:
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE t (id int PRIMARY KEY)"))
        for zone in ZONES:
            url = engine.url.update_query_dict({"options": f"-c timezone={zone}"})
            with verification.opened(url, "public", "t") as table:
                assert abs(table.now() - datetime.now(UTC)) < timedelta(hours=1)
