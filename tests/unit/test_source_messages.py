"""What a wrong connection to a source is answered with, whole; no user and no password is shown."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from airflow_gddl.contract.connections import no_driver, unreachable

URL = "postgresql+psycopg2://me:hunter2@db.internal:5433/shop?sslpassword=x"
REMEDY = "check host and port of the connection, that the database runs, and the network; then try again"


@pytest.mark.parametrize(
    ("url", "where"),
    [
        (URL, "postgresql+psycopg2 at db.internal:5433"),
        ("mysql+pymysql://me:hunter2@db/shop", "mysql+pymysql at db"),
        ("sqlite:////no/such.db", "sqlite"),
    ],
)
def test_a_source_that_does_not_answer_is_named_by_host_and_port(url: str, where: str) -> None:
    error = sa.exc.OperationalError("SELECT 1", {}, Exception("connection refused\nIs the server running?"))
    reported = str(unreachable(sa.make_url(url), error))
    assert reported == f"[SOURCE_UNREACHABLE] the source can't be read: connection refused ({where}). Remedy: {REMEDY}"


@pytest.mark.parametrize(
    ("driver", "remedy"),
    [
        ("postgresql+psycopg2", "pip install psycopg2-binary"),
        ("postgresql+psycopg", "pip install 'psycopg[binary]'"),
        ("mysql+pymysql", "pip install pymysql"),
        ("mssql+pyodbc", "pip install pyodbc"),
        ("oracle+oracledb", "pip install oracledb"),
        ("nosuch", "install the package that brings it to SQLAlchemy"),
    ],
)
def test_a_missing_driver_is_answered_with_the_line_that_installs_it(driver: str, remedy: str) -> None:
    reported = str(no_driver(sa.make_url(f"{driver}://me:hunter2@h/db"), ModuleNotFoundError("No module named 'x'")))
    assert reported == f"[SOURCE_DRIVER_MISSING] no driver for {driver}: No module named 'x'. Remedy: {remedy}"
