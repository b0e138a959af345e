"""What a wrong connection to a source is answered with, whole; no user and no password is shown."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from airflow_gddl.contract.connections import engine_of, no_driver, unreachable
from airflow_gddl.contract.errors import FatalError

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
    "answer",
    [
        'connection to server at "db" failed: FATAL:  database "shp" does not exist',
        'FATAL:  password authentication failed for user "me"',
        'FATAL:  role "me" does not exist',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1"',
        "(1049, \"Unknown database 'shp'\")",
        "(1045, \"Access denied for user 'me'@'10.0.0.1' (using password: YES)\")",
        "ORA-01017: invalid credential or not authorized; logon denied",
        "ORA-12514: Cannot connect to database. Service shp is not registered",
        '[42000] Cannot open database "shp" requested by the login. The login failed.',
        "unable to open database file",
    ],
)
def test_a_database_or_user_that_is_refused_is_not_tried_again(answer: str) -> None:
    found = unreachable(sa.make_url(URL), sa.exc.OperationalError("SELECT 1", {}, Exception(answer)))
    assert (type(found).__name__, found.code, answer in found.what) == ("FatalError", "SOURCE_REFUSED", True)


@pytest.mark.parametrize(
    "answer",
    [
        "connection refused", "FATAL:  the database system is starting up", "timeout expired",
        "Name or service not known",
        "SSL connection has been closed unexpectedly", "(2013, 'Lost connection to MySQL server during query')",
        "FATAL:  sorry, too many clients already", "ORA-12170: Cannot connect. TCP connect timeout",
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_again(answer: str) -> None:
    found = unreachable(sa.make_url(URL), sa.exc.OperationalError("SELECT 1", {}, Exception(answer)))
    assert (type(found).__name__, found.code) == ("RetriableError", "SOURCE_UNREACHABLE")


@pytest.mark.parametrize(
    ("driver", "remedy"),
    [
        ("postgresql+psycopg2", "pip install psycopg2-binary"),
        ("postgresql+asyncpg", "pip install psycopg2-binary, and write postgresql://"),
        ("mssql+aioodbc", "pip install pyodbc, and write mssql://"),
        ("oracle+oracledb_async", "pip install oracledb, and write oracle+oracledb://"),
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


def test_a_driver_for_asyncio_is_refused_before_it_connects() -> None:
    with pytest.raises(FatalError, match=r"SOURCE_DRIVER_MISSING.*asyncio.*write postgresql://"):
        engine_of(sa, sa.make_url("postgresql+asyncpg://me:hunter2@h/db"))
