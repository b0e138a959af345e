"""Partitions that the source drops, and what becomes of their rows: `partition_dropped`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.sources.capture import capture_problems
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.capture.captured import (
    CAPTURE,
    LOAD_AGAIN,
    SPEC,
    again,
    prepared,
    refused,
    replica,
    result_of,
    rows_of,
)
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
BY_KIND = replace(keeping("keep"), keys=("id", "kind", "at"))


def require_equal(lake: Lake, server: sa.Engine, spec: TableSpec) -> None:
    compared = result_of(lake, server, "verify", spec, JobOptions(action=Verify(settle_seconds=0))).details["source"]
    assert (compared["different"], compared["unsettled"]) == (0, 0), compared
    assert {tuple(row.values()) for row in replica(lake, spec)} == {tuple(row.values()) for row in rows_of(server)}


def test_partition_that_is_attached_again_with_rows_stops_the_table(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *PARTS)
    lake, spec = Lake(tmp_path), keeping("keep")
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
    lake, spec = Lake(tmp_path), keeping("keep")
    again(lake, server, 0, spec)
    execute(server, "ALTER TABLE s.t DETACH PARTITION s.q")
    again(lake, server, 1, spec)
    execute(server, "TRUNCATE s.q", "ALTER TABLE s.t ATTACH PARTITION s.q FOR VALUES FROM (100) TO (200)")
    again(lake, server, 2, spec)
    assert {row["id"] for row in replica(lake, spec)} == {1, 101, 201, 202, 203, 204}


@pytest.mark.parametrize("dropped", ["red", "other", "old_b", "old"])
def test_rows_of_lists_and_defaults_stay_where_they_are_kept(dropped: str, server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, *LISTED)
    lake, spec = Lake(tmp_path), BY_KIND
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
    lake, spec = Lake(tmp_path), keeping("keep")
    again(lake, server, 0, spec)
    execute(server, "CREATE TABLE s.short PARTITION OF s.t FOR VALUES FROM (900) TO (901)")
    execute(server, "INSERT INTO s.t VALUES (900, 'short')", "DROP TABLE s.short")
    assert not again(lake, server, 1, spec).warnings
    compared = result_of(lake, server, "verify", spec, JobOptions(action=Verify(settle_seconds=0))).details["source"]
    assert [(one["key"], one["state"]) for one in compared["keys"]] == [('{"id": "900"}', "extra")]
    again(lake, server, 2, spec, LOAD_AGAIN)
    again(lake, server, 3, spec)
    require_equal(lake, server, spec)
