"""A value that the engine can't read, or that is no text, concerns its table or row; all else is loaded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from spark_jobs.rooms.sources.capture import log
from tests.capture.captured import (
    LOAD_AGAIN,
    PUBLISHED,
    SPEC,
    VERIFY,
    again,
    end,
    prepared,
    refused,
    replica,
    result_of,
    rows_of,
)
from tests.harness.lake import Lake
from tests.one_task.postgres import execute

pytestmark = pytest.mark.usefixtures("without_slot")

OTHER, THIRD = (replace(SPEC, table=f"s.{name}") for name in ("other", "third"))
TOO_LONG = "INSERT INTO s.t VALUES (2, '2147483648 hours')"
"""Hours that Debezium reads as an `int`."""


def unencoded(server: sa.Engine, encoding: str = "SQL_ASCII", settings: tuple[str, ...] = ()) -> sa.Engine:
    """A database whose texts may be in any encoding, or in another one."""
    end(server)
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("DROP DATABASE IF EXISTS other WITH (FORCE)"))
        form = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        connection.execute(sa.text(f"CREATE DATABASE other {form}"))
        for setting in settings:
            connection.execute(sa.text(f"ALTER DATABASE other SET {setting}"))
    engine = sa.create_engine(server.url.set(database="other"), poolclass=sa.pool.NullPool)
    execute(engine, "CREATE SCHEMA s", PUBLISHED)
    return engine


def in_bytes(engine: sa.Engine, *statements: bytes) -> None:
    """As a client would that does not say which encoding its texts have."""
    connection = engine.raw_connection()
    with connection.cursor() as cursor:
        cursor.execute(f"SET client_encoding = '{_server_encoding(engine)}'")
        for statement in statements:
            cursor.execute(statement)
    connection.commit()
    connection.close()


def _server_encoding(engine: sa.Engine) -> str:
    with engine.connect() as connection:
        return str(connection.execute(sa.text("SHOW server_encoding")).scalar())


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Engines that are started."""
    started: list[int] = []

    class Counted(log.Engine):
        def __enter__(self) -> Counted:
            started.append(1)
            super().__enter__()
            return self

    with monkeypatch.context() as patched:
        patched.setattr(log, "Engine", Counted)
        yield started


def test_bytes_that_are_no_text_concern_their_row(server: sa.Engine, tmp_path: Path) -> None:
    """By the log and by a load; a comparison names it, too."""
    engine = unencoded(server)
    execute(engine, "CREATE TABLE s.t (id int PRIMARY KEY, v text, c char(5), j jsonb, b bytea)")
    in_bytes(
        engine, b"INSERT INTO s.t VALUES (1, 'a', 'a', '{}', 'a'), (2, '\xc3\xa4', '\xc3\xa4', '\"\xc3\xa4\"', 'b')"
    )
    lake = Lake(tmp_path)
    again(lake, engine, 0)
    in_bytes(
        engine,
        b"INSERT INTO s.t (id, v, c) VALUES (3, '\xc3\xa4', 'b'), (4, '\xe4', 'c')",
        b"UPDATE s.t SET c = 'x' WHERE id = 2",
    )
    found = again(lake, engine, 1)
    assert found.quarantined == 1
    again(lake, engine, 2, options=LOAD_AGAIN)
    again(lake, engine, 3)
    errors = pa.table(DeltaTable(lake.layout(SPEC).errors).scan()).to_pylist()
    assert {(row["code"], row["column"], '"id":4' in row["record"]) for row in errors} == {("TEXT_NOT_UTF8", "v", True)}
    assert texts(lake) == rows_of(utf8(engine), "(SELECT id, v, c FROM s.t WHERE id <> 4) t")
    in_bytes(engine, b"UPDATE s.t SET v = 'mended' WHERE id = 4")
    again(lake, engine, 4)
    assert texts(lake) == rows_of(utf8(engine), "(SELECT id, v, c FROM s.t) t")
    said = again(lake, engine, 5, options=VERIFY).warnings
    assert [(w.code, w.sample) for w in said] == [("COLUMNS_NOT_COMPARED", ("c",))], "char(5)"


def texts(lake: Lake) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ("id", "v", "c")} for row in replica(lake)]


def utf8(engine: sa.Engine) -> sa.Engine:
    return sa.create_engine(engine.url, poolclass=sa.pool.NullPool, client_encoding="utf8")


def test_keys_of_text_in_a_database_without_an_encoding(server: sa.Engine, tmp_path: Path) -> None:
    engine, lake = unencoded(server), Lake(tmp_path)
    execute(engine, "CREATE TABLE s.t (id text PRIMARY KEY, v text)")
    in_bytes(engine, b"INSERT INTO s.t VALUES ('\xc3\xa4', 'a'), ('b', '\xc3\xb6')")
    again(lake, engine, 0)
    in_bytes(engine, b"INSERT INTO s.t VALUES ('\xe4', 'a')", b"UPDATE s.t SET v = 'c' WHERE id = '\xc3\xa4'")
    assert again(lake, engine, 1).quarantined == 1
    assert replica(lake) == [{"id": "b", "v": "ö"}, {"id": "ä", "v": "c"}]


def test_value_that_ends_the_engine_stops_its_table_alone(
    server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, v interval)", "CREATE TABLE s.other (id int PRIMARY KEY)",
             "CREATE TABLE s.third (id int PRIMARY KEY)")  # fmt: skip
    lake = Lake(tmp_path)
    for spec in (SPEC, OTHER, THIRD):
        again(lake, server, 0, spec)
    execute(server, TOO_LONG, "INSERT INTO s.other VALUES (1)", "INSERT INTO s.third VALUES (1)")
    with counted(monkeypatch) as started:
        again(lake, server, 1, OTHER)
        code, message = refused(lake, server, 1)
        again(lake, server, 1, THIRD)
    assert len(started) == 2
    assert (code, "s.t can't be read" in message) == ("SOURCE_LOG_STOPPED", True), message
    for spec in (OTHER, THIRD):
        assert replica(lake, spec) == [{"id": 1}]
    execute(server, "UPDATE s.t SET v = '1 hour'", "INSERT INTO s.other VALUES (2)")
    assert refused(lake, server, 2)[0] == "SOURCE_LOG_STOPPED"
    again(lake, server, 3, options=LOAD_AGAIN)
    execute(server, "INSERT INTO s.t VALUES (3, '2 hours')")
    again(lake, server, 4)
    again(lake, server, 4, OTHER)
    assert [(row["id"], row["v"]) for row in replica(lake)] == [(2, "P0Y0M0DT1H0M0S"), (3, "P0Y0M0DT2H0M0S")]
    assert replica(lake, OTHER) == [{"id": 1}, {"id": 2}]


def test_text_that_the_server_can_not_convert_is_named_once(
    server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte that is no character of WIN1252: the server itself ends the log."""
    engine, lake = unencoded(server, "WIN1252"), Lake(tmp_path)
    execute(engine, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "CREATE TABLE s.other (id int PRIMARY KEY)")
    for spec in (SPEC, OTHER):
        again(lake, engine, 0, spec)
    in_bytes(engine, b"INSERT INTO s.t VALUES (1, '\x81')")
    with counted(monkeypatch) as started:
        found = [result_of(lake, engine, 1, spec).error for spec in (SPEC, OTHER)]
    assert len(started) == 1
    assert [(one.code, "0x81" in one.message) for one in found if one] == [("SOURCE_TEXT_INVALID", True)] * 2
    assert refused(lake, engine, 2)[0] == "SOURCE_TEXT_INVALID"


def test_columns_that_differ_by_case_alone_are_named_before_the_engine_starts(
    server: sa.Engine, tmp_path: Path
) -> None:
    prepared(
        server, "CREATE TABLE s.t (id int PRIMARY KEY)", 'CREATE TABLE s.other (id int PRIMARY KEY, a int, "A" int)'
    )
    code, message = refused(Lake(tmp_path), server, 0)
    assert (code, 's.other differ by case alone (a, "A")' in message) == ("SOURCE_LOG_REFUSED", True), message
    execute(server, 'ALTER TABLE s.other RENAME COLUMN "A" TO b')
    again(Lake(tmp_path), server, 1)


ENCODINGS = ("UTF8", "LATIN1", "LATIN9", "WIN1252", "WIN1251", "KOI8R", "EUC_JP", "ISO_8859_5", "SQL_ASCII")
SETTINGS = (
    ("bytea_output", ("hex", "escape")), ("DateStyle", ("ISO, MDY", "SQL, DMY", "German", "Postgres, YMD")),
    ("IntervalStyle", ("postgres", "sql_standard", "iso_8601", "postgres_verbose")),
    ("TimeZone", ("UTC", "Asia/Kolkata", "America/New_York")), ("extra_float_digits", ("-15", "0", "3")),
    ("xmloption", ("document", "content")), ("standard_conforming_strings", ("on", "off")),
    ("search_path", ("s", "pg_catalog", '""')), ("lc_monetary", ("C",)), ("client_encoding", ("UTF8", "LATIN1")),
    ("default_transaction_isolation", ("serializable", "read committed")), ("row_security", ("on", "off")),
    ("statement_timeout", ("0", "20s")), ("quote_all_identifiers", ("on", "off")),
)  # fmt: skip
KNOWN = {None, "SOURCE_TEXT_INVALID"}


@pytest.mark.parametrize("seed", range(3))
def test_drawn_encodings_settings_and_bytes_end_in_no_unexpected_error(
    seed: int, server: sa.Engine, tmp_path: Path
) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable by its seed
    encoding = ENCODINGS[-1 - seed] if seed < 2 else chance.choice(ENCODINGS)
    settings = tuple(f"{name} = '{chance.choice(values)}'" for name, values in SETTINGS)
    print(f"seed {seed}: {encoding}, {', '.join(settings)}")
    engine, lake = unencoded(server, encoding, settings), Lake(tmp_path)
    execute(engine, "CREATE TABLE s.t (id int PRIMARY KEY, v text, d date, n interval, f float8, b bytea, m money)")
    for number in range(2):
        for key in range(10 * number, 10 * number + 10):
            text = bytes(chance.choice([*range(32, 39), *range(40, 92), *range(93, 256)]) for _ in range(3))
            row = b"(%d, '%s', '2024-02-29', '1 day 02:00', 0.1, 'a', 1)" % (key, text if key % 2 else b"plain")
            with suppress(psycopg2.errors.CharacterNotInRepertoire):  # not of this encoding
                in_bytes(engine, b"INSERT INTO s.t VALUES " + row)
        found = result_of(lake, engine, number)
        assert (found.error.code if found.error else None) in KNOWN, found.error
        if found.error is None:
            assert {*range(0, 10 * number + 10, 2)} <= {row["id"] for row in replica(lake)}
