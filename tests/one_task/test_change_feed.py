"""What commits of the engine one task write into Delta's change data feed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable

from airflow_gddl.contract.actions import Maintain
from airflow_gddl.contract.spec import JobOptions
from tests.harness.lake import Lake, spec_of
from tests.spark.change_feeds import FEED, differing_versions, latest_feed


def test_feed_distinguishes_updates_from_deletes_and_inserts(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(table_properties=FEED)
    lake.load(spec, 4)
    lake.done(spec)
    lake.change(spec, 1, [("U", 1, "new"), ("D", 2, None), ("I", 9, "nine")])
    assert not lake.done(spec).warnings
    path = lake.layout(spec).replica
    feed = {(row["id"], row["v"], row["_change_type"]) for row in latest_feed(path)}
    assert feed == {
        (1, "load 1", "update_preimage"),
        (1, "new", "update_postimage"),
        (2, "load 2", "delete"),
        (9, "nine", "insert"),
    }


def test_change_feed_enabled_later(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec, 4)
    lake.done(spec)
    spec = replace(spec, table_properties=FEED)
    lake.change(spec, 1, [("U", 1, "new")])
    assert not lake.done(spec).warnings
    path = lake.layout(spec).replica
    assert DeltaTable(path).protocol().min_writer_version == 4
    assert len(latest_feed(path)) == 2


def test_compaction_is_no_change(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(table_properties=FEED)
    spec = replace(spec, keys=())
    lake.load(spec, 4)
    lake.done(spec)
    for number in range(1, 6):
        lake.change(spec, number, [("I", 10 + number, "new")])
        lake.done(spec)
    path = lake.layout(spec).replica
    details = lake.done(spec, JobOptions(action=Maintain())).details
    assert details is not None
    assert details["compacted"]["replica"]["files_after"] == 1
    assert latest_feed(path) == []
    assert differing_versions(path) == []
