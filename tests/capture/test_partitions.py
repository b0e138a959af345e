"""Partitions that the source drops, and what becomes of their rows: `partition_dropped`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import ErrorsReplay, TruncateRelease, Verify
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.postgresql_log import published_table, table_findings
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.sources.capture import capture_problems
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import Expectation
from airflow_gddl.metadata.expression_text import with_expressions
from spark_jobs.plan.source_limits import SourceLimits
from spark_jobs.sources.capture import followed, partition_deletes
from spark_jobs.sources.capture.catalog import Bounds
from spark_jobs.sources.capture.position import Mark
from spark_jobs.sources.capture.postgresql import PostgreSQL
from tests.capture.captured import (
    CAPTURE,
    LOAD_AGAIN,
    SPEC,
    Writer,
    again,
    end,
    prepared,
    refused,
    replica,
    result_of,
    rows_of,
)
from tests.databases.test_initial_load import environ
from tests.harness.lake import Lake
from tests.one_task.postgres import execute

pytestmark = pytest.mark.usefixtures("without_slot")

PARTS = (
    "CREATE TABLE s.t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE s.p PARTITION OF s.t FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE s.q PARTITION OF s.t FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE s.r PARTITION OF s.t FOR VALUES FROM (200) TO (300) PARTITION BY HASH (id)",
    "CREATE TABLE s.r0 PARTITION OF s.r FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE s.r1 PARTITION OF s.r FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "INSERT INTO s.t VALUES (1, 'a'), (101, 'b'), (201, 'c'), (202, 'd'), (203, 'e'), (204, 'f')",
)


def keeping(policy: str) -> TableSpec:
    return replace(SPEC, options={**SPEC.options, "capture": {**CAPTURE, "partition_dropped": policy}})


@pytest.mark.parametrize(
    ("ddl", "parts"),
    [
        (("DROP TABLE s.q",), ["s.q"]),
        (("ALTER TABLE s.t DETACH PARTITION s.q", "UPDATE s.q SET v = 'not ours'"), ["s.q"]),
        (("DROP TABLE s.r",), ["s.r0", "s.r1"]),
        (("DROP TABLE s.q", "CREATE TABLE s.q PARTITION OF s.t FOR VALUES FROM (100) TO (200)"), ["s.q"]),
    ],
    ids=lambda value: "; ".join(value)[:40],
)
def test_rows_of_dropped_partitions_stay_and_the_run_says_so(
    ddl: tuple[str, ...], parts: list[str], server: sa.Engine, tmp_path: Path
) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("keep")
    again(lake, server, 0, spec)
    execute(server, "UPDATE s.t SET v = 'new' WHERE id IN (101, 202)", "INSERT INTO s.t VALUES (102, 'g'), (205, 'h')")
    expected = {row["id"]: row["v"] for row in rows_of(server)}
    for statement in (*ddl, "INSERT INTO s.t VALUES (2, 'i')", "DELETE FROM s.t WHERE id = 1"):
        execute(server, statement)
    found = [(one.code, one.count, sorted(one.sample)) for one in again(lake, server, 1, spec).warnings]
    assert ("PARTITIONS_KEPT", len(parts), parts) in found
    del expected[1]
    assert {row["id"]: row["v"] for row in replica(lake, spec)} == expected | {2: "i"}
    execute(server, "UPDATE s.t SET v = 'last' WHERE id = 2")
    assert "PARTITIONS_KEPT" in {one.code for one in again(lake, server, 2, spec).warnings}, "until it is loaded again"
    compared = result_of(lake, server, "verify", spec, JobOptions(action=Verify(settle_seconds=0))).details["source"]
    assert compared["different"] == len(expected) + 1 - len(rows_of(server)) > 0
    assert {key["state"] for key in compared["keys"]} == {"extra"}
    again(lake, server, 3, spec, LOAD_AGAIN)
    assert "PARTITIONS_KEPT" not in {one.code for one in again(lake, server, 4, spec).warnings}
    assert replica(lake, spec) == rows_of(server)


@pytest.mark.parametrize(
    ("ddl", "what"),
    [
        (("DROP TABLE s.q", "TRUNCATE s.p"), "truncated or rewritten by themselves: s.p"),
        (
            ("ALTER TABLE s.t DETACH PARTITION s.q", "INSERT INTO s.q VALUES (150, 'unseen')",
             "ALTER TABLE s.t ATTACH PARTITION s.q FOR VALUES FROM (100) TO (200)"),
            "detached and attached again, with their rows: s.q",
        ),
    ],
    ids=["truncate", "attach"],
)  # fmt: skip
def test_all_else_stops_the_table(ddl: tuple[str, ...], what: str, server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("keep")
    again(lake, server, 0, spec)
    for statement in ddl:
        execute(server, statement)
    code, message = refused(lake, server, 1, spec)
    assert (code, what in message) == ("SOURCE_TABLE_ALTERED", True), message
    again(lake, server, 2, spec, LOAD_AGAIN)
    again(lake, server, 3, spec)
    assert replica(lake, spec) == rows_of(server)


def test_a_policy_that_is_none_is_refused() -> None:
    problems = [(one.code, one.path[-1], one.value) for one in capture_problems(keeping("forget"))]
    assert problems == [("FIELD_VALUE", "partition_dropped", "forget")]
    assert not list(capture_problems(keeping("report")))


LISTED = (
    (
        'CREATE TABLE s.t (id int, kind text COLLATE "C", at date, v text, PRIMARY KEY (id, kind, at)) '
        "PARTITION BY LIST (kind)"
    ),
    "CREATE TABLE s.red PARTITION OF s.t FOR VALUES IN ('red', 'it''s: %s \\:x')",
    "CREATE TABLE s.other PARTITION OF s.t DEFAULT",
    "CREATE TABLE s.old PARTITION OF s.t FOR VALUES IN ('old') PARTITION BY RANGE (at)",
    "CREATE TABLE s.old_a PARTITION OF s.old FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    "CREATE TABLE s.old_b PARTITION OF s.old DEFAULT",
    (
        "INSERT INTO s.t SELECT i, k, '2026-01-01', 'v' FROM generate_series(1, 3) i, "
        "unnest(ARRAY['red', 'it''s: %s \\:x', 'blue', 'old']) k"
    ),
    "INSERT INTO s.t VALUES (9, 'old', '2026-03-01', 'w')",
)
DEEP = pytest.mark.deep
BY_KIND = replace(keeping("delete"), keys=("id", "kind", "at"))
DROP_Q = ("DROP TABLE s.q",)
Q_AGAIN = "CREATE TABLE s.q2 PARTITION OF s.t FOR VALUES FROM (100) TO (200)"


def deleted(found: JobResult) -> dict[str, int]:
    """Rows by partition, as the run says."""
    told = [one for one in found.warnings if one.code == "PARTITIONS_DELETED"]
    rows = {name: int(count) for name, count in (text.rsplit(": ", 1) for one in told for text in one.sample)}
    assert sum(one.count for one in told) == sum(rows.values())
    return rows


def require_equal(lake: Lake, server: sa.Engine, spec: TableSpec) -> None:
    compared = result_of(lake, server, "verify", spec, JobOptions(action=Verify(settle_seconds=0))).details["source"]
    assert (compared["different"], compared["unsettled"]) == (0, 0), compared
    assert {tuple(row.values()) for row in replica(lake, spec)} == {tuple(row.values()) for row in rows_of(server)}


@pytest.mark.parametrize(
    ("made", "ddl", "rows"),
    [
        pytest.param(PARTS, DROP_Q, {"s.q": 2}, marks=DEEP),
        (PARTS, ("ALTER TABLE s.t DETACH PARTITION s.q", "UPDATE s.q SET v = 'not ours'"), {"s.q": 2}),
        pytest.param(PARTS, ("ALTER TABLE s.t DETACH PARTITION s.q CONCURRENTLY",), {"s.q": 2}, marks=DEEP),
        (PARTS, ("DROP TABLE s.r",), {"s.r": 6}),
        pytest.param(PARTS, ("DROP TABLE s.r0",), {"s.r0": 5}, marks=DEEP),
        pytest.param(PARTS, ("DROP TABLE s.r0", "DROP TABLE s.r1"), {"s.r": 6}, marks=DEEP),
        (PARTS, (*DROP_Q, "DROP TABLE s.p"), {"s.p": 2, "s.q": 2}),
        (PARTS, (*DROP_Q, Q_AGAIN, "INSERT INTO s.t VALUES (102, 'again'), (103, 'new')"), {"s.q": 1}),
        (PARTS, (*DROP_Q, Q_AGAIN, "INSERT INTO s.t VALUES (102, 'again')", "DELETE FROM s.t WHERE id = 102"),
         {"s.q": 1}),
        pytest.param(PARTS, ("DELETE FROM s.t WHERE id = 101", *DROP_Q), {"s.q": 1}, marks=DEEP),
        (PARTS, ("UPDATE s.t SET id = 50 WHERE id = 101", *DROP_Q), {"s.q": 1}),
        pytest.param(LISTED, ("DROP TABLE s.red",), {"s.red": 6}, marks=DEEP),
        (LISTED, ("DROP TABLE s.red", "INSERT INTO s.t VALUES (1, 'red', '2026-01-01', 'in the default')"),
         {"s.red": 5}),
        pytest.param(LISTED, ("DROP TABLE s.other",), {"s.other": 3}, marks=DEEP),
        pytest.param(LISTED, ("DROP TABLE s.old_b",), {"s.old_b": 1}, marks=DEEP),
        (LISTED, ("DROP TABLE s.old",), {"s.old": 4}),
        (LISTED, ("DROP TABLE s.red", "INSERT INTO s.t VALUES (7, 'red', '2026-01-01', 'gone, too')",
                  "DROP TABLE s.other"), {"s.red": 7, "s.other": 3}),
    ],
    ids=lambda value: "; ".join(value)[:60] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_rows_of_dropped_partitions_are_deleted(
    made: tuple[str, ...], ddl: tuple[str, ...], rows: dict[str, int], server: sa.Engine, tmp_path: Path
) -> None:
    """Whatever happened to their keys before and after, in the same run."""
    prepared(server, *made)
    lake, spec = Lake(tmp_path), keeping("delete") if made is PARTS else BY_KIND
    again(lake, server, 0, spec)
    if made is PARTS:
        changes = "INSERT INTO s.t VALUES (2, 'b'), (102, 'g'), (205, 'h'), (211, 'i')"
        execute(server, "UPDATE s.t SET v = 'new' WHERE id IN (101, 202)", changes)
    for statement in ddl:
        with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement)
    assert deleted(again(lake, server, 1, spec)) == rows
    require_equal(lake, server, spec)
    execute(server, "UPDATE s.t SET v = 'last'")
    assert not {one.code for one in again(lake, server, 2, spec).warnings}
    require_equal(lake, server, spec)


def waits(found: JobResult) -> list[str]:
    """Why the rows of dropped partitions are not deleted yet."""
    assert not deleted(found)
    return [one.message.rpartition("not deleted yet: ")[2] for one in found.warnings if one.code == "PARTITIONS_WAIT"]


def changed(server: sa.Engine, *statements: str) -> None:
    execute(server, "UPDATE s.t SET v = 'new' WHERE id IN (1, 101)", "INSERT INTO s.t VALUES (102, 'g')", *statements)


def test_history_and_soft_deletes_take_them_as_any_deletes(server: sa.Engine, tmp_path: Path) -> None:
    """The newest change of all is of a dropped row: its version ends after it began."""
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), replace(keeping("delete"), history=True, delete="soft")
    again(lake, server, 0, spec)
    changed(server, *DROP_Q)
    assert deleted(again(lake, server, 1, spec)) == {"s.q": 2}
    gone = {row["id"]: row["_gddl"]["deleted"] for row in lake.rows(lake.layout(spec).replica)}
    assert {key for key, is_gone in gone.items() if is_gone} == {101, 102}
    versions = [row for row in lake.rows(lake.layout(spec).history) if row["id"] in (101, 102)]
    assert sorted((row["id"], row["v"], row["__end_at"] is not None) for row in versions) == [
        (101, "b", True), (101, "new", True), (102, "g", True),
    ]  # fmt: skip
    assert all((row["__start_at"] or "") < row["__end_at"] for row in versions)
    execute(server, Q_AGAIN, "INSERT INTO s.t VALUES (101, 'later')")
    assert not deleted(again(lake, server, 2, spec))
    assert [row["v"] for row in lake.rows(lake.layout(spec).replica) if row["id"] == 101] == ["later"]


def test_partition_that_is_dropped_while_the_log_is_read(
    server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last changes are behind the end of what was read: they come first, then the deletes."""
    prepared(server, *PARTS)
    lake, spec, mark = Lake(tmp_path), keeping("delete"), PostgreSQL.mark
    again(lake, server, 0, spec)

    def dropping(self: PostgreSQL, connection: sa.Connection) -> Mark:
        found = mark(self, connection)
        changed(server, *DROP_Q)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(PostgreSQL, "mark", dropping)
        assert not again(lake, server, 1, spec).warnings
    assert {row["id"] for row in replica(lake, spec)} > {1, 101}
    assert deleted(again(lake, server, 2, spec)) == {"s.q": 2}
    require_equal(lake, server, spec)


def test_partition_that_is_dropped_between_two_tables_of_a_job(server: sa.Engine, tmp_path: Path) -> None:
    """The log was read for the first one: it is read again for the second one."""
    prepared(server, *PARTS, "CREATE TABLE s.first (id int PRIMARY KEY)")
    lake, spec, first = Lake(tmp_path), keeping("delete"), replace(keeping("delete"), table="s.first")
    for one in (first, spec):
        again(lake, server, one.table, one)
    changed(server)
    again(lake, server, "both", first)
    execute(server, "UPDATE s.t SET v = 'last' WHERE id = 101", *DROP_Q)
    assert deleted(again(lake, server, "both", spec)) == {"s.q": 2}
    require_equal(lake, server, spec)


def test_open_transactions_that_write_to_the_table_are_waited_for(server: sa.Engine, tmp_path: Path) -> None:
    """One may be in the log, and not be seen by queries yet."""
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path, limits=SourceLimits(writers_seconds=0.5)), keeping("delete")
    again(lake, server, 0, spec)
    changed(server, *DROP_Q)
    with server.begin() as open_one:
        open_one.exec_driver_sql("DELETE FROM s.p WHERE id = 1")
        execute(server, "CREATE TABLE s.while PARTITION OF s.t FOR VALUES FROM (900) TO (901)")
        (why,) = waits(again(lake, server, 1, spec))
        assert "1 transactions that write to the table" in why
        execute(server, "INSERT INTO s.t VALUES (900, 'made and dropped meanwhile')", "DROP TABLE s.while")
        assert waits(again(lake, server, 2, spec))
    assert {row["id"] for row in replica(lake, spec)} > {101, 102, 900}
    assert deleted(again(lake, server, 3, spec)) == {"s.q": 2, "s.while": 1}
    require_equal(lake, server, spec)


def test_detaching_that_has_not_ended_is_waited_for(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, spec)
    with server.begin() as reader, server.connect().execution_options(isolation_level="AUTOCOMMIT") as other:
        reader.exec_driver_sql("SELECT * FROM s.t")
        other.exec_driver_sql("SET statement_timeout = '1s'")
        with pytest.raises(sa.exc.OperationalError, match="statement timeout"):
            other.exec_driver_sql("ALTER TABLE s.t DETACH PARTITION s.q CONCURRENTLY")
    execute(server, "UPDATE s.t SET v = 'new' WHERE id = 1")
    assert waits(again(lake, server, 1, spec)) == ["DETACH CONCURRENTLY of s.q has not ended"]
    execute(server, "ALTER TABLE s.t DETACH PARTITION s.q FINALIZE")
    assert deleted(again(lake, server, 2, spec)) == {"s.q": 1}
    require_equal(lake, server, spec)


def test_files_that_were_not_loaded_are_waited_for(server: sa.Engine, tmp_path: Path) -> None:
    """Behind a truncate that a user has not released."""
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), replace(keeping("delete"), truncate="hold")
    again(lake, server, 0, spec)
    execute(server, "TRUNCATE s.t", "INSERT INTO s.t VALUES (1, 'a'), (101, 'b')", *DROP_Q)
    assert waits(again(lake, server, 1, spec)) == ["files of the table were not loaded"]
    again(lake, server, 2, spec, JobOptions(action=TruncateRelease()))
    assert deleted(again(lake, server, 3, spec)) == {"s.q": 1}
    require_equal(lake, server, spec)


@pytest.mark.parametrize("step", ["write_followed", "bring_up_to_date"])
def test_run_that_fails_after_the_deletes_are_written(
    step: str, server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, spec)
    changed(server, *DROP_Q)

    def failing(*_: object) -> None:
        raise RetriableError("SOURCE_UNREACHABLE", "the network is gone")

    with monkeypatch.context() as patched:
        patched.setattr(partition_deletes, step, failing)
        assert refused(lake, server, 1, spec)[0] == "SOURCE_UNREACHABLE"
    execute(server, Q_AGAIN, "INSERT INTO s.t VALUES (101, 'came after')")
    again(lake, server, 2, spec)
    require_equal(lake, server, spec)
    assert not {one.code for one in again(lake, server, 3, spec).warnings}


def test_log_that_was_opened_anew(server: sa.Engine, tmp_path: Path) -> None:
    """Deletes come behind what the former log had, and before what the new one has."""
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, spec)
    changed(server)
    again(lake, server, 1, spec)
    end(server)
    again(lake, server, 2, spec, LOAD_AGAIN)
    again(lake, server, 3, spec)
    execute(server, *DROP_Q)
    assert deleted(again(lake, server, 4, spec)) == {"s.q": 2}
    execute(server, Q_AGAIN, "INSERT INTO s.t VALUES (101, 'came after')")
    again(lake, server, 5, spec)
    require_equal(lake, server, spec)


def test_row_in_quarantine_of_a_dropped_partition_comes_back_by_a_replay(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("delete")
    strict = with_expressions(replace(spec, expect={"known": Expectation(rule="v <> 'odd'")}))
    again(lake, server, 0, strict)
    execute(server, "INSERT INTO s.t VALUES (102, 'odd')")
    assert again(lake, server, 1, strict).in_quarantine == 1
    execute(server, *DROP_Q)
    assert deleted(again(lake, server, 2, strict)) == {"s.q": 1}
    require_equal(lake, server, strict)
    result_of(lake, server, 3, spec, JobOptions(action=ErrorsReplay()))
    settled = JobOptions(action=Verify(settle_seconds=0))
    found = result_of(lake, server, 4, spec, settled).details["source"]["keys"]
    assert [(one["key"], one["state"]) for one in found] == [('{"id": "102"}', "extra")]


KEYED = (
    "CREATE TYPE s.mood AS ENUM ('a b', 'ok')",
    (
        'CREATE TABLE s.t ("At" timestamptz, u uuid, n numeric(10,2), b bytea, c char(5), f float8, d date, '
        "ts timestamp, "
        "e s.mood, o boolean, i interval, w varchar(9), v text, "
        'PRIMARY KEY ("At", u, n, b, c, f, d, ts, e, o, i, w)) PARTITION BY RANGE ("At", e)'
    ),
    (
        "CREATE TABLE s.q PARTITION OF s.t FOR VALUES FROM ('2026-03-01 00:30+02', MINVALUE) "
        "TO ('2026-03-05 00:00Z', MAXVALUE)"
    ),
    "CREATE TABLE s.p PARTITION OF s.t FOR VALUES FROM ('2026-03-05 00:00Z', MAXVALUE) TO (MAXVALUE, MAXVALUE)",
    (
        "INSERT INTO s.t SELECT at, CAST(md5(CAST(n AS text)) AS uuid), n + 0.1, "
        "'\\x00ff', 'a', 0.1 + n, '0099-01-02', "
        "'2026-01-01 00:00:00.000001', 'a b', n % 2 = 0, '1 month 3 days', 'ä '' \\', 'v' "
        "FROM generate_series(1, 4) n, "
        "unnest(ARRAY[CAST('2026-03-01 01:00+02' AS timestamptz), '2026-03-05 00:00Z', '2026-04-06']) at"
    ),
)


def test_keys_of_all_types_and_another_date_style(server: sa.Engine, tmp_path: Path) -> None:
    """And a column that the row renames."""
    prepared(server, *KEYED)
    keys = ("moment", "u", "n", "b", "c", "f", "d", "ts", "e", "o", "i", "w")
    lake, spec = Lake(tmp_path), replace(keeping("delete"), keys=keys, rename={"At": "moment"})
    with dated(server):
        again(lake, server, 0, spec)
        execute(server, *DROP_Q)
        rows = deleted(again(lake, server, 1, spec))
    assert rows == {"s.q": 8}
    execute(server, "UPDATE s.t SET v = 'last'")
    again(lake, server, 2, spec)
    assert [row["v"] for row in replica(lake, spec)] == ["last"] * 4


def test_bounds_of_texts_are_compared_in_the_order_of_their_column(
    server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is not the database's: the server has none that sorts otherwise, so a condition asks for it."""
    prepared(
        server,
        'CREATE TABLE s.t (id text COLLATE "POSIX" PRIMARY KEY, v text) PARTITION BY RANGE (id)',
        "CREATE TABLE s.q PARTITION OF s.t FOR VALUES FROM ('a') TO ('b')",
        "INSERT INTO s.t VALUES ('a', 'v'), ('ab', 'v')",
    )
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, spec)
    execute(server, *DROP_Q)
    condition = """pg_collation_for(id) = '"POSIX"'"""
    bounds = (Bounds(number="1", name="s.q", condition=condition),)
    monkeypatch.setattr(followed, "dropped_bounds", lambda *_: bounds)
    assert deleted(again(lake, server, 1, spec)) == {"s.q": 2}
    require_equal(lake, server, spec)


@contextmanager
def dated(server: sa.Engine) -> Iterator[None]:
    """With another style of dates and time zone of all connections."""
    settings = {"DateStyle": "'German, DMY'", "TimeZone": "'Asia/Tokyo'", "search_path": "s"}
    for name, value in settings.items():
        execute(server, f"ALTER ROLE CURRENT_USER SET {name} = {value}")
    server.dispose()
    yield
    for name in settings:
        execute(server, f"ALTER ROLE CURRENT_USER RESET {name}")
    server.dispose()


def test_policy_that_comes_after_the_drop_stops_the_table(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, keeping("report"))
    execute(server, *DROP_Q)
    code, message = refused(lake, server, 1, spec)
    assert (code, "s.q; which rows is not known: their bounds were not known before" in message) == (
        "SOURCE_TABLE_ALTERED", True,
    ), message  # fmt: skip
    again(lake, server, 2, spec, LOAD_AGAIN)
    again(lake, server, 3, spec)
    execute(server, "DROP TABLE s.p")
    assert deleted(again(lake, server, 4, spec)) == {"s.p": 1}
    require_equal(lake, server, spec)


def test_bounds_that_cannot_be_evaluated_stop_the_table(
    server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, spec)
    execute(server, *DROP_Q)
    for condition, why in (("satisfies_hash_partition(1, 2, 0, id)", "SQLSTATE"), ("NULL", "is no more")):
        with monkeypatch.context() as patched:
            patched.setattr(
                followed, "dropped_bounds", lambda *_, c=condition: (Bounds(number="1", name="s.q", condition=c),)
            )
            code, message = refused(lake, server, condition, spec)
        assert (code, why in message, "gddl load --again" in message) == ("SOURCE_TABLE_ALTERED", True, True), message
    assert {row["id"] for row in replica(lake, spec)} > {101}


@pytest.mark.parametrize("policy", ["keep", "delete"])
def test_partition_that_is_attached_again_with_rows_stops_the_table(
    policy: str, server: sa.Engine, tmp_path: Path
) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping(policy)
    again(lake, server, 0, spec)
    execute(server, "ALTER TABLE s.t DETACH PARTITION s.q")
    again(lake, server, 1, spec)
    execute(server, "ALTER TABLE s.t ATTACH PARTITION s.q FOR VALUES FROM (100) TO (200)")
    code, message = refused(lake, server, 2, spec)
    assert (code, "attached as partitions, with their rows: s.q" in message) == ("SOURCE_TABLE_ALTERED", True), message
    again(lake, server, 3, spec, LOAD_AGAIN)
    again(lake, server, 4, spec)
    require_equal(lake, server, spec)


def test_partition_that_is_attached_again_empty_does_no_harm(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, spec)
    execute(server, "ALTER TABLE s.t DETACH PARTITION s.q")
    again(lake, server, 1, spec)
    execute(server, "TRUNCATE s.q", "ALTER TABLE s.t ATTACH PARTITION s.q FOR VALUES FROM (100) TO (200)")
    again(lake, server, 2, spec)
    require_equal(lake, server, spec)


@pytest.mark.parametrize("dropped", ["red", "other", "old_b", "old"])
def test_rows_of_lists_and_defaults_stay_where_they_are_kept(dropped: str, server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *LISTED)
    lake, spec = Lake(tmp_path), replace(BY_KIND, options=keeping("keep").options)
    again(lake, server, 0, spec)
    before = replica(lake, spec)
    execute(server, f"DROP TABLE s.{dropped}")
    found = {one.code: one.sample for one in again(lake, server, 1, spec).warnings}
    assert found == {"PARTITIONS_KEPT": ("s.old_a", "s.old_b") if dropped == "old" else (f"s.{dropped}",)}
    assert replica(lake, spec) == before


def test_partition_that_was_made_and_dropped_between_two_runs_leaves_its_rows(
    server: sa.Engine, tmp_path: Path
) -> None:
    """No catalog has shown it: a limit that the documentation states."""
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, spec)
    execute(server, "CREATE TABLE s.short PARTITION OF s.t FOR VALUES FROM (900) TO (901)")
    execute(server, "INSERT INTO s.t VALUES (900, 'short')", "DROP TABLE s.short")
    assert not again(lake, server, 1, spec).warnings
    compared = result_of(lake, server, "verify", spec, JobOptions(action=Verify(settle_seconds=0))).details["source"]
    assert [(one["key"], one["state"]) for one in compared["keys"]] == [('{"id": "900"}', "extra")]
    again(lake, server, 2, spec, LOAD_AGAIN)
    again(lake, server, 3, spec)
    require_equal(lake, server, spec)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"mask": {"kind": "hash"}}, "keys are masked: kind"),
        ({"keys": ("id",), "before_image_prefix": "BI_"}, "no keys of the metadata row: at, kind"),
        ({"sequence_by": ("v",)}, "ordered by v"),
        ({"keys": ()}, "keys are not columns"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(
    fields: dict[str, Any], what: str, server: sa.Engine, tmp_path: Path
) -> None:
    full = [f"ALTER TABLE s.{name} REPLICA IDENTITY FULL" for name in ("t", "red", "other", "old_a", "old_b")]
    prepared(server, *LISTED, *full, "CREATE TABLE s.plain (id int PRIMARY KEY, v text)")
    spec = replace(BY_KIND, **fields)
    code, message = refused(Lake(tmp_path), server, 0, spec)
    assert (code, what in message, "or partition_dropped: report" in message) == (
        "PARTITIONS_NOT_COMPARABLE", True, True,
    ), message  # fmt: skip
    plain = replace(keeping("delete"), table="s.plain", mask={"id": "hash"})
    with server.connect() as connection:
        published = published_table(sa, connection, "gddl", "s.plain")
    assert not list(table_findings(plain, published, "gddl")), "it has no partitions"


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_partitions_dropped_under_writers_leave_the_tables_equal(server: sa.Engine, tmp_path: Path) -> None:
    """Partitions are dropped and made again at any moment of the runs, each after it was there in one."""
    rest = "CREATE TABLE s.rest PARTITION OF s.t FOR VALUES FROM (200) TO (MAXVALUE)"
    prepared(server, *PARTS[:3], rest, "INSERT INTO s.t SELECT i, 'v' FROM generate_series(0, 199) i")
    lake, spec, chance = Lake(tmp_path), keeping("delete"), random.Random(1)  # noqa: S311 - repeatable by its seed
    again(lake, server, 0, spec)
    rows, waited = 0, 0
    with Writer(server, 1), Writer(server, 2):
        for number in range(1, 1 + int(os.environ.get("GDDL_DROPS", "15"))):
            name, low = ("p", 0) if number % 2 else ("q", 100)
            drop = threading.Timer(chance.uniform(0, 6), replaced, (server, name, low, number))
            drop.start()
            for part in range(2):
                found = again(lake, server, f"{number} {part}", spec)
                rows += sum(one.count for one in found.warnings if one.code == "PARTITIONS_DELETED")
                waited += any(one.code == "PARTITIONS_WAIT" for one in found.warnings)
            drop.join()
            again(lake, server, f"{number} last", spec)
    again(lake, server, "last", spec)
    require_equal(lake, server, spec)
    assert rows > 100, f"{rows} rows were deleted, and {waited} runs have waited"


def replaced(server: sa.Engine, name: str, low: int, number: int) -> None:
    """A partition dropped, and another one of its range made; now and then in one transaction."""
    made = f"CREATE TABLE s.{name} PARTITION OF s.t FOR VALUES FROM ({low}) TO ({low + 100})"
    statements = [f"DROP TABLE s.{name}", made]
    while statements:
        with suppress(sa.exc.OperationalError):  # a deadlock with a writer
            execute(server, *(statements if number % 3 else statements[:1]))
            del statements[: None if number % 3 else 1]


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_killed_at_each_write(server: sa.Engine, tmp_path: Path) -> None:
    """Of a run that finds a dropped partition: the next one has what the source has."""
    ranges = [f"CREATE TABLE s.p{n} PARTITION OF s.t FOR VALUES FROM ({n}0) TO ({n + 1}0)" for n in range(1, 80)]
    prepared(server, PARTS[0], *ranges, "INSERT INTO s.t SELECT i, 'v' FROM generate_series(10, 799) i")
    lake, spec = Lake(tmp_path), keeping("delete")
    again(lake, server, 0, spec)
    killed, deletes = 0, 0
    for number in range(1, 80):
        execute(server, f"UPDATE s.t SET v = '{number}' WHERE id = {number}1", f"DROP TABLE s.p{number}")
        is_killed = killed_at(lake, server, spec, number // 2 + 1, "after" if number % 2 else "before")
        deletes += len(list(lake.landing(spec).glob("*gddl-resync*")))
        again(lake, server, f"after {number}", spec)
        assert {row["id"] for row in replica(lake, spec)} == {row["id"] for row in rows_of(server)}, number
        killed += is_killed
        if not is_killed:
            break
    assert killed > 20
    assert deletes
    require_equal(lake, server, spec)


def killed_at(lake: Lake, server: sa.Engine, spec: TableSpec, write: int, when: str) -> bool:
    """Whether the job was killed at this write; else it has succeeded."""
    job = codec.to_json(replace(lake.job([spec]), run_id=f"killed {write} {when}"))
    command = [sys.executable, "-m", "tests.databases.killed_load", job, str(write), when]
    done = subprocess.run(command, env={**os.environ, **environ(server)}, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0
