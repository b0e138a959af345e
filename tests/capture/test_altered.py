"""Alterations of the source that leave no change of a row: a run stops by name, and what it says mends the table."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_gddl.contract.actions import LoadFromSource, Rebuild, Verify
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.rooms.actions import initial_load
from spark_jobs.rooms.sources.capture.postgresql import PostgreSQL
from tests.capture.captured import LOAD_AGAIN, SPEC, VERIFY, again, prepared, refused, replica, result_of, rows_of
from tests.harness.lake import Lake
from tests.one_task.postgres import execute

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("without_slot")]

WIDE = replace(SPEC, schema_evolution=SchemaEvolution(type_change="text"), truncate="apply")
PLAIN = (
    "CREATE TYPE s.state AS ENUM ('open', 'shut')",
    "CREATE TABLE s.t (id int PRIMARY KEY, v varchar(9) DEFAULT '', n int, state s.state, alt int NOT NULL DEFAULT 0)",
    "CREATE UNIQUE INDEX alt ON s.t (id, alt)", "CREATE UNIQUE INDEX by_alt ON s.t (alt)",
    "INSERT INTO s.t SELECT i, 'v' || i, i, 'shut', i FROM generate_series(1, 9) i",
)  # fmt: skip
PARTS = (
    "CREATE TABLE s.t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE s.p PARTITION OF s.t FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE s.q PARTITION OF s.t FOR VALUES FROM (100) TO (200)",
    "INSERT INTO s.t VALUES (1, 'a'), (101, 'b')",
)
NARROW = ("CREATE TABLE s.t (id int PRIMARY KEY, v varchar(9))", "INSERT INTO s.t VALUES (1, 'a'), (2, 'b')")
CHANGED = "INSERT INTO s.t (id, v) VALUES (50, 'later')"
ALTERED = (
    (PLAIN, ("ALTER TABLE s.t ADD stock int NOT NULL DEFAULT 5",), "column stock was added with the value"),
    (PLAIN, ("ALTER TABLE s.t ADD at timestamptz NOT NULL DEFAULT clock_timestamp()",), "were rewritten"),
    (PLAIN, ("ALTER TABLE s.t ALTER n TYPE bigint USING n * 100",), "column n is int8, and was int4"),
    (PLAIN, ("ALTER TABLE s.t ALTER n TYPE int USING n * 100",), "n was altered"),
    (PLAIN, ("ALTER TABLE s.t RENAME n TO m",), "column n was renamed to m"),
    (PLAIN, ("ALTER TABLE s.t RENAME n TO m", "UPDATE s.t SET m = 8 WHERE id = 2", "ALTER TABLE s.t RENAME m TO n"),
     "column n had another name for a while"),
    (PLAIN, ("ALTER TABLE s.t RENAME n TO x", "ALTER TABLE s.t RENAME alt TO n", "ALTER TABLE s.t RENAME x TO alt",
     "UPDATE s.t SET n = 80 WHERE id = 2", "ALTER TABLE s.t RENAME n TO x", "ALTER TABLE s.t RENAME alt TO n",
     "ALTER TABLE s.t RENAME x TO alt"), "column n had another name for a while"),
    (PLAIN, ("ALTER TABLE s.t DROP n", "ALTER TABLE s.t ADD n int"), "another one of this name was added"),
    (PLAIN, ("ALTER TYPE s.state RENAME VALUE 'shut' TO 'closed'",), "'shut' of an enum was renamed to 'closed'"),
    (PLAIN, ("ALTER TABLE s.t REPLICA IDENTITY USING INDEX by_alt", "DELETE FROM s.t WHERE id = 3",
     "ALTER TABLE s.t REPLICA IDENTITY DEFAULT"), "replica identity was another for a while"),
    (PLAIN, ("ALTER TABLE s.t RENAME TO u", "DELETE FROM s.u WHERE id = 3", "ALTER TABLE s.u RENAME TO t"),
     "it was renamed to s.u for a while"),
    (PLAIN, ("CREATE SCHEMA IF NOT EXISTS away", "ALTER TABLE s.t SET SCHEMA away",
     "DELETE FROM away.t WHERE id = 3", "ALTER TABLE away.t SET SCHEMA s"), "moved to a schema that is not published"),
    (PLAIN, ("ALTER TABLE s.t SET UNLOGGED", "DELETE FROM s.t WHERE id = 3", "ALTER TABLE s.t SET LOGGED"),
     "were rewritten (SET UNLOGGED"),
    (PARTS, ("ALTER TABLE s.t ADD stock int DEFAULT 5",), "column stock was added with the value"),
    (PARTS, ("CREATE TABLE s.r (LIKE s.t INCLUDING ALL) PARTITION BY RANGE (id)",
     "CREATE TABLE s.r1 PARTITION OF s.r FOR VALUES FROM (200) TO (300)", "INSERT INTO s.r VALUES (201, 'r')",
     "ALTER TABLE s.t ATTACH PARTITION s.r FOR VALUES FROM (200) TO (300)"), "attached as partitions"),
    (PARTS, ("TRUNCATE s.t", "INSERT INTO s.t VALUES (1, 'a')", "TRUNCATE s.p"),
     "truncated or rewritten by themselves"),
    (PARTS, ("TRUNCATE s.t", "INSERT INTO s.t VALUES (1, 'a')", "TRUNCATE s.p, s.q"),
     "truncated or rewritten by themselves"),
    (PARTS, ("CREATE TABLE s.r PARTITION OF s.t FOR VALUES FROM (200) TO (300)", "INSERT INTO s.t VALUES (201, 'r')",
     "TRUNCATE s.r"), "truncated or rewritten by themselves: s.r"),
    (NARROW, ("TRUNCATE s.t", "ALTER TABLE s.t SET UNLOGGED", "INSERT INTO s.t VALUES (1, 'a')",
     "ALTER TABLE s.t SET LOGGED"), "were rewritten (SET UNLOGGED"),
    (PARTS, ("DROP TABLE s.q",), "dropped or detached, with their rows: s.q"),
    (PARTS, ("ALTER TABLE s.t DETACH PARTITION s.q",), "dropped or detached"),
    (PARTS, ("TRUNCATE s.q",), "truncated or rewritten by themselves: s.q"),
    (PARTS, ("CREATE TABLE s.r (LIKE s.t INCLUDING ALL)", "INSERT INTO s.r VALUES (201, 'r')",
     "ALTER TABLE s.t ATTACH PARTITION s.r FOR VALUES FROM (200) TO (300)"), "attached as partitions"),
)  # fmt: skip


@pytest.mark.parametrize(("tables", "ddl", "what"), ALTERED, ids=["; ".join(one[1])[:60] for one in ALTERED])
def test_alteration_without_a_change_is_named_and_mended(
    tables: tuple[str, ...], ddl: tuple[str, ...], what: str, server: sa.Engine, tmp_path: Path
) -> None:
    prepared(server, *tables)
    lake = Lake(tmp_path)
    again(lake, server, 0, WIDE)
    for statement in (*ddl, CHANGED):
        execute(server, statement)
    code, message = refused(lake, server, 1, WIDE)
    assert code == "SOURCE_TABLE_ALTERED", message
    assert what in message, message
    assert "gddl load --again --table s.t" in message
    again(lake, server, 2, WIDE, LOAD_AGAIN)
    execute(server, "UPDATE s.t SET v = 'last' WHERE id = 50")
    again(lake, server, 3, WIDE)
    expected = [{name: row[name] for name in replica(lake, WIDE)[0] if name in row} for row in rows_of(server)]
    found = [{name: row[name] for name in expected[0]} for row in replica(lake, WIDE)]
    assert sorted(found, key=str) == sorted(expected, key=str)


UNCHANGED = (
    (PLAIN, ("ALTER TABLE s.t ADD m int", "GRANT SELECT ON s.t TO public", "ALTER TABLE s.t ALTER v SET DEFAULT 'x'",
     "ALTER TABLE s.t ALTER n SET STATISTICS 5", "ALTER TABLE s.t SET (fillfactor = 90)", "CREATE INDEX ON s.t (n)",
     "ANALYZE s.t", "ALTER TYPE s.state ADD VALUE 'ajar'", "ALTER TYPE s.state RENAME TO phase",
     "ALTER TABLE s.t REPLICA IDENTITY FULL",
     "ALTER TABLE s.t ADD CHECK (id > 0)", "ALTER TABLE s.t ALTER v TYPE text")),
    (PLAIN, ("DELETE FROM s.t WHERE id = 3", "TRUNCATE s.t")),
    (PLAIN, ("DELETE FROM s.t WHERE id = 3", "ALTER TABLE s.t ADD x int", "UPDATE s.t SET x = 3 WHERE id = 4")),
    (PLAIN, ("ALTER TABLE s.t DROP CONSTRAINT t_pkey", "ALTER TABLE s.t ADD PRIMARY KEY (id, alt)",
     "DELETE FROM s.t WHERE id = 3", "UPDATE s.t SET id = 20 WHERE id = 4", "UPDATE s.t SET alt = 21 WHERE id = 5")),
    ((*PLAIN, "ALTER TABLE s.t ADD large text"), ("CLUSTER s.t USING t_pkey", "ALTER TABLE s.t RENAME n TO m",
     "ALTER TABLE s.t RENAME m TO n")),
    (PARTS, ("CREATE TABLE s.r PARTITION OF s.t FOR VALUES FROM (200) TO (300)", "INSERT INTO s.t VALUES (201, 'r')")),
    (PARTS, ("TRUNCATE s.t", "GRANT SELECT ON s.p TO public")),
    (NARROW, ("TRUNCATE s.t", "GRANT SELECT ON s.t TO public")),
)  # fmt: skip


@pytest.mark.parametrize(("tables", "ddl"), UNCHANGED, ids=["; ".join(one[1])[:60] for one in UNCHANGED])
def test_alterations_that_the_log_tells_are_no_hindrance(
    tables: tuple[str, ...], ddl: tuple[str, ...], server: sa.Engine, tmp_path: Path
) -> None:
    prepared(server, *tables)
    lake = Lake(tmp_path)
    again(lake, server, 0, WIDE)
    for statement in (*ddl, CHANGED):
        execute(server, statement)
    again(lake, server, 1, WIDE)
    names = [name for name in rows_of(server)[0] if name != "m"]
    found = [{name: row[name] for name in names} for row in replica(lake, WIDE)]
    assert found == [{name: row[name] for name in names} for row in rows_of(server)]


@pytest.mark.parametrize(
    ("ddl", "code"),
    [
        (ALTERED[8][1], "SOURCE_TABLE_ALTERED"),
        (("ALTER PUBLICATION gddl DROP TABLES IN SCHEMA s", "DELETE FROM s.t WHERE id = 3",
          "ALTER PUBLICATION gddl ADD TABLES IN SCHEMA s"), "SOURCE_LOG_RESTARTED"),
        (("TRUNCATE s.t",), ""),
    ],
    ids=["replica identity", "publication", "truncate"],
)  # fmt: skip
def test_alteration_while_the_log_is_read_is_named_before_anything_is_loaded(
    ddl: tuple[str, ...], code: str, server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delete under another identity has key 0: it would remove row 0."""
    prepared(server, *PLAIN, "INSERT INTO s.t (id) VALUES (0)")
    lake = Lake(tmp_path)
    again(lake, server, 0, WIDE)
    loaded = replica(lake, WIDE)
    mark, left = PostgreSQL.mark, list(ddl)

    def altered(log: PostgreSQL) -> Any:
        while left:
            execute(server, left.pop(0))
        return mark(log)

    with monkeypatch.context() as patched:
        patched.setattr(PostgreSQL, "mark", altered)
        found = result_of(lake, server, 1, WIDE)
    assert (found.error.code if found.error else "") == code, found.error
    assert replica(lake, WIDE) == (loaded if code else [])
    if code:
        again(lake, server, 2, WIDE, LOAD_AGAIN)
    again(lake, server, 3, WIDE)
    assert [row["id"] for row in replica(lake, WIDE)] == [row["id"] for row in rows_of(server)]


def test_renamed_value_of_an_enum_is_seen_by_a_comparison(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *PLAIN)
    lake, compared = Lake(tmp_path), JobOptions(action=Verify(settle_seconds=0))
    again(lake, server, 0, WIDE)
    again(lake, server, 1, WIDE, compared)
    execute(server, "ALTER TYPE s.state RENAME VALUE 'shut' TO 'closed'")
    for number in (2, 3):  # a difference that is still there at the second look
        found = result_of(lake, server, number, WIDE, compared)
    assert found.error is not None
    assert found.error.code == "SOURCE_DIFFERENT"


def test_load_that_was_killed_mends_nothing(server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The alteration is named until a load has ended: the killed one has noted the table as it is now."""
    prepared(server, *PLAIN)
    lake = Lake(tmp_path)
    again(lake, server, 0, WIDE)
    execute(server, ALTERED[0][1][0])

    def killed(*_: object, **__: object) -> None:
        raise RetriableError("JOB_CANCELLED", "killed before a row is read")

    with monkeypatch.context() as patched:
        patched.setattr(initial_load, "ThreadPoolExecutor", killed)
        for number in (1, 2):
            found = result_of(lake, server, number, WIDE, LOAD_AGAIN)
            assert found.error is not None
            assert found.error.code == "JOB_CANCELLED"
    code, message = refused(lake, server, 3, WIDE)
    assert (code, "column stock was added" in message) == ("SOURCE_TABLE_ALTERED", True), message
    again(lake, server, 4, WIDE, LOAD_AGAIN)
    again(lake, server, 5, WIDE)
    assert {row["stock"] for row in replica(lake, WIDE)} == {5}


def test_truncate_between_two_tables_of_a_job_is_no_alteration(server: sa.Engine, tmp_path: Path) -> None:
    """One reading of the log is for both; the second table is read once more."""
    prepared(server, *PLAIN, "CREATE TABLE s.other (id int PRIMARY KEY)")
    lake, other = Lake(tmp_path), replace(SPEC, table="s.other")
    for spec in (WIDE, other):
        again(lake, server, 0, spec)
    again(lake, server, 1, other)
    execute(server, "TRUNCATE s.t", CHANGED)
    again(lake, server, 1, WIDE)
    assert [row["id"] for row in replica(lake, WIDE)] == [50]


def test_renamed_table_is_named_and_followed(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *PLAIN)
    lake = Lake(tmp_path)
    again(lake, server, 0)
    execute(server, "ALTER TABLE s.t RENAME TO u", "INSERT INTO s.u (id) VALUES (50)")
    code, message = refused(lake, server, 1)
    assert (code, "renamed to s.u" in message, "`table: s.u`" in message) == ("SOURCE_TABLE_MISSING", True, True)
    followed = replace(SPEC, table="s.u")
    again(lake, server, 2, followed, JobOptions(action=LoadFromSource()))
    again(lake, server, 3, followed)
    assert len(replica(lake, followed)) == 10


@pytest.mark.parametrize("how", ["made again", "unpublished"])
def test_changes_from_before_the_row_are_no_rows(how: str, server: sa.Engine, tmp_path: Path) -> None:
    """Their table was made again, or was not published for a while, before its row was written."""
    table = "CREATE TABLE s.late (id int PRIMARY KEY, v text)"
    prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", table)
    lake, late = Lake(tmp_path), replace(SPEC, table="s.late")
    again(lake, server, 0)
    execute(server, "INSERT INTO s.late VALUES (1, 'old'), (2, 'old')")
    again(lake, server, 1)
    execute(server, "INSERT INTO s.late VALUES (3, 'in no file yet')")
    if how == "made again":
        execute(server, "DROP TABLE s.late", table)
    else:
        execute(server, "ALTER PUBLICATION gddl DROP TABLES IN SCHEMA s")
        execute(server, "DELETE FROM s.late")
        execute(server, "ALTER PUBLICATION gddl ADD TABLES IN SCHEMA s")
    execute(server, "INSERT INTO s.late VALUES (5, 'new')")
    first = again(lake, server, 2, late)
    assert (first.quarantined, first.in_quarantine or 0) == (0, 0)
    assert first.redelivered >= 3
    execute(server, "INSERT INTO s.late VALUES (6, 'after')", "UPDATE s.late SET v = 'changed' WHERE id = 5")
    again(lake, server, 3, late)
    assert replica(lake, late) == rows_of(server, "s.late")
    again(lake, server, 4, late, JobOptions(action=Rebuild()))
    assert replica(lake, late) == rows_of(server, "s.late")
    again(lake, server, 5, late, VERIFY)


def test_older_copy_of_the_lake_is_loaded_again(server: sa.Engine, tmp_path: Path) -> None:
    """docs/recipes/disaster-recovery.md: the slot has advanced, and landed events are those that the load has read."""
    prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "INSERT INTO s.t VALUES (1, 'a'), (2, 'b')")
    lake = Lake(tmp_path)
    again(lake, server, 0)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    execute(server, "INSERT INTO s.t VALUES (3, 'c')", "DELETE FROM s.t WHERE id = 1")
    again(lake, server, 1)
    shutil.rmtree(tmp_path / "lake")
    shutil.copytree(tmp_path / "copy", tmp_path / "lake")
    code, message = refused(lake, server, 2)
    assert (code, "gddl load --again" in message) == ("SOURCE_LOG_RESTARTED", True)
    again(lake, server, 3, options=LOAD_AGAIN)
    found = again(lake, server, 4)
    assert (found.quarantined, replica(lake)) == (0, rows_of(server))
    execute(server, "UPDATE s.t SET v = 'later' WHERE id = 3")
    assert again(lake, server, 5).quarantined == 0
    assert replica(lake) == rows_of(server)
