"""Files that a stream reports, against the ledger: no other file is read, and none is loaded twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.discovery import NotifiedFile, discover_notified
from spark_jobs.plan.waiting_files import Discovery
from tests.harness.landed import committed
from tests.harness.landing_folder import START, Table
from tests.harness.s3_server import Bucket, serving

DAY = timedelta(days=1)


@dataclass
class Watched(Storage):
    """A store that remembers which landing files it was asked for one by one, and which folders it listed."""

    stat_paths: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def stat(self, path: str, within: str | None = None) -> StoredObject | None:
        self.stat_paths.append(path)
        return super().stat(path, within)

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        if folder.rstrip("/").endswith("landing"):
            self.listed.append(folder)
        yield from super().list(folder, after, within)


def reported(table: Table, *names: str, scheme: str = "file:") -> list[NotifiedFile]:
    """As Spark's file source writes it."""
    found = []
    for name in names:
        seen = Storage().stat(f"{table.landing}/{name}")
        assert seen is not None
        ago = datetime.fromtimestamp(seen.modified, UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        path = scheme + seen.path.removeprefix("s3:")
        found.append(NotifiedFile(path=path, size=seen.size, modified=ago // timedelta(milliseconds=1)))
    return found


def discovered(table: Table, files: Iterable[NotifiedFile]) -> Discovery:
    return discover_notified(table.place, table.ledger(), table.now, files)


def take(table: Table, found: Discovery) -> list[str]:
    """Commit all that waits as one batch."""
    from spark_jobs.plan.batching import next_batch  # noqa: PLC0415 - the planner of this one step

    ledger = table.ledger()
    plan = next_batch(found.waiting, limits=table.limits, state=ledger.state, now=table.now)
    if plan is None:
        return []
    ledger.write_plan(plan)
    ledger.commit(committed(plan, ledger.state, table.landing, found.without(plan)))
    return table.names(plan.files)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A load and 60 hourly changes, taken."""
    made = Table.below(tmp_path)
    made.land("LOAD00000001.csv")
    made.land_changes(60, timedelta(hours=1))
    made.run()
    made.storage = Watched()
    return made


def watched(table: Table) -> Watched:
    assert isinstance(table.storage, Watched)
    return table.storage


def test_only_notified_files_are_checked(table: Table) -> None:
    first, second = table.land_changes(2, timedelta(hours=1), START + 5 * DAY)
    assert take(table, discovered(table, reported(table, first))) == [first]
    # Once for its version, and once more after its content was hashed: it may have grown meanwhile.
    assert watched(table).stat_paths == [f"{table.landing}/{first}"] * 2
    assert take(table, discovered(table, reported(table, second, first))) == [second]
    assert watched(table).listed == []


def test_known_files_cost_no_request(table: Table) -> None:
    names = [table.name(START + timedelta(hours=n)) for n in range(60)]
    found = discovered(table, reported(table, *names, "LOAD00000001.csv"))
    assert (found.waiting, watched(table).stat_paths, watched(table).listed) == ((), [], [])


def test_unchanged_rewritten_file_is_recognized(table: Table) -> None:
    name = table.name(START)
    table.land(name)
    (again,) = reported(table, name)
    found = discovered(table, [replace(again, modified=again.modified + 1)])
    assert (found.waiting, list(found.touched)) == ((), [f"{table.landing}/{name}"])
    table.land(name, "U,1")
    assert table.names(discovered(table, reported(table, name)).waiting) == [name]


def test_notified_file_beyond_the_lookback_is_ingested(table: Table) -> None:
    table.land_changes(200, timedelta(hours=6), START + 5 * DAY)
    table.storage = Storage()
    for _ in range(25):  # until the oldest rows are in the archive
        table.land_changes(1, timedelta(hours=1), table.now)
        table.run()
    table.storage = Watched()
    assert table.ledger().archived_before is not None
    old, late = table.name(START), table.land(table.name(START + timedelta(minutes=7)))
    assert table.discover().waiting == ()
    watched(table).listed.clear()
    assert take(table, discovered(table, reported(table, old, late))) == [late]
    assert watched(table).listed == []


@pytest.mark.parametrize("name", ["LOAD00000001.csv", "LOAD00000002.csv"])
def test_load_file_causes_a_full_listing(table: Table, name: str) -> None:
    unseen = table.land_changes(1, timedelta(hours=1), START + 5 * DAY)[0]
    table.land(name, "I,another")
    found = discovered(table, reported(table, name))
    assert (set(table.names(found.waiting)), found.listed_in_full_at is not None) == ({name, unseen}, True)


def test_file_removed_after_its_notification_is_ignored(table: Table) -> None:
    (name,) = table.land_changes(1, timedelta(hours=1), START + 5 * DAY)
    files = reported(table, name)
    Path(table.landing, name).unlink()
    found = discovered(table, files)
    assert (found.waiting, found.missing, found.folder_missing) == ((), (), False)


def test_unknown_names_are_counted(table: Table) -> None:
    table.land("notes.csv")
    found = discovered(table, reported(table, "notes.csv"))
    assert (found.waiting, found.ignored, found.ignored_sample) == ((), 1, ("notes.csv",))


@pytest.mark.parametrize("scheme", ["file:", "file://", ""])
def test_spark_path_forms_are_normalized(table: Table, scheme: str) -> None:
    (name,) = table.land_changes(1, timedelta(hours=1), START + 5 * DAY)
    (waiting,) = discovered(table, reported(table, name, scheme=scheme)).waiting
    assert waiting.path == f"{table.landing}/{name}"


def test_in_a_bucket_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket()
    with serving(bucket) as url:
        settings = {"ENDPOINT_URL": url, "REGION": "eu-west-1", "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}
        for name, value in settings.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        table = Table("s3://bucket/landing", f"{tmp_path}/ledger")
        table.land_changes(3, timedelta(hours=1))
        table.run()
        (name,) = table.land_changes(1, timedelta(hours=1), START + 5 * DAY)
        bucket.requests.clear()
        (waiting,) = discovered(table, reported(table, name, table.name(START), scheme="s3a:")).waiting
    assert waiting.path == f"s3://bucket/landing/{name}"
    asked = [request for request in bucket.requests if "landing" in request]
    assert asked.count(f"HEAD landing/{name}") == 2  # once by this test
    assert not any(request.startswith("GET landing/") for request in asked)


def test_foreign_path_is_a_stream_error(table: Table) -> None:
    with pytest.raises(RetriableError, match=r"FILE_STREAM_FAILED.*not below"):
        discovered(table, [NotifiedFile(path="file:/elsewhere/20240101-000000001.csv", size=1, modified=1)])
