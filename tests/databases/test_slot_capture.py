"""A PostgreSQL under writers, loaded and followed by jobs alone: full load by ranges, changes from a slot."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract import codec
from airflow_gddl.contract.checks import check_table
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import InitialLoad, JobOptions, TableSpec
from airflow_gddl.onboarding.database import Database
from spark_jobs.actions.log_capture import _SlotCapture
from tests.databases.test_initial_load import NAME, done, environ, run
from tests.delta_rs.postgres import emptied, execute, postgres
from tests.delta_rs.small_lake import SmallLake

OPTIONS = {"verify_connection": NAME, "replication_slot": "gddl"}
SPEC = TableSpec(
    table="s.t",
    keys=("id",),
    options=OPTIONS,
    settle="0s",
    columns_to_update="AR_H_COLUMNS",
    initial_load=InitialLoad(),
)
VERIFY = JobOptions(action="verify")


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as engine:
        yield engine


@pytest.fixture
def source(server: sa.Engine) -> Iterator[sa.Engine]:
    execute(emptied(server), "DROP PUBLICATION IF EXISTS gddl")
    execute(server, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION gddl FOR TABLES IN SCHEMA s")
    execute(server, "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 200) i")
    yield server
    drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'gddl'"
    execute(server, drop)


def rows_of(engine: sa.Engine, table: str = "s.t") -> list[dict[str, Any]]:
    with engine.connect() as connection:
        found = connection.execute(sa.text(f"SELECT * FROM {table}"))
        return sorted((dict(row._mapping) for row in found), key=str)


def replica(lake: SmallLake, spec: TableSpec = SPEC) -> list[dict[str, Any]]:
    rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
    ours = ("Op", "AR_H_CHANGE_SEQ", "AR_H_COMMIT_TIMESTAMP", "AR_H_COLUMNS")
    kept = [{k: v for k, v in row.items() if not k.startswith("_gddl") and k not in ours} for row in rows]
    return sorted(kept, key=str)


def change_some(engine: sa.Engine, chance: random.Random, count: int = 10) -> None:
    """Some transactions of several changes each; one in ten is rolled back."""
    with engine.connect() as connection:
        for _ in range(count):
            key, other, value = chance.randrange(300), chance.randrange(300, 10**6), str(chance.random())
            statement = chance.choice((
                "INSERT INTO s.t VALUES (:id, :v) ON CONFLICT DO NOTHING", "UPDATE s.t SET v = :v WHERE id = :id",
                "DELETE FROM s.t WHERE id = :id", "UPDATE s.t SET id = :other WHERE id = :id",
            ))  # fmt: skip
            connection.execute(sa.text(statement), {"id": key, "v": value, "other": other})
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()


@dataclass
class Writer:
    """Changes the table in a thread of its own; `with Writer(...)`."""

    engine: sa.Engine
    seed: int

    def __enter__(self) -> Writer:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        return self

    def _work(self) -> None:
        chance = random.Random(self.seed)  # noqa: S311 - repeatable by its seed
        while not self._stop.is_set():
            with suppress(sa.exc.DBAPIError):  # a deadlock, or a key that the other writer has taken
                change_some(self.engine, chance)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def again(lake: SmallLake, engine: sa.Engine, number: int, spec: TableSpec = SPEC) -> JobResult:
    """A run of another job: one reads the slot once."""
    job = replace(lake.job([spec]), run_id=f"run {number}")
    found = run(lake, engine, spec, job=job)
    assert found.error is None, found.error
    return found


@pytest.mark.parametrize("seed", range(3))
def test_replica_equals_the_source_under_writers(seed: int, source: sa.Engine, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    with Writer(source, seed), Writer(source, seed + 100):
        for number in range(5):
            again(lake, source, number)
    again(lake, source, 5)
    assert replica(lake) == rows_of(source)
    verified = done(lake, source, SPEC, VERIFY)
    assert verified.details["source"]["different"] == 0
    assert again(lake, source, 6).status == "skipped"


@contextmanager
def unflushed(engine: sa.Engine) -> Iterator[None]:
    """A row with key 1000 whose transaction is written to the log and not flushed, so that no slot has it yet."""
    written = "SELECT pg_current_wal_lsn() > CAST(:at AS pg_lsn)"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for setting in ("wal_writer_flush_after = '2GB'", "wal_writer_delay = '10s'"):
            connection.execute(sa.text(f"ALTER SYSTEM SET {setting}"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))
        connection.execute(sa.text("SET synchronous_commit = off"))
        connection.execute(sa.text("INSERT INTO s.t VALUES (1000, 'x')"))
        at = connection.execute(sa.text("SELECT CAST(pg_current_wal_insert_lsn() AS text)")).scalar()
        while not connection.execute(sa.text(written), {"at": at}).scalar():
            connection.execute(sa.text("UPDATE s.t SET v = repeat('y', 500) WHERE id < 200"))
        yield
        connection.execute(sa.text("ALTER SYSTEM RESET ALL"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))


def test_changes_that_are_flushed_after_a_job_looked_for_them_are_kept(
    source: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, peek, seen = SmallLake(tmp_path), _SlotCapture._peek, []

    def peek_and_flush(captured: _SlotCapture, connection: sa.Connection, upto: str | None) -> Any:
        found = peek(captured, connection, upto)
        seen.append(len(found[0]))
        execute(source, "INSERT INTO s.t VALUES (1001, 'flushes') ON CONFLICT DO NOTHING")
        return found

    again(lake, source, 0)
    with unflushed(source), monkeypatch.context() as patched:
        patched.setattr(_SlotCapture, "_peek", peek_and_flush)
        again(lake, source, 1)
    assert seen == [0]
    again(lake, source, 2)
    assert replica(lake) == rows_of(source)


@pytest.mark.parametrize("when", ["before", "after"])
def test_capture_is_resumed_after_each_write(when: str, source: sa.Engine, tmp_path: Path) -> None:
    lake, chance = SmallLake(tmp_path), random.Random(when)  # noqa: S311 - repeatable by its seed
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


def _killed(lake: SmallLake, engine: sa.Engine, number: int, when: str) -> bool:
    job = replace(lake.job([SPEC]), run_id=f"killed {number}")
    command = [sys.executable, "-m", "tests.databases.killed_load", codec.to_json(job), str(number), when]
    status = subprocess.run(command, env={**os.environ, **environ(engine)}, check=False).returncode
    assert status in (0, -signal.SIGKILL)
    return status != 0


def test_large_values_that_an_update_leaves_out_are_kept(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "ALTER TABLE s.t ALTER COLUMN v SET STORAGE EXTERNAL", "ALTER TABLE s.t ADD n int")
    execute(source, "UPDATE s.t SET v = repeat(md5(id::text), 1000) WHERE id < 5")
    lake = SmallLake(tmp_path)
    again(lake, source, 0)
    execute(source, "UPDATE s.t SET n = id")
    again(lake, source, 1)
    assert replica(lake) == rows_of(source)


def test_columns_that_come_and_types_arrive(source: sa.Engine, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    again(lake, source, 0)
    execute(source, "INSERT INTO s.t VALUES (1000, 'before')")
    execute(
        source,
        "ALTER TABLE s.t ADD d numeric(10, 2), ADD b bool, ADD x bytea, ADD w timestamptz, ADD f float8, ADD j jsonb",
        "INSERT INTO s.t VALUES (1001, '\u00fc\u4e2d', 1.50, true, '\\x00ff', '2024-03-31 02:30:00+02', 0.1, "
        "'{\"a\": 1}')",
    )  # fmt: skip
    again(lake, source, 1)
    assert done(lake, source, SPEC, VERIFY).details["source"]["different"] == 0
    row = next(row for row in replica(lake) if row["id"] == 1001)
    assert (str(row["d"]), row["b"], row["x"], row["f"], row["j"]) == ("1.50", True, b"\x00\xff", 0.1, '{"a": 1}')


def test_truncate_deletes_what_was_before(source: sa.Engine, tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), replace(SPEC, truncate="apply")
    again(lake, source, 0, spec)
    execute(source, "UPDATE s.t SET v = 'x'", "TRUNCATE s.t", "INSERT INTO s.t VALUES (1, 'after')")
    again(lake, source, 1, spec)
    assert replica(lake, spec) == rows_of(source) == [{"id": 1, "v": "after"}]


def test_each_table_of_the_publication_gets_its_files(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "CREATE TABLE s.other (a text, b int, PRIMARY KEY (a, b))")
    lake, other = SmallLake(tmp_path), replace(SPEC, table="s.other", keys=("a", "b"))
    again(lake, source, 0)
    with source.begin() as connection:
        connection.execute(sa.text("INSERT INTO s.other VALUES ('x', 1), ('x', 2)"))
        connection.execute(sa.text("INSERT INTO s.t VALUES (5000, 'x')"))
    again(lake, source, 1)
    execute(source, "UPDATE s.other SET b = 3 WHERE b = 2")
    again(lake, source, 2, other)
    assert replica(lake, other) == rows_of(source, "s.other")
    assert replica(lake) == rows_of(source)


def test_slot_that_was_dropped_is_an_error_until_the_tables_are_loaded_again(source: sa.Engine, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    again(lake, source, 0)
    execute(source, "SELECT pg_drop_replication_slot('gddl')", "DELETE FROM s.t WHERE id > 190")
    found = run(lake, source, SPEC, job=replace(lake.job([SPEC]), run_id="next"))
    assert found.error is not None
    assert found.error.code == "SOURCE_LOG_LOST"
    assert "gddl load --again" in found.error.message
    Path(lake.roots.lake, "_gddl", "slots", "default", "gddl", "position.json").unlink()
    again(lake, source, 1)
    spec = replace(SPEC, sweep_after="0s")
    done(lake, source, spec, JobOptions(action="load", confirmed=True))
    again(lake, source, 2, spec)
    assert replica(lake) == rows_of(source)


def test_slot_of_another_program_is_left_alone(source: sa.Engine, tmp_path: Path) -> None:
    execute(
        source, "SELECT pg_create_logical_replication_slot('gddl', 'pgoutput')", "INSERT INTO s.t VALUES (777, 'x')"
    )
    found = run(SmallLake(tmp_path), source, SPEC)
    assert found.error is not None
    assert "another program may read it" in found.error.message
    with source.connect() as connection:
        peeked = (
            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('gddl', NULL, NULL, 'proto_version', '1', {})"
        )
        names = "'publication_names', 'gddl'"
        assert connection.execute(sa.text(peeked.format(names))).scalar() == 4


def test_missing_publication_is_named(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "DROP PUBLICATION gddl")
    found = run(SmallLake(tmp_path), source, SPEC)
    assert found.error is not None
    assert (found.error.code, found.error.fatal) == ("SOURCE_LOG_REFUSED", True)
    assert "CREATE PUBLICATION gddl" in found.error.message
    with pytest.raises(FatalError, match=r"SOURCE_LOG_REFUSED.*no publication gddl"):
        Database(NAME, environ(source)).replicates("gddl")


def test_check_says_what_a_slot_is(source: sa.Engine, tmp_path: Path) -> None:
    database = Database(NAME, environ(source))
    assert database.replicates("gddl") == "publication gddl; the slot will be made by the first run"
    again(SmallLake(tmp_path), source, 0)
    assert database.replicates("gddl") == "publication gddl; the slot is reserved"


def test_database_without_logical_replication_is_named(tmp_path: Path) -> None:
    with postgres() as engine:
        execute(engine, "CREATE SCHEMA s", "CREATE TABLE s.t (id int PRIMARY KEY)")
        found = run(SmallLake(tmp_path), engine, SPEC)
    assert found.error is not None
    assert "wal_level of the source is replica" in found.error.message


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"options": {**OPTIONS, "replication_slot": "Gddl; DROP"}}, ("options", "replication_slot")),
        ({"options": {"replication_slot": "gddl"}, "initial_load": None}, ("options", "replication_slot")),
        ({"columns_to_update": None}, ("columns_to_update",)),
    ],
)
def test_bad_rows_are_refused(fields: dict[str, Any], path: tuple[str, ...]) -> None:
    assert [(one.code, one.path) for one in check_table(replace(SPEC, **fields))] == [("FIELD_VALUE", path)]


def test_names_of_tables_and_columns_do_no_harm(source: sa.Engine, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    again(lake, source, 0)
    execute(source, 'CREATE TABLE s."../../../x" (id int PRIMARY KEY)', 'INSERT INTO s."../../../x" VALUES (1)')
    execute(source, "INSERT INTO s.t VALUES (5000, 'x')")
    again(lake, source, 1)
    assert replica(lake) == rows_of(source)
    assert not Path(lake.roots.landing, "s", "../../../x").exists()
    execute(source, 'CREATE TABLE s.o (id int PRIMARY KEY, "OP" text)', "INSERT INTO s.o VALUES (1, 'D')")
    other = replace(SPEC, table="s.o")
    again(lake, source, 2, other)
    execute(source, "INSERT INTO s.o VALUES (2, 'D')", """UPDATE s.o SET "OP" = 'I' WHERE id = 1""")
    again(lake, source, 3, other)
    assert [(row["id"], row["OP_source"]) for row in replica(lake, other)] == [(1, "I"), (2, "D")]
