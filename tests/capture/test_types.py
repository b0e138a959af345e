"""A value that is loaded and the same value in the log are one value in the lake, or the column is refused by name."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.postgresql_log import published_table, table_findings
from tests.capture.captured import PUBLISHED, SPEC, again, end, prepared, refused, replica, rows_of
from tests.harness.lake import Lake
from tests.one_task.postgres import execute, postgres

AGREED = (
    ("bool", "true"), ("int2", "-32768"), ("int4", "7"), ("int8", "9223372036854775807"), ("oid", "4294967295"),
    ("float4", "0.1"), ("float8", "0.1::float8 + 0.2"), ("numeric", "1.500"), ("numeric", "1e20"), ("numeric",
    "-0.00000001"),
    ("numeric", "'NaN'"), ("numeric", "'-Infinity'"), ("float8", "'Infinity'"),
    ("numeric(10,2)", "1.50"), ("numeric(38,10)", "1.5"), ("numeric(50,2)", "1.5"), ("numeric(5)", "12"), ("money",
    "'12.34'"),
    ("text", "'a''b'"), ("text", "''"), ("text", "E'a\\nb\\u00e9'"), ("varchar(10)", "'x '"), ("char(5)", "'ab'"),
    ('"char"', "'c'"), ("name", "'n'"), ("bytea", r"'\x00ff'"), ("bytea", "'deadbeef'"), ("bytea", "''"), ("date",
    "'2024-02-29'"),
    ("time", "'23\\:59\\:59.5'"), ("time(0)", "'12\\:00\\:01'"), ("time(3)", "'12\\:00\\:01.5'"), ("time",
    "'24\\:00\\:00'"),
    ("timetz", "'12\\:00\\:00.25+02'"), ("timetz", "'00\\:30\\:00-03\\:30'"),
    ("timestamp", "'2024-02-29 12\\:00\\:00.123456'"), ("timestamp(0)", "'2024-02-29 12\\:00\\:00'"),
    ("timestamp(3)", "'2024-02-29 12\\:00\\:00.5'"), ("timestamptz", "'2024-02-29 12\\:00\\:00.123456+02'"),
    ("timestamptz(0)", "'2024-02-29 12\\:00\\:00+02'"), ("timestamptz", "'1890-01-01 00\\:00\\:17+00\\:09\\:21'"),
    ("interval", "'1 year 2 mons -3 days 04\\:05\\:06.789'"), ("interval", "'-1.5 seconds'"), ("interval", "'0'"),
    ("interval", "'1 day 02\\:00'"), ("interval", "'-14 mons 100\\:00\\:00.1'"), ("interval", "'-00\\:01\\:30'"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"), ("json", """'{"a"\\: [1, 2]}'"""), ("jsonb",
    """'{"b"\\:1,"a"\\:null}'"""),
    ("inet", "'10.0.0.1/8'"), ("inet", "'10.0.0.1'"), ("inet", "'\\:\\:1'"), ("cidr", "'10.0.0.0/8'"),
    ("macaddr", "'08\\:00\\:2b\\:01\\:02\\:03'"), ("macaddr8", "'08\\:00\\:2b\\:01\\:02\\:03\\:04\\:05'"), ("bit(1)",
    "B'1'"),
    ("int4range", "'[1,5)'"), ("int8range", "'[1,5)'"), ("numrange", "'[1.5,2]'"), ("tsrange",
    "'[2024-01-01,2024-01-02)'"),
    ("tstzrange", "'[2024-01-01 00\\:00+00,2024-01-02 00\\:00+00)'"), ("daterange", "'[2024-01-01,2024-01-02)'"),
    ("tsvector", "'a b'"), ("s.color", "'red'"), ("s.whole", "5"), ("s.price", "1.5"), ("s.short", "'x'"),
    ("s.day", "'2024-02-29'"),
    ("bpchar", "'x  '"), ("bpchar", "''"), ("s.padded", "'x'"), ("s.blanks", "'x  '"),
)  # fmt: skip
REFUSED = (
    "int[]", "text[]", "timestamptz[]", "point", "box", "circle", "path", "pg_lsn", "tsquery", "int4multirange",
    "s.pair",
    "jsonpath", "xid", "regclass", "bit(10)", "varbit", "numeric(4,-2)", "txid_snapshot", "tid", "s.color[]",
)  # fmt: skip
NAMES = (
    "CREATE TYPE s.color AS ENUM ('red', 'blue')", "CREATE TYPE s.pair AS (a int, b text)",
    "CREATE DOMAIN s.whole AS int",
    "CREATE DOMAIN s.price AS numeric(10, 2)", "CREATE DOMAIN s.short AS varchar(5)",
    "CREATE DOMAIN s.day AS date", "CREATE DOMAIN s.padded AS char(5)", "CREATE DOMAIN s.blanks AS bpchar",
)  # fmt: skip
UNUSUAL = (
    "bytea_output = 'escape'", "extra_float_digits = 0", "IntervalStyle = 'sql_standard'", "DateStyle = 'SQL, DMY'",
    "TimeZone = 'Asia/Kolkata'", "lc_monetary = 'C'", "statement_timeout = '30s'", "synchronous_commit = 'off'",
)  # fmt: skip


@pytest.fixture(params=["usual", "unusual", "latin1"])
def source(request: pytest.FixtureRequest, server: sa.Engine) -> Iterator[sa.Engine]:
    """Databases with settings that change how values are written."""
    end(server)
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text(f"DROP DATABASE IF EXISTS {request.param} WITH (FORCE)"))
        encoding = "LATIN1" if request.param == "latin1" else "UTF8"
        form = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        connection.execute(sa.text(f"CREATE DATABASE {request.param} {form}"))
        for setting in UNUSUAL if request.param != "usual" else ():
            connection.execute(sa.text(f"ALTER DATABASE {request.param} SET {setting}"))
    engine = sa.create_engine(server.url.set(database=request.param), poolclass=sa.pool.NullPool)
    execute(engine, "CREATE SCHEMA s", PUBLISHED, *NAMES)
    yield engine
    end(server)


@pytest.mark.filterwarnings("ignore:Did not recognize type")
def test_loaded_and_logged_values_are_equal(source: sa.Engine, tmp_path: Path) -> None:
    columns = ", ".join(f"c{at} {kind}" for at, (kind, _) in enumerate(AGREED))
    values = ", ".join(value for _, value in AGREED)
    execute(
        source,
        f"CREATE TABLE s.t (id int PRIMARY KEY, {columns})",
        f"INSERT INTO s.t VALUES (1, {values})",
        "INSERT INTO s.t (id) VALUES (3)",
    )
    lake = Lake(tmp_path)
    again(lake, source, 0)
    execute(
        source,
        "SET LOCAL TimeZone = 'America/New_York'",
        f"INSERT INTO s.t VALUES (2, {values})",
        "INSERT INTO s.t (id) VALUES (4)",
    )
    found = again(lake, source, 1)
    rows = {row["id"]: row for row in pa.table(DeltaTable(lake.layout(SPEC).replica).scan()).to_pylist()}
    differing = [
        (kind, value, rows[1][f"c{at}"], rows[2][f"c{at}"])
        for at, (kind, value) in enumerate(AGREED)
        if rows[1][f"c{at}"] != rows[2][f"c{at}"] or rows[1][f"c{at}"] is None
    ]
    assert differing == []
    for row in (rows[3], rows[4]):
        assert [row[f"c{at}"] for at in range(len(AGREED))] == [None] * len(AGREED)
    assert found.quarantined == 0


def test_each_other_type_is_refused_by_name(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *NAMES)
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(REFUSED))
    execute(server, f"CREATE TABLE s.t (id int PRIMARY KEY, {columns})")
    with server.connect() as connection:
        found = published_table(sa, connection, "gddl", "s.t")
        (one,) = table_findings(SPEC, found, "gddl")
        left_out = replace(SPEC, exclude_columns=tuple(f"c{at}" for at in range(len(REFUSED))))
        assert not list(table_findings(left_out, found, "gddl"))
    assert all(f"c{at} (" in one.what for at in range(len(REFUSED))), one.what
    code, message = refused(Lake(tmp_path), server, 0)
    assert code == "NOT_PUBLISHED"
    assert "exclude_columns: [c0," in message


def test_values_that_no_type_of_the_lake_holds_are_named(server: sa.Engine, tmp_path: Path) -> None:
    """By the log; loads are tested where they are."""
    special = (
        ("numeric(10,2)", "'NaN'"), ("numeric(50,2)", "123456789012345678901234567890123456789012.5"), ("date",
        "'infinity'"),
        ("timestamp", "'-infinity'"), ("timestamptz", "'infinity'"), ("date", "'0044-03-15 BC'"), ("timestamp",
        "'12024-01-01'"),
        ("timestamptz", "'0044-03-15 BC'"),
    )  # fmt: skip
    columns = ", ".join(f"c{at} {kind}" for at, (kind, _) in enumerate(special))
    prepared(server, f"CREATE TABLE s.t (id int PRIMARY KEY, {columns})")
    lake = Lake(tmp_path)
    again(lake, server, 0)
    execute(server, *(f"INSERT INTO s.t (id, c{at}) VALUES ({at}, {value})" for at, (_, value) in enumerate(special)))
    found = again(lake, server, 1)
    errors = pa.table(DeltaTable(lake.layout(SPEC).errors).scan()).to_pylist()
    assert found.quarantined == len(special)
    assert sorted((one["code"], one["column"]) for one in errors) == [
        ("CAST_FAILED", f"c{at}") for at in range(len(special))
    ]


def test_null_in_a_column_with_a_default_is_null(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, n int DEFAULT 5, v text DEFAULT 'none')")
    execute(server, "INSERT INTO s.t VALUES (1, NULL, NULL)")
    lake = Lake(tmp_path)
    again(lake, server, 0)
    execute(server, "INSERT INTO s.t VALUES (2, NULL, NULL)", "INSERT INTO s.t (id) VALUES (3)")
    again(lake, server, 1)
    assert replica(lake) == rows_of(server)


@pytest.mark.skipif(shutil.which("localedef") is None, reason="no localedef, by which the server gets a locale")
def test_money_of_another_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """German money is `1.234,56`; what has other than two digits is refused."""
    with tempfile.TemporaryDirectory(prefix="gddl-locale-") as folder:
        _locales(Path(folder), ("de_DE", "ja_JP"))
        monkeypatch.setenv("LOCPATH", folder)
        with postgres(settings="wal_level = logical") as engine:
            execute(engine, "CREATE SCHEMA s", PUBLISHED, "CREATE TABLE s.t (id int PRIMARY KEY, price money)")
            in_locale(engine, "de_DE")
            execute(engine, "INSERT INTO s.t SELECT 1, (-1234.56)::numeric::money".replace("::", "\\:\\:"))
            lake = Lake(tmp_path)
            again(lake, engine, 0)
            execute(engine, "INSERT INTO s.t SELECT 2, price FROM s.t")
            again(lake, engine, 1)
            assert [row["price"] for row in replica(lake)] == [Decimal("-1234.56")] * 2
            in_locale(engine, "ja_JP")
            code, message = refused(lake, engine, 2)
            assert (code, "money of 0 digits" in message) == ("NOT_PUBLISHED", True), message


def _locales(folder: Path, names: tuple[str, ...]) -> None:
    folder.chmod(0o755)  # the server runs as another user where the tests run as root
    for name in names:
        subprocess.run(["localedef", "-i", name, "-f", "UTF-8", folder / f"{name}.UTF-8"], check=False)
    for path in folder.rglob("*"):
        path.chmod(0o755)


def in_locale(engine: sa.Engine, name: str) -> None:
    execute(engine, f"ALTER DATABASE postgres SET lc_monetary = '{name}.UTF-8'")
