"""Files that begin a table, or that the schema gate lets through, though they lack what others have."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.batch.table_run import TableRun
from spark_jobs.plan.batching import BatchLimits
from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.test_snapshots import event
from tests.debezium.test_truncates import replica, row, truncate
from tests.debezium.topic import Topic, warnings_of

# --- a first file with a truncate alone ---


@pytest.mark.parametrize("policy", ["apply", "hold", "report"])
def test_a_first_file_with_a_truncate_alone_waits_for_rows(policy: str, engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, truncate=policy)
    topic.land(text(truncate(140)))
    for _ in range(2):
        result = topic.run()
        assert (result.status, warnings_of(result), result.warnings[0].count) == ("skipped", ["TRUNCATE_HELD"], 1)
    assert ("release" in result.warnings[0].message) == (policy == "hold")
    topic.land(text(row("c", 1, 150), row("c", 2, 130)))
    done = topic.run(action="release", held="truncate" if policy == "hold" else "run")
    assert warnings_of(done) == ["TRUNCATE_IGNORED" if policy == "report" else "TRUNCATE_APPLIED"]
    assert replica(topic) == ({1: "c150", 2: "c130"} if policy == "report" else {1: "c150"})
    topic.land(text(row("c", 3, 135), row("c", 4, 160)))
    topic.run()
    assert sorted(replica(topic)) == ([1, 2, 3, 4] if policy == "report" else [1, 4])


@pytest.mark.parametrize("options", [{}, {"action": "reload", "confirmed": True}])
def test_a_truncate_that_waits_does_not_hold_small_batches(
    options: dict[str, object], engine: LocalPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of one file: those with rows come first."""
    monkeypatch.setattr(TableRun, "limits", BatchLimits(max_files=1, max_bytes=10**9))
    topic = Topic(engine, tmp_path, truncate="apply")
    topic.land(text(truncate(140)))
    topic.land(text(row("c", 1, 150), row("c", 2, 130)))
    topic.run()
    topic.run(**options)
    assert replica(topic) == {1: "c150"}


def test_releases_lead_past_a_truncate_that_waits_before_small_batches(
    engine: LocalPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first makes the table, the second applies the truncate, which is read again then."""
    monkeypatch.setattr(TableRun, "limits", BatchLimits(max_files=1, max_bytes=10**9))
    topic = Topic(engine, tmp_path)
    topic.land(text(truncate(140)))
    topic.land(text(row("c", 1, 150), row("c", 2, 130)))
    topic.run()
    for code, rows in ("TRUNCATE_HELD", {1: "c150", 2: "c130"}), ("TRUNCATE_APPLIED", {1: "c150"}):
        assert (warnings_of(topic.run(action="release", held="truncate")), replica(topic)) == ([code], rows)


# --- a required column with a value that was not sent ---

PLACEHOLDER = "__debezium_unavailable_value"


def test_a_value_that_was_not_sent_is_no_missing_column(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, schema={"require": ["big"]}, rename={"BIG": "big"})
    topic.land(text(event("c", {"id": 1, "v": "a", "BIG": "large"}, 100)))
    topic.run()
    topic.land(text(event("u", {"id": 1, "v": "b", "BIG": PLACEHOLDER}, 110)))
    topic.run()
    assert topic.replica("id", "v", "big") == [(1, "b", "large")]
    topic.land(text(event("u", {"id": 1, "v": "c", "BIG": None}, 120)))
    assert topic.refused().code == "SCHEMA_INCOMPATIBLE", "it has nothing but nulls"
