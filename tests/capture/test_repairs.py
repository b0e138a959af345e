"""A log that does not go on where it was read: the run stops, and what its error says mends every table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.spec import InitialLoad
from spark_jobs.rooms.actions import source_rows
from spark_jobs.rooms.sources.capture import reader
from tests.capture.captured import (
    LOAD_AGAIN,
    PUBLISHED,
    SPEC,
    VERIFY,
    again,
    change_some,
    prepared,
    refused,
    replica,
    result_of,
    rows_of,
)
from tests.capture.restorable import Restorable, restorable
from tests.harness.lake import Lake
from tests.one_task.postgres import execute

DROP = "SELECT pg_drop_replication_slot('gddl')"
OTHER = replace(SPEC, table="s.other")
Loss = Callable[[Restorable], None]


@pytest.fixture(scope="module")
def server() -> Iterator[Restorable]:
    with restorable() as found:
        yield found


@pytest.fixture
def source(server: Restorable) -> Restorable:
    prepared(
        server.engine, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "CREATE TABLE s.other (id int PRIMARY KEY)"
    )
    execute(server.engine, "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 200) i")
    return server


def dropped(source: Restorable) -> None:
    execute(source.engine, DROP)


def made_again(source: Restorable) -> None:
    execute(source.engine, DROP)
    execute(source.engine, "DELETE FROM s.t WHERE id > 190")
    execute(source.engine, "SELECT pg_create_logical_replication_slot('gddl', 'pgoutput')")


def advanced(source: Restorable) -> None:
    """By another program that reads the slot."""
    execute(source.engine, "DELETE FROM s.t WHERE id > 190")
    execute(source.engine, "SELECT pg_replication_slot_advance('gddl', pg_current_wal_lsn())")


def restored(source: Restorable) -> None:
    source.restore()


def restored_and_written(source: Restorable) -> None:
    """So that the log ends behind where it was read."""
    source.restore()
    execute(
        source.engine,
        "CREATE TABLE s.filler AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)",
        "DROP TABLE s.filler",
    )


def failed_over(source: Restorable) -> None:
    source.restore(promoted=True)


def published_again(source: Restorable) -> None:
    """What is written between the two can't be decoded: the server looks for the publication in its catalog of then."""
    execute(source.engine, "DROP PUBLICATION gddl")
    execute(source.engine, "DELETE FROM s.t WHERE id > 190")
    execute(source.engine, PUBLISHED)


def published_again_at_once(source: Restorable) -> None:
    execute(source.engine, "DELETE FROM s.t WHERE id > 190")
    execute(source.engine, "DROP PUBLICATION gddl", PUBLISHED)


def published_without_tables(source: Restorable) -> None:
    execute(source.engine, "DROP PUBLICATION gddl", "CREATE PUBLICATION gddl WITH (publish_via_partition_root = true)")
    execute(source.engine, "DELETE FROM s.t WHERE id > 190")
    execute(source.engine, "ALTER PUBLICATION gddl ADD TABLES IN SCHEMA s")


def unpublished_for_a_while(source: Restorable) -> None:
    execute(source.engine, "ALTER PUBLICATION gddl DROP TABLES IN SCHEMA s")
    execute(source.engine, "DELETE FROM s.t WHERE id > 190")
    execute(source.engine, "ALTER PUBLICATION gddl ADD TABLES IN SCHEMA s")


def published_in_part_for_a_while(source: Restorable) -> None:
    execute(source.engine, "ALTER PUBLICATION gddl SET (publish = 'insert')")
    execute(source.engine, "DELETE FROM s.t WHERE id > 190")
    execute(source.engine, "ALTER PUBLICATION gddl SET (publish = 'insert, update, delete, truncate')")


DEEP = pytest.mark.deep


@pytest.mark.deep
@pytest.mark.parametrize(
    ("lose", "code"),
    [
        (dropped, "SOURCE_LOG_LOST"),
        pytest.param(made_again, "SOURCE_LOG_RESTARTED", marks=DEEP),
        pytest.param(advanced, "SOURCE_LOG_RESTARTED", marks=DEEP),
        (restored, "SOURCE_LOG_RESTARTED"),
        pytest.param(restored_and_written, "SOURCE_LOG_RESTARTED", marks=DEEP),
        (failed_over, "SOURCE_LOG_RESTARTED"),
        (published_again, "SOURCE_LOG_RESTARTED"),
        pytest.param(published_again_at_once, "SOURCE_LOG_RESTARTED", marks=DEEP),
        pytest.param(published_without_tables, "SOURCE_LOG_RESTARTED", marks=DEEP),
        (unpublished_for_a_while, "SOURCE_LOG_RESTARTED"),
        pytest.param(published_in_part_for_a_while, "SOURCE_LOG_RESTARTED", marks=DEEP),
    ],
)
def test_lost_log_stops_each_table_until_it_is_loaded_again(
    lose: Loss, code: str, source: Restorable, tmp_path: Path
) -> None:
    lake, engine, chance = Lake(tmp_path), source.engine, random.Random(code)  # noqa: S311 - repeatable
    again(lake, engine, "first")
    if lose is restored:
        again(lake, engine, "other", OTHER)
    if lose in (restored, restored_and_written, failed_over):
        source.copy()
    change_some(engine, chance)
    execute(engine, "INSERT INTO s.t VALUES (-1, 'lost by a restore')", "INSERT INTO s.other VALUES (1)")
    again(lake, engine, "second")
    lose(source)
    execute(engine, "INSERT INTO s.t VALUES (-2, 'after')", "DELETE FROM s.t WHERE id < 20")
    found, message = refused(lake, engine, "lost")
    assert (found, "gddl load --again" in message) == (code, True), message
    assert result_of(lake, engine, "repair", options=LOAD_AGAIN).error is None
    execute(engine, "DELETE FROM s.t WHERE id BETWEEN 20 AND 30", "UPDATE s.t SET v = 'later' WHERE id = 31")
    again(lake, engine, "next")
    assert replica(lake) == rows_of(engine)
    if lose is restored:
        _require_load_of_each_table(lake, engine)


def _require_load_of_each_table(lake: Lake, engine: sa.Engine) -> None:
    """Of those that follow the log, once it was opened anew for one of them."""
    execute(engine, "INSERT INTO s.t VALUES (-3, 'last')", "INSERT INTO s.other VALUES (2)")
    found, message = refused(lake, engine, "other lost", OTHER)
    assert (found, "gddl load --again --table s.other" in message) == ("SOURCE_LOG_RESTARTED", True), message
    again(lake, engine, "other repaired", OTHER, LOAD_AGAIN)
    again(lake, engine, "other last", OTHER)
    assert replica(lake, OTHER) == rows_of(engine, "s.other")
    again(lake, engine, "last")
    assert again(lake, engine, "verify", options=VERIFY).details["source"]["different"] == 0


@pytest.mark.deep
def test_crash_of_the_server_is_no_loss(source: Restorable, tmp_path: Path) -> None:
    """Its slots go back to their last checkpoint then."""
    lake, engine = Lake(tmp_path), source.engine
    again(lake, engine, "first")
    for number in range(3):
        execute(engine, f"INSERT INTO s.t VALUES ({1000 + number}, 'x')")
        again(lake, engine, number)
    crash(source)
    execute(engine, "INSERT INTO s.t VALUES (2000, 'after the crash')")
    again(lake, engine, "after")
    assert replica(lake) == rows_of(engine)


def crash(source: Restorable) -> None:
    """As a loss of power does."""
    info = source.server._postmaster_info
    children = info.process.children(recursive=True)
    for process in (info.process, *children):
        process.kill()
    for process in (info.process, *children):
        process.wait(20)
    (source.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
    source.server.start()


def test_what_is_committed_while_a_table_is_loaded_again_is_kept(
    source: Restorable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, engine, opened = Lake(tmp_path), source.engine, reader.open_log
    again(lake, engine, "first")
    execute(engine, DROP)

    def written(run: object) -> str:
        found = opened(run)
        execute(engine, "INSERT INTO s.t VALUES (1000, 'between')", "DELETE FROM s.t WHERE id = 5")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(reader, "READER", replace(reader.READER, open_log=written))
        again(lake, engine, "repair", options=LOAD_AGAIN)
    execute(engine, "UPDATE s.t SET v = 'before the next run' WHERE id = 6", "DELETE FROM s.t WHERE id = 7")
    again(lake, engine, "next")
    assert replica(lake) == rows_of(engine)


@pytest.mark.deep
def test_load_that_was_broken_off_begins_anew_where_the_log_was_lost(
    source: Restorable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, engine, rows = Lake(tmp_path), source.engine, source_rows.SourceRows.rows
    spec = replace(SPEC, initial_load=InitialLoad(chunk_rows=50, parallel=1))

    def broken(self: source_rows.SourceRows, after: str | None, *others: Any, **named: Any) -> object:
        if after is not None and "100" in after:
            raise RetriableError("SOURCE_UNREACHABLE", "the network is gone")
        return rows(self, after, *others, **named)

    with monkeypatch.context() as patched:
        patched.setattr(source_rows.SourceRows, "rows", broken)
        assert refused(lake, engine, "broken off", spec)[0] == "SOURCE_UNREACHABLE"
    execute(engine, DROP)
    execute(engine, "DELETE FROM s.t WHERE id < 10")
    assert refused(lake, engine, "lost", spec)[0] == "SOURCE_LOG_LOST"
    again(lake, engine, "repair", spec, LOAD_AGAIN)
    again(lake, engine, "last", spec)
    assert replica(lake) == rows_of(engine)


@pytest.mark.deep
def test_table_that_was_made_again_is_named(source: Restorable, tmp_path: Path) -> None:
    """Its drop is in no log, so that rows of the former one would stay."""
    lake, engine = Lake(tmp_path), source.engine
    again(lake, engine, "first")
    execute(
        engine, "DROP TABLE s.t", "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "INSERT INTO s.t VALUES (1, 'new')"
    )
    code, message = refused(lake, engine, "made again")
    assert (code, "was made again" in message) == ("SOURCE_LOG_RESTARTED", True)
    again(lake, engine, "repair", options=LOAD_AGAIN)
    again(lake, engine, "last")
    assert replica(lake) == rows_of(engine) == [{"id": 1, "v": "new"}]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("statements", "code"),
    [
        (("DROP PUBLICATION gddl",), "SOURCE_LOG_REFUSED"),
        (("DROP PUBLICATION gddl", "CREATE PUBLICATION gddl"), "NOT_PUBLISHED"),
        (("ALTER PUBLICATION gddl DROP TABLES IN SCHEMA s",), "NOT_PUBLISHED"),
    ],
)
def test_publication_without_the_table_is_named_while_it_lasts(
    statements: tuple[str, ...], code: str, source: Restorable, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    again(lake, source.engine, "first")
    execute(source.engine, "INSERT INTO s.t VALUES (1000, 'before')", *statements)
    for number in range(2):
        assert refused(lake, source.engine, number)[0] == code
    assert {"id": 1000, "v": "before"} not in replica(lake)


@pytest.mark.deep
def test_slot_of_another_program_is_left_alone(source: Restorable, tmp_path: Path) -> None:
    execute(source.engine, "SELECT pg_create_logical_replication_slot('gddl', 'pgoutput')")
    execute(source.engine, "INSERT INTO s.t VALUES (777, 'x')")
    code, message = refused(Lake(tmp_path), source.engine, 0)
    assert (code, "another program may read it" in message) == ("SOURCE_LOG_REFUSED", True)
    with source.engine.connect() as connection:
        peeked = (
            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('gddl', NULL, NULL, 'proto_version', '1', {})"
        )
        assert connection.execute(sa.text(peeked.format("'publication_names', 'gddl'"))).scalar() == 4
