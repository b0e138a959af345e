"""A table without a key: a row is there once, whatever of it is in the load, in the log, or in both."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_gddl.contract.actions import LoadFromSource, Rebuild, Reload
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from spark_jobs.plan.loaded_transactions import LoadedTransactions
from spark_jobs.rooms.actions import source_rows
from tests.capture.captured import LOAD_AGAIN, SPEC, again, end, prepared, replica, result_of, rows_of
from tests.harness.lake import Lake
from tests.one_task.postgres import execute

pytestmark = pytest.mark.deep

LINES = replace(SPEC, table="s.lines", keys=(), truncate="apply", sweep_limit=TableSpec.sweep_limit)
WITH_PRIMARY_KEY = replace(LINES, table="s.numbered")
UNLOADED = replace(LINES, initial_load=None)
LOAD = JobOptions(action=LoadFromSource())
Changes = Callable[[], None]
FROM_FILES = JobOptions(action=Reload(confirmed=True))
REBUILD = JobOptions(action=Rebuild())


@pytest.fixture
def source(server: sa.Engine) -> Iterator[sa.Engine]:
    prepared(server, "CREATE TABLE s.t (id int PRIMARY KEY, v text)", "CREATE TABLE s.lines (v text)")
    execute(server, "CREATE TABLE s.numbered (id serial PRIMARY KEY, v text)")
    for table in ("lines", "numbered"):
        execute(server, f"ALTER TABLE s.{table} REPLICA IDENTITY FULL")
        execute(server, f"INSERT INTO s.{table} (v) SELECT 'before the log ' || i FROM generate_series(1, 20) i")
    yield server
    end(server)


@dataclass
class Writing:
    """Transactions of several kinds around the snapshot of a load."""

    engine: sa.Engine
    table: str
    open: list[sa.Connection] = field(default_factory=list)

    def insert(self, text: str, count: int = 2) -> None:
        """Equal rows of one place, and one that is rolled back."""
        execute(self.engine, f"INSERT INTO {self.table} (v) SELECT '{text}' FROM generate_series(1, {count})")
        with self.engine.connect() as connection:
            connection.execute(sa.text(f"INSERT INTO {self.table} (v) VALUES ('rolled back')"))
            connection.rollback()

    def begin(self, text: str) -> None:
        """A transaction that stays open, with rows in it and in a savepoint of it."""
        connection = self.engine.connect()
        connection.execute(sa.text(f"INSERT INTO {self.table} (v) VALUES ('{text}'), ('{text}')"))
        with connection.begin_nested():
            connection.execute(sa.text(f"INSERT INTO {self.table} (v) VALUES ('{text}, in a savepoint')"))
        self.open.append(connection)

    def commit(self) -> None:
        """The transaction that is open for longest."""
        connection = self.open.pop(0)
        connection.execute(sa.text(f"INSERT INTO {self.table} (v) VALUES ('at its end')"))
        connection.commit()
        connection.close()


@contextmanager
def at_the_snapshot(monkeypatch: pytest.MonkeyPatch, then: Changes) -> Iterator[None]:
    """Loads call this between their snapshot and their first row; before that they ask once as the source is opened."""
    seen, calls = source_rows.transactions_seen, itertools.count()

    def called(connection: sa.Connection) -> LoadedTransactions:
        found = seen(connection)
        if next(calls) == 1:
            then()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(source_rows, "transactions_seen", called)
        yield


def texts(rows: list[dict[str, object]]) -> Counter[object]:
    return Counter(row["v"] for row in rows)


@pytest.mark.parametrize(
    ("how", "spec"), [("first", LINES), ("first", WITH_PRIMARY_KEY), ("again", LINES), ("after the log", LINES)]
)
def test_rows_around_a_load_are_there_once(
    how: str, spec: TableSpec, source: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, writing = Lake(tmp_path), Writing(source, spec.table)
    again(lake, source, "opens the log")
    if how == "again":
        again(lake, source, "loaded before", spec)
    writing.insert("between")
    execute(source, f"UPDATE {spec.table} SET v = 'updated' WHERE v = 'before the log 1'")
    execute(source, f"DELETE FROM {spec.table} WHERE v = 'before the log 2'")
    writing.insert("in files")
    if how == "after the log":
        again(lake, source, "log alone", replace(spec, initial_load=None))
    again(lake, source, "lands changes")
    writing.insert("in no file yet")
    writing.begin("committed during the load")
    writing.begin("committed after the load")

    def during() -> None:
        writing.commit()
        writing.insert("during the load")

    with at_the_snapshot(monkeypatch, during):
        again(lake, source, "load", spec, None if how == "first" else LOAD_AGAIN)
    writing.commit()
    writing.insert("after the load")
    found = again(lake, source, "last", spec)
    assert texts(replica(lake, spec)) == texts(rows_of(source, spec.table))
    of_load = 0 if how == "first" else 25  # a run by itself takes its rows at once
    assert (found.quarantined, found.changes_written) == (0, of_load + 12), "what the load lacks, and no more"
    for number, options in enumerate((FROM_FILES, REBUILD)):
        again(lake, source, f"repair {number}", spec, options)
        assert texts(replica(lake, spec)) == texts(rows_of(source, spec.table)), options


@pytest.mark.parametrize("how", ["first", "again"])
def test_load_that_was_broken_off_reads_the_rows_once(
    how: str, source: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No change is taken before it is known which ones the load has."""
    lake, writing = Lake(tmp_path), Writing(source, LINES.table)
    again(lake, source, "opens the log")
    if how == "again":
        again(lake, source, "loaded before", UNLOADED, LOAD)
    writing.insert("before the load")
    writing.begin("committed between the loads")

    def broken() -> None:
        raise RetriableError("SOURCE_UNREACHABLE", "the network is gone")

    with at_the_snapshot(monkeypatch, broken):
        found = result_of(lake, source, "broken off", UNLOADED, LOAD if how == "first" else LOAD_AGAIN)
        assert found.error is not None
        assert found.error.code == "SOURCE_UNREACHABLE"
    writing.insert("between the loads")
    writing.commit()
    error = result_of(lake, source, "changes", UNLOADED).error
    assert error is not None
    assert (error.code, f"gddl load --table {LINES.table}" in error.message) == ("TABLE_BUSY", True)
    again(lake, source, "resumed", UNLOADED, LOAD)
    writing.insert("after the load")
    again(lake, source, "last", UNLOADED)
    assert texts(replica(lake, LINES)) == texts(rows_of(source, LINES.table))


def test_truncate_before_a_load_is_in_the_load(source: sa.Engine, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(LINES, truncate="hold")
    again(lake, source, "opens the log")
    execute(source, "INSERT INTO s.lines VALUES ('truncated')", "TRUNCATE s.lines", "INSERT INTO s.lines VALUES ('x')")
    again(lake, source, "load", spec)
    assert texts(replica(lake, spec)) == {"x": 1}
    execute(source, "INSERT INTO s.lines VALUES ('y')", "TRUNCATE s.lines", "INSERT INTO s.lines VALUES ('z')")
    again(lake, source, "last", LINES)
    assert texts(replica(lake, LINES)) == {"z": 1}


def test_change_that_the_load_has_is_no_bad_row(source: sa.Engine, tmp_path: Path) -> None:
    """Its values are those of the load."""
    lake, spec = Lake(tmp_path), with_expressions(replace(LINES, table="s.prices", where="v <> 'left out'"))
    execute(source, "CREATE TABLE s.prices (v text, n numeric(10,2))", "ALTER TABLE s.prices REPLICA IDENTITY FULL")
    again(lake, source, "opens the log")
    values = "('kept', 1), ('bad', 'NaN'), ('left out', 2)"
    execute(source, f"INSERT INTO s.prices VALUES {values}", "UPDATE s.prices SET n = 3 WHERE v = 'kept'")
    found = again(lake, source, "load", spec)
    assert (found.quarantined, found.redelivered) == (1, 4)
    execute(source, f"INSERT INTO s.prices VALUES {values}", "UPDATE s.prices SET n = 4 WHERE v = 'kept'")
    found = again(lake, source, "last", spec)
    assert (found.quarantined, found.filtered, found.redelivered) == (3, 1, 0)
    assert [(row["v"], str(row["n"])) for row in replica(lake, spec)] == [("kept", "1.00"), ("kept", "3.00")]
