"""Tables that are hard to follow: partitions, generated columns, whole before images, large values, no key."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.spec import TableSpec
from spark_jobs.rooms.sources.capture import log
from tests.capture.captured import SPEC, again, prepared, replica, rows_of
from tests.harness.lake import Lake
from tests.one_task.postgres import execute

PARTITIONED, GENERATED, FULL, LARGE, KEYLESS, NO_KEY = (
    replace(SPEC, table=f"s.{name}") for name in ("parts", "made", "whole", "large", "lines", "unkeyed")
)
GENERATED = replace(GENERATED, exclude_columns=("w",))
FULL = replace(FULL, history=True, track_history_except=("seen",))
KEYLESS = replace(KEYLESS, keys=())
NO_KEY = replace(NO_KEY, before_image_prefix="BI_")
TABLES = (
    "CREATE TABLE s.parts (id int, at date, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
    "CREATE TABLE s.parts_1 PARTITION OF s.parts FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
    "CREATE TABLE s.parts_2 PARTITION OF s.parts FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
    "CREATE TABLE s.made (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v * 2) STORED)",
    "CREATE TABLE s.whole (id int PRIMARY KEY, v text, seen int)", "ALTER TABLE s.whole REPLICA IDENTITY FULL",
    "CREATE TABLE s.large (id int PRIMARY KEY, big text, n int)", "ALTER TABLE s.large ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE s.lines (v text)", "ALTER TABLE s.lines REPLICA IDENTITY FULL",
    "CREATE TABLE s.unkeyed (id int, v text)", "ALTER TABLE s.unkeyed REPLICA IDENTITY FULL",
    "INSERT INTO s.parts VALUES (1, '2024-01-05', 'a'), (2, '2024-02-05', 'b'), (3, '2024-01-06', 'c')",
    "INSERT INTO s.made VALUES (1, 1), (2, 2)", "INSERT INTO s.whole VALUES (1, 'a', 1), (2, 'b', 1)",
    "INSERT INTO s.large SELECT i, repeat(md5(i::text), 1000), i FROM generate_series(1, 5) i",
    "INSERT INTO s.lines VALUES ('loaded'), ('loaded')", "INSERT INTO s.unkeyed VALUES (1, 'a'), (2, 'b'), (3, 'c')",
)  # fmt: skip
CHANGES = (
    "UPDATE s.parts SET v = 'moved', at = '2024-02-09' WHERE id = 1", "DELETE FROM s.parts WHERE id = 2",
    "INSERT INTO s.parts_1 VALUES (4, '2024-01-07', 'direct')",
    "UPDATE s.made SET v = 5 WHERE id = 1", "INSERT INTO s.made VALUES (3, 3)",
    "UPDATE s.whole SET seen = 2", "UPDATE s.whole SET v = 'B' WHERE id = 2",
    "UPDATE s.large SET n = n + 10", "UPDATE s.large SET big = 'small' WHERE id = 2",
    "UPDATE s.large SET big = '__debezium_unavailable_value' WHERE id = 1",
    "INSERT INTO s.large VALUES (6, '__debezium_unavailable_value', 6)",
    "DELETE FROM s.large WHERE id = 3",
    "INSERT INTO s.lines SELECT 'one of many' FROM generate_series(1, 500)", "INSERT INTO s.lines VALUES ('loaded')",
    "UPDATE s.unkeyed SET v = 'A' WHERE id = 1", "DELETE FROM s.unkeyed WHERE id = 2",
    "UPDATE s.unkeyed SET id = 9 WHERE id = 3",
)  # fmt: skip


@pytest.fixture(scope="module")
def lake(server: sa.Engine, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The tables, loaded, and changed once; a job reads the log once for all of them."""
    prepared(server, *TABLES)
    found = Lake(tmp_path_factory.mktemp("lake"))
    specs = (PARTITIONED, GENERATED, FULL, LARGE, KEYLESS, NO_KEY)
    for spec in specs:
        again(found, server, "first", spec)
    execute(server, *CHANGES)
    copied(server, 700)
    for spec in specs:
        again(found, server, "second", spec)
    return found


def copied(server: sa.Engine, count: int) -> None:
    """Rows that share a place in the log."""
    raw = server.raw_connection()
    with raw.cursor() as cursor:
        cursor.copy_expert("COPY s.lines FROM STDIN", io.StringIO("copied\n" * count))
    raw.commit()
    raw.close()


def changes(lake: Lake, spec: TableSpec) -> list[dict[str, Any]]:
    return list(pa.table(DeltaTable(lake.layout(spec).changes).scan()).to_pylist())


def test_partitions_are_their_table(lake: Lake, server: sa.Engine) -> None:
    assert replica(lake, PARTITIONED) == rows_of(server, "s.parts")
    landed = {path.name for path in Path(lake.roots.landing, "s").iterdir()}
    assert "parts" in landed
    assert not {"parts_1", "parts_2"} & landed


def test_generated_columns_that_are_left_out_are_not_stale(lake: Lake, server: sa.Engine) -> None:
    expected = [{"id": row["id"], "v": row["v"]} for row in rows_of(server, "s.made")]
    assert replica(lake, GENERATED) == expected


def test_update_with_a_whole_row_before_is_an_update(lake: Lake, server: sa.Engine) -> None:
    assert replica(lake, FULL) == rows_of(server, "s.whole")
    assert Counter(row["_gddl"]["op"] for row in changes(lake, FULL)) == {"R": 2, "U": 3}
    history = pa.table(DeltaTable(lake.layout(FULL).history).scan()).to_pylist()
    assert sorted((row["id"], row["v"]) for row in history) == [(1, "a"), (2, "B"), (2, "b")]


def test_large_values_that_an_update_leaves_out_are_kept(lake: Lake, server: sa.Engine) -> None:
    assert replica(lake, LARGE) == rows_of(server, "s.large")


def test_rows_without_a_key_are_counted(lake: Lake, server: sa.Engine) -> None:
    found, expected = (
        Counter(row["v"] for row in rows) for rows in (replica(lake, KEYLESS), rows_of(server, "s.lines"))
    )
    assert found == expected


def test_keys_of_a_table_without_one(lake: Lake, server: sa.Engine) -> None:
    assert replica(lake, NO_KEY) == rows_of(server, "s.unkeyed")


def test_changes_of_rows_without_a_key_are_named(lake: Lake, server: sa.Engine) -> None:
    execute(server, "UPDATE s.lines SET v = 'changed' WHERE v = 'loaded'")
    found = again(lake, server, "third", KEYLESS)
    assert found.quarantined == 3
    errors = pa.table(DeltaTable(lake.layout(KEYLESS).errors).scan()).to_pylist()
    assert {row["code"] for row in errors} == {"APPEND_ONLY_CHANGE"}


def test_changed_key_without_its_large_value_is_named(lake: Lake, server: sa.Engine) -> None:
    execute(server, "UPDATE s.large SET id = 50 WHERE id = 5")
    found = again(lake, server, "fourth", LARGE)
    assert [one.code for one in found.warnings] == ["MOVED_ROW_INCOMPLETE"]
    execute(server, "ALTER TABLE s.large REPLICA IDENTITY FULL", "UPDATE s.large SET id = 40 WHERE id = 4")
    again(lake, server, "fifth", LARGE)
    found_rows = {row["id"]: row["big"] for row in replica(lake, LARGE)}
    assert found_rows[40] == next(row["big"] for row in rows_of(server, "s.large") if row["id"] == 40)


def test_one_engine_reads_for_all_tables_of_a_job(
    lake: Lake, server: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    class Counted(log.Engine):
        def __enter__(self) -> Counted:
            started.append(1)
            super().__enter__()
            return self

    monkeypatch.setattr(log, "Engine", Counted)
    for spec in (PARTITIONED, GENERATED, FULL):
        again(lake, server, "last", spec)
    assert started == [1]


@pytest.mark.parametrize("name", ["message", "heartbeat", "transaction"])
def test_table_with_a_name_of_the_engine_is_a_table(name: str, server: sa.Engine, tmp_path: Path) -> None:
    """More rows at one place than a batch holds."""
    prepared(server, f"CREATE TABLE s.{name} (id int PRIMARY KEY, v text)")
    lake, spec = Lake(tmp_path), replace(SPEC, table=f"s.{name}")
    again(lake, server, "first", spec)
    raw = server.raw_connection()
    with raw.cursor() as cursor:
        cursor.copy_expert(f"COPY s.{name} FROM STDIN", io.StringIO("".join(f"{i}\tv\n" for i in range(20_001))))
    raw.commit()
    raw.close()
    again(lake, server, "second", spec)
    assert len(replica(lake, spec)) == 20_001
