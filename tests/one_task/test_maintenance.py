"""Maintenance: fewer files and less of what is old; the same rows, versions and transactions, whatever happens."""

from __future__ import annotations

import json
import os
import time
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Maintain, Verify
from airflow_gddl.contract.result import MAINTENANCE_COUNTS
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Clock, NoSpark, Runtime, Step, utc_now
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.ledger.claim import Claim
from spark_jobs.rooms.actions.maintain import RUNS_KEPT, MaintenanceResult
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.vacuum import vacuum_hours
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of
from tests.spark.children import killed_child

pytestmark = pytest.mark.wide

MAINTAIN = JobOptions(action=Maintain())
VERIFY = JobOptions(action=Verify())
BATCHES = 6


def days_ago(days: float) -> Clock:
    return lambda: datetime.now(UTC) - timedelta(days=days)


def rows(path: str) -> list[Any]:
    """All rows of a table, in an order that doesn't depend on files."""
    found = pa.table(DeltaTable(path).scan())
    assert found is not None  # DuckDB finds it by its name
    with duckdb.connect() as own:  # a test of this process may have left a result open in the shared one
        return own.sql("SELECT * FROM found ORDER BY ALL").fetchall()


def files(path: str) -> int:
    return len(DeltaTable(path).file_uris())


def filled(root: Path, spec: TableSpec, clock: Clock = utc_now) -> Lake:
    """A load and some batches, each of which inserts, updates and deletes."""
    lake = Lake(root)
    lake.load(spec, 20)
    lake.done(spec, clock=clock)
    for n in range(1, BATCHES):
        lake.change(spec, n, [("U", 0, f"v{n}"), ("I", 100 + n, "new"), ("D", n, None)])
        lake.done(spec, clock=clock)
    return lake


def test_compaction_changes_only_files(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec)
    layout = lake.layout(spec)
    changes, replica = rows(layout.changes), rows(layout.replica)
    made = DeltaTable(layout.changes).transaction_version("gddl:append")
    reported = lake.done(spec, MAINTAIN).details
    assert reported["compacted"]["changes"] == {"files_before": BATCHES, "files_after": 1}
    assert (files(layout.changes), rows(layout.changes), rows(layout.replica)) == (1, changes, replica)
    assert DeltaTable(layout.changes).transaction_version("gddl:append") == made
    assert lake.done(spec, MAINTAIN).details["compacted"] == {}, "a second one finds nothing to do"


def test_compaction_is_no_data_change_and_keeps_statistics(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec)
    lake.done(spec, MAINTAIN)
    path = lake.layout(spec).changes
    newest = max(Path(path, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    moved = [a.get("add") or a.get("remove") for a in actions if "add" in a or "remove" in a]
    assert len(moved) == BATCHES + 1
    assert not any(m["dataChange"] for m in moved)
    file = Tables(Storage(), utc_now).existing(path).files[0]
    assert (file.low["_gddl"]["sequence"], file.high["_gddl"]["sequence"]) == (100, 100 * (BATCHES - 1) + 2)


def test_batches_continue_after_compaction(tmp_path: Path) -> None:
    """Repeated changes are still known, and the transactions of later batches are later."""
    spec = spec_of()
    lake = filled(tmp_path, spec)
    lake.done(spec, MAINTAIN)
    lake.change(spec, 50, [("U", 0, "again")])
    again = Path(lake.layout(spec).landing, "20240101-000000001.parquet")
    again.with_name("20240101-000000051.parquet").write_bytes(again.read_bytes())
    done = lake.done(spec)
    assert (done.changes_written, done.redelivered) == (1, 3)
    assert lake.replica(spec)[0] == "again"
    assert lake.done(spec, VERIFY).details["verdict"] == "equal"


def test_checkpoint_keeps_transactions(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec)
    lake.done(spec, MAINTAIN)
    path = lake.layout(spec).changes
    made = DeltaTable(path).transaction_version("gddl:append")
    DeltaTable(path).create_checkpoint()
    for commit in Path(path, "_delta_log").glob("*.json"):
        commit.unlink()
    assert DeltaTable(path).transaction_version("gddl:append") == made


def test_vacuum_removes_only_old_files(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec, days_ago(8))
    lake.change(spec, 60, [("U", 0, "today")])
    lake.done(spec)
    replica = lake.layout(spec).replica
    before, there = rows(replica), set(Path(replica).glob("*.parquet"))
    reported = lake.done(spec, MAINTAIN).details
    gone = there - set(Path(replica).glob("*.parquet"))
    assert reported["files_removed"] >= len(gone) > 0
    assert rows(replica) == before
    young = DeltaTable(replica, version=DeltaTable(replica).version())
    assert young.to_pyarrow_table().num_rows == len(before)
    last_but_one = {Path(uri) for uri in _files_before_today(replica)}
    assert last_but_one <= set(Path(replica).glob("*.parquet")), "replaced today, and still there for who reads it"


def _files_before_today(path: str) -> list[str]:
    """Of the newest version that was made with a clock in the past."""
    table = DeltaTable(path)
    today = next(h["version"] for h in table.history() if h.get("operation") == "WRITE")
    return DeltaTable(path, version=today - 1).file_uris()


@pytest.mark.parametrize(
    ("asked", "hours"),
    [
        ("interval 30 days", 720),
        ("INTERVAL 2 weeks", 336),
        ("interval 1 hour", 168),
        ("9 days 30 minutes", 217),
        (None, 168),
    ],
)
def test_longer_delta_retention_is_respected(asked: str | None, hours: int) -> None:
    properties = {} if asked is None else {"delta.deletedFileRetentionDuration": asked}
    assert vacuum_hours(spec_of(table_properties=properties)) == hours


def test_invalid_retention_removes_nothing(tmp_path: Path) -> None:
    spec = spec_of(table_properties={"delta.deletedFileRetentionDuration": "a month"})
    lake = Lake(tmp_path)
    lake.load(spec)
    lake.done(spec)
    found = lake.run(spec, MAINTAIN)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "RETENTION_UNREADABLE"


def test_table_property_of_a_user_is_respected(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec, days_ago(30))
    replica = lake.layout(spec).replica
    there = len(list(Path(replica).glob("*.parquet")))
    DeltaTable(replica).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 60 days"})
    month = time.time() - 30 * 86400
    for file in Path(replica).rglob("*.parquet"):
        os.utime(file, (month, month))
    lake.done(spec, MAINTAIN)
    assert len(list(Path(replica).glob("*.parquet"))) >= there > files(replica)


def test_tombstones_are_removed_after_retention(tmp_path: Path) -> None:
    spec = spec_of(tombstone_retention="7d")
    lake = filled(tmp_path, spec, days_ago(8))
    lake.change(spec, 60, [("D", 12, None)])
    lake.done(spec)
    assert len(rows(lake.layout(spec).tombstones)) <= BATCHES
    lake.done(spec, MAINTAIN)
    assert [row[0] for row in rows(lake.layout(spec).tombstones)] == [12]
    assert lake.done(spec, VERIFY).details["verdict"] == "equal"


def test_changes_are_kept_without_retention(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec, days_ago(1000))
    before = rows(lake.layout(spec).changes)
    assert lake.done(spec, MAINTAIN).details["changes_cut"] == 0
    assert rows(lake.layout(spec).changes) == before


def test_superseded_changes_are_cut_and_verify_accounts_for_it(tmp_path: Path) -> None:
    spec = spec_of(changes_retention="30d")
    lake = filled(tmp_path, spec, days_ago(40))
    lake.change(spec, 60, [("U", 7, "younger")])
    lake.done(spec)
    replica = lake.replica(spec)
    reported = lake.done(spec, MAINTAIN).details
    # Load rows of five deleted keys and of 0 and 7, and all updates of 0 but the last.
    assert reported["changes_cut"] == (BATCHES - 1) + 2 + (BATCHES - 2)
    ids = DeltaTable(lake.layout(spec).changes).to_pyarrow_table().column("id").to_pylist()
    assert sorted(ids) == sorted(set(replica) | set(range(1, BATCHES))), "each key keeps its last change"
    found = lake.done(spec, VERIFY).details
    assert (found["verdict"], lake.replica(spec)) == ("equal", replica)
    assert datetime.now(UTC) - datetime.fromisoformat(found["changes_cut_before"]) > timedelta(days=29)


def test_changed_keys_cut_no_changes(tmp_path: Path) -> None:
    """A row that waits for its rebuild says nothing of which changes the tables as they are depend on."""
    spec = spec_of(changes_retention="30d")
    lake = filled(tmp_path, spec, days_ago(40))
    before = rows(lake.layout(spec).changes)
    for other in (replace(spec, keys=("v",)), replace(spec, sequence_by=("v",))):
        assert lake.done(other, MAINTAIN).details["changes_cut"] == 0
    assert rows(lake.layout(spec).changes) == before
    assert lake.done(spec, VERIFY).details["verdict"] == "equal"


def test_dry_run_reports_and_changes_nothing(tmp_path: Path) -> None:
    spec = spec_of(changes_retention="30d")
    lake = filled(tmp_path, spec, days_ago(40))
    there = {p: p.stat().st_mtime_ns for p in Path(lake.roots.lake).rglob("*") if p.is_file()}
    reported = lake.done(spec, JobOptions(action=Maintain(dry_run=True))).details
    assert reported["dry_run"]
    assert (
        min(
            reported["changes_cut"],
            reported["files_removed"],
            reported["tombstones_removed"],
            len(reported["compacted"]),
        )
        > 0
    )
    assert {p: p.stat().st_mtime_ns for p in Path(lake.roots.lake).rglob("*") if p.is_file()} == there


def test_leftovers_of_a_refresh_and_old_records_are_removed(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec)
    layout = lake.layout(spec)
    left = Path(layout.state, "refresh", "000000000009r-1", "changes", "part.parquet")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    for n in range(RUNS_KEPT + 10):
        Path(layout.runs, f"20200101T0000000000{n:02d}-old.json").write_text("{}")
    reported = lake.done(spec, MAINTAIN).details
    assert (reported["leftovers_removed"], reported["runs_removed"]) == (1, 10 + BATCHES)
    assert not left.exists()
    assert len(list(Path(layout.runs).iterdir())) == RUNS_KEPT + 1, "and its own"
    lake.done(spec, MAINTAIN)
    assert len(list(Path(layout.runs).iterdir())) == RUNS_KEPT + 1, "that one had nothing to do"


def test_archives_do_not_count_as_records(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec)
    archive = Path(lake.layout(spec).runs, "archive")
    archive.mkdir()
    for n in range(RUNS_KEPT):
        (archive / f"20200101T0000000000{n:02d}-a_20200101T000000000099-b.jsonl").write_text("")
    old = Path(lake.layout(spec).runs, "20200101T000000000000-old.json")
    old.write_text("{}")
    assert lake.done(spec, MAINTAIN).details["runs_removed"] == 0
    assert old.exists()
    assert len(list(archive.iterdir())) == RUNS_KEPT


def test_maintenance_of_a_busy_table_is_skipped(tmp_path: Path) -> None:
    spec = spec_of()
    lake = filled(tmp_path, spec)
    with Claim.acquire(Storage(), lake.layout(spec).state, "a-load", utc_now):
        found = lake.run(spec, MAINTAIN)
    assert isinstance(found, TableOutcome)
    assert found.retriable
    assert found.result.error is not None
    assert found.result.error.code == "TABLE_BUSY"


@pytest.mark.parametrize("action", ["maintain", "erase"])
def test_maintenance_stops_after_losing_its_claim(action: Any, tmp_path: Path) -> None:
    """Silent for so long that another run took the table: nothing more is written beside it."""
    spec = spec_of()
    lake = filled(tmp_path, spec)
    claims = Path(lake.layout(spec).state, "claims")

    def overtaken(step: Step) -> None:
        if step.step in {"tombstones", "before_images"}:
            mine = max(int(file.stem) for file in claims.glob("*.json"))
            (claims / f"{mine + 1:020d}.json").write_text("another run's")

    job = lake.job([spec], options_of(action, **({"key": {"id": "100"}} if action == "erase" else {})))
    runtime = Runtime(storage=Storage(), spark=NoSpark(), observe=overtaken)
    version = DeltaTable(lake.layout(spec).replica).version()
    found = attempt(TableRun(job=job, spec=spec, runtime=runtime), totals_of(job))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert (found.result.error.code, found.retriable) == ("CLAIM_LOST", True)
    assert DeltaTable(lake.layout(spec).replica).version() == version


def test_retention_below_the_minimum_is_refused(tmp_path: Path) -> None:
    spec = spec_of(vacuum_retention="12h")
    lake = Lake(tmp_path)
    found = lake.run(spec, MAINTAIN)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "FIELD_VALUE"


@pytest.mark.parametrize("step", ["tombstones", "cut", "compact", "vacuum", "leftovers"])
def test_kill_after_any_step_resumes(step: str, tmp_path: Path) -> None:
    spec = spec_of(changes_retention="30d")
    lake = filled(tmp_path, spec, days_ago(40))
    replica = rows(lake.layout(spec).replica)
    assert killed_child(lake.job([spec], MAINTAIN, run_id="dies"), step).status == -9
    assert rows(lake.layout(spec).replica) == replica
    lake.done(spec, MAINTAIN)
    assert rows(lake.layout(spec).replica) == replica
    assert (files(lake.layout(spec).changes), lake.done(spec, VERIFY).details["verdict"]) == (1, "equal")
    lake.change(spec, 70, [("I", 500, "after")])
    assert lake.done(spec).changes_written == 1


def test_each_figure_of_a_maintenance_is_shown_or_known_as_left_out() -> None:
    own_way = {"compacted", "logs_kept", "landing"}  # no counts: shown in their own ways
    assert {*MAINTENANCE_COUNTS, *own_way} == {field.name for field in fields(MaintenanceResult)}
    assert own_way.isdisjoint(MAINTENANCE_COUNTS)


def test_a_folder_that_deltalake_opens_as_another_one_is_refused(tmp_path: Path) -> None:
    """`a%20b`: it would clean up the table in `a b`. Loads, which don't open tables by it, go on."""
    spec = spec_of()
    (tmp_path / "a b").mkdir()
    beside = filled(tmp_path / "a b", spec)
    kept = sorted(path.name for path in Path(beside.layout(spec).changes).rglob("*"))
    (tmp_path / "a%20b").mkdir()
    lake = filled(tmp_path / "a%20b", spec)
    result = lake.result(spec, MAINTAIN)
    assert result.error is not None
    assert (result.error.code, result.error.fatal) == ("ROOT_UNUSABLE", True)
    assert "Remedy: rename the folder of the lake" in result.error.message
    assert sorted(path.name for path in Path(beside.layout(spec).changes).rglob("*")) == kept
    lake.root.rename(tmp_path / "a_b")
    assert Lake(tmp_path / "a_b").done(spec, MAINTAIN).status == "succeeded"
