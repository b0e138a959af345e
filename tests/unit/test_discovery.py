from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from obstore.store import MemoryStore

from airflow_gddl.contract.extensions import DateDelimiter, DatePartition, DmsOptions
from airflow_gddl.contract.file_names import Names
from airflow_gddl.contract.layout import landing_root
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec
from airflow_gddl.stores import HasEtag, Storage
from spark_jobs.batch.notices import of_discovery
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.discovery import folders_like
from spark_jobs.plan.waiting_files import Discovery, NotListed
from spark_jobs.rooms.dialects.dms import DmsDialect
from tests.harness.landing_folder import START, Table, counted_stats
from tests.harness.s3_server import Bucket, serving

LAYOUTS: list[tuple[DatePartition, DateDelimiter]] = [
    ("none", "slash"),
    ("YYYYMMDD", "slash"),
    ("YYYYMMDD", "none"),
    ("YYYYMMDDHH", "dash"),
    ("YYYYMM", "underscore"),
    ("MMYYYYDD", "slash"),
    ("MMYYYYDD", "none"),
    ("DDMMYYYY", "dash"),
]
LOADS = ["LOAD00000001.csv", "LOAD00000002.csv"]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.below(tmp_path)


@pytest.fixture(params=LAYOUTS, ids="-".join)
def any_layout(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    partition, delimiter = request.param
    return Table.below(tmp_path, DmsOptions(date_partition=partition, date_delimiter=delimiter))


def test_missing_folder_is_reported_and_changes_nothing(table: Table) -> None:
    found = table.discover()
    assert (found.folder_missing, found.waiting, found.listed) == (True, (), 0)
    Path(table.landing).mkdir(parents=True)
    assert not table.discover().folder_missing


class _Growing(Storage):
    """Each file grows between its listing and the hashing of its content."""

    def fingerprint(self, found: HasEtag) -> str:
        with Path(found.path).open("a") as file:
            file.write("more")
        return super().fingerprint(found)


@pytest.mark.parametrize("is_known", [False, True])
def test_file_that_grows_after_its_listing_is_left_and_counted(table: Table, *, is_known: bool) -> None:
    table.land("20240101-000000001.csv")
    if is_known:
        table.run()
        table.land("20240101-000000001.csv", text="again")
    table.storage = _Growing()
    found = table.discover()
    assert table.names(found.waiting) == []
    assert [Path(path).name for path in found.unsettled] == ["20240101-000000001.csv"]
    assert (found.missing, found.touched) == ((), {})
    table.storage = Storage()
    assert table.names(table.discover().waiting) == ["20240101-000000001.csv"]


def test_similar_folder_names_are_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shop/order", "shop/order_lines", "shop/customers", "shop/_hidden", "billing/bills"):
        (tmp_path / name).mkdir(parents=True)
    storage = Storage()
    assert folders_like(storage, f"{tmp_path}/shop/orders") == ("shop/order",)
    assert folders_like(storage, f"{tmp_path}/shop/zzz") == ("shop/customers", "shop/order", "shop/order_lines")
    assert folders_like(storage, f"{tmp_path}/shopp/orders") == ("shop",)
    assert folders_like(storage, f"{tmp_path}/nowhere/shop/orders") == ()
    memory = MemoryStore()
    for path in ("landing/shop/order/f", "landing/shop/lines/2024/f", "landing/shop/f"):
        memory.put(path, b"")
    monkeypatch.setattr("airflow_gddl.stores.s3.client", lambda *_, **__: memory)
    assert folders_like(storage, "s3://b/landing/shop/orders") == ("shop/order",)
    assert storage.folders("s3://b/landing/shop") == ("lines", "order")
    run = run_of(TableSpec(table="shop.orders", keys=("id",)))
    missing = Discovery(folder_missing=True, folders_there=("shop/order",))
    (warning,) = of_discovery(run, missing)
    assert warning.message == (
        "there is no landing folder /landing/shop/orders; nothing was changed; folders there: shop/order"
    )
    (nothing,) = of_discovery(run, Discovery(folder_missing=True))
    assert nothing.message == "there are no landing folders below /landing yet; nothing was changed"


def run_of(spec: TableSpec, landing: str = "/landing") -> TableRun:
    job = JobSpec(run_id="r", roots=Roots(landing=landing, lake="/lake"), tables=(spec,), tiers=DEFAULT_TIERS)
    return TableRun(job=job, spec=spec, runtime=Runtime(storage=Storage(), spark=NoSpark()))


@pytest.mark.parametrize("meaning", ["empty", "ignore"])
def test_missing_folder_with_a_meaning_is_no_warning(meaning: str) -> None:
    spec = TableSpec(table="shop.orders", keys=("id",), options={"missing_folder": meaning})
    assert of_discovery(run_of(spec), Discovery(folder_missing=True)) == ()


@pytest.mark.parametrize("meaning", ["report", "empty", "ignore"])
def test_a_missing_root_means_nothing_for_its_tables(
    meaning: Literal["report", "empty", "ignore"], tmp_path: Path
) -> None:
    table = Table(f"{tmp_path}/root/shop/orders", f"{tmp_path}/ledger", DmsOptions(missing_folder=meaning))
    found = table.discover()
    (warning,) = of_discovery(run_of(TableSpec(table="shop.orders", keys=("id",)), f"{tmp_path}/root"), found)
    assert (found.root_missing, warning.code, "is missing" in warning.message) == (True, "FOLDER_MISSING", True)
    Path(landing_root(table.landing)).mkdir(parents=True)
    assert (table.discover().folder_missing, table.discover().root_missing) == (True, False)


def test_removed_folder_is_reported_with_its_files(table: Table) -> None:
    table.land(LOADS[0])
    table.run()
    Path(table.landing, LOADS[0]).unlink()
    assert (table.discover().folder_missing, table.discover().missing) == (False, (f"{table.landing}/{LOADS[0]}",))
    Path(table.landing).rmdir()
    found = table.discover()
    assert (found.folder_missing, found.waiting) == (True, ())


def test_each_file_is_ingested_once_in_any_layout(any_layout: Table) -> None:
    loads = [any_layout.land(name) for name in LOADS]
    first = any_layout.land_changes(30, timedelta(hours=7))
    assert any_layout.run() == loads + first
    assert any_layout.run() == []
    more = any_layout.land_changes(3, timedelta(hours=7), START + timedelta(days=30))
    another = any_layout.land("LOAD00000003.csv")
    assert any_layout.run() == [another, *more]
    assert any_layout.discover().missing == ()
    assert any_layout.run(full=True) == []


def test_idle_listings_do_not_grow_with_old_files(any_layout: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    any_layout.land(LOADS[0])
    any_layout.land_changes(300, timedelta(hours=1))
    any_layout.run()
    stats = counted_stats(monkeypatch)
    listed = []
    for month in (2, 3, 4):
        any_layout.land_changes(336, timedelta(hours=2), START.replace(month=month))
        any_layout.run()
        stats.clear()
        found = any_layout.discover()
        assert (found.waiting, found.missing, found.listed_in_full_at) == ((), (), None)
        listed.append(found.listed)
        assert len([path for path in stats if path.startswith(any_layout.landing)]) == found.listed
    # A week and a day every two hours, a day more where folders hold hours or days, and the load.
    assert max(listed) <= 8 * 12 + 26
    assert listed[1] == listed[2] == pytest.approx(listed[0], abs=24)


def test_late_file_within_the_lookback_is_found_at_once(any_layout: Table) -> None:
    any_layout.land_changes(20, timedelta(days=1))
    any_layout.run()
    late = any_layout.land(any_layout.name(START + timedelta(days=12, hours=1)))
    assert any_layout.run() == [late]
    assert any_layout.run() == []


def test_file_beyond_the_lookback_is_found_daily(any_layout: Table) -> None:
    any_layout.land_changes(20, timedelta(days=1))
    any_layout.run()
    very_late = any_layout.land(any_layout.name(START + timedelta(days=2, hours=1)))
    assert any_layout.run() == []
    any_layout.now += timedelta(hours=23, minutes=59)
    assert any_layout.run() == []
    any_layout.now += timedelta(minutes=1)
    assert any_layout.run() == [very_late]
    assert any_layout.run() == []
    any_layout.now += timedelta(days=1)
    assert any_layout.run() == []


def test_full_listing_on_demand_finds_it(table: Table) -> None:
    table.land_changes(20, timedelta(days=1))
    table.run()
    very_late = table.land(table.name(START))
    os.utime(f"{table.landing}/{very_late}", ns=(1, 1))
    assert table.run() == []
    table.land("20230101-000000000.csv")
    assert table.run(full=True) == ["20230101-000000000.csv"]


def test_full_listing_of_an_idle_table_is_recorded(table: Table) -> None:
    table.land_changes(3, timedelta(days=1))
    table.run()
    table.now += timedelta(days=2)
    assert table.discover().listed_in_full_at == table.now.isoformat(timespec="microseconds")
    assert table.discover().listed_in_full_at is None
    table.now += timedelta(days=1)
    assert table.discover().listed_in_full_at is not None


def test_full_listing_of_an_interrupted_run_is_not_recorded(table: Table) -> None:
    table.land_changes(3, timedelta(hours=1))
    table.limits = replace(table.limits, max_files=1)
    assert len(table.run(batches=2)) == 2
    assert table.ledger().state.listed_in_full_at is None
    assert len(table.run()) == 1
    assert table.ledger().state.listed_in_full_at == table.now.isoformat(timespec="microseconds")


def test_interrupted_backlog_is_resumed(table: Table) -> None:
    names = table.land_changes(40, timedelta(days=1))
    table.limits = replace(table.limits, max_files=1)
    done: list[str] = []
    while committed := table.run(batches=1):
        done += committed
    assert done == names


def test_file_from_the_far_future_hides_no_files(table: Table) -> None:
    table.land_changes(2, timedelta(days=1))
    table.land("99990101-000000000.csv")
    assert len(table.run()) == 3
    late = table.land(table.name(START + timedelta(hours=1)))
    assert table.run() == [late]


def test_rewritten_files_are_found_and_touched_ones_are_not(table: Table) -> None:
    names = table.land_changes(10, timedelta(days=1))
    table.run()
    table.land(names[8], "I,2")
    table.land(names[9])
    os.utime(f"{table.landing}/{names[7]}", ns=(1, 1))
    found = table.discover()
    assert table.names(found.waiting) == [names[8]]
    assert sorted(found.touched) == [f"{table.landing}/{name}" for name in (names[7], names[9])]
    assert table.run() == [names[8]]
    again = table.discover()
    assert (again.waiting, again.touched) == ((), {}), "their new etags are kept: no second reading"


def test_a_touched_archived_file_is_read_once(table: Table) -> None:
    names = table.land_changes(200, timedelta(days=1))
    table.limits = replace(table.limits, max_files=4)
    table.run()
    table.land(names[0])
    assert f"{table.landing}/{names[0]}" not in table.ledger().entries()
    assert list(table.discover(full=True).touched) == [f"{table.landing}/{names[0]}"]
    assert table.discover(full=True).touched == {}


def test_a_rewritten_load_opens_a_generation_on_disk(table: Table) -> None:
    for name in LOADS:
        table.land(name)
    table.run()
    table.land(LOADS[0], "I,2")
    assert table.run() == [LOADS[0]]
    assert table.ledger().state.generation == 2
    table.land(LOADS[1])
    assert table.run() == [LOADS[1]], "written again with the same content, it is part of the reload"
    assert table.ledger().state.generation == 2
    assert table.run() == []


def test_parallel_load_folders_before_the_window_are_listed(table: Table) -> None:
    first = table.land("1/LOAD00000001.csv")
    names = table.land_changes(3, timedelta(days=1))
    assert table.run() == [first, *names]
    second = table.land("1/LOAD00000002.csv")
    assert table.run() == [second]
    assert table.discover().missing == ()


def test_unknown_names_are_counted_and_temporary_ones_are_not(table: Table) -> None:
    for name in ("notes.txt", "x/data.json", "_SUCCESS", ".part", "LOAD00000001.csv.tmp", LOADS[0]):
        table.land(name)
    table.land("2024", "")
    found = table.discover()
    assert (found.ignored, found.ignored_sample) == (2, ("notes.txt", "x/data.json"))
    assert table.names(found.waiting) == [LOADS[0]]


def test_longer_lookback_ingests_no_archived_file_again(table: Table) -> None:
    table.land_changes(100, timedelta(days=1))
    table.limits = replace(table.limits, max_files=2)
    table.run()
    assert table.ledger().archived_before is not None
    table.options = DmsOptions(lookback="90d")
    assert table.run() == []
    assert table.discover(full=True).waiting == ()


def test_unconfigured_layout_is_listed_in_full(tmp_path: Path) -> None:
    reported = Table.below(tmp_path, DmsOptions(date_partition="DDMMYYYY"))
    names = reported.land_changes(60, timedelta(days=1))
    reported.options = DmsOptions()
    assert reported.run() == names
    late = reported.land("31/12/2024/20240229-120000000.csv")
    assert reported.run() == [late]


def test_moved_landing_root_ingests_all_files_again(table: Table) -> None:
    names = table.land_changes(3, timedelta(days=1))
    table.run()
    moved = f"{table.landing}-moved"
    Path(table.landing).rename(moved)
    table.landing = moved
    found = table.discover(full=True)
    assert table.names(found.waiting) == names
    assert found.missing == ()


def test_on_s3_an_idle_run_is_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket()
    with serving(bucket) as url:
        settings = {"ENDPOINT": url, "ALLOW_HTTP": "true", "REGION": "eu-west-1", "ACCESS_KEY_ID": "k"}
        for name, value in {**settings, "SECRET_ACCESS_KEY": "s"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        table = Table("s3://bucket/landing/hr/employee", "s3://bucket/lake/_gddl/ledger/hr/employee")
        for number in range(1200):
            time = START + number * timedelta(hours=2)
            bucket.objects[f"landing/hr/employee/{table.name(time)}"] = b"I,1"
            table.now = time
        bucket.objects["landing/hr/employee/LOAD00000001.csv"] = b"I,1"
        table.limits = replace(table.limits, max_files=100)
        assert len(table.run()) == 1201
        bucket.requests.clear()
        found = table.discover()
    assert (found.waiting, found.listed) == ((), 7 * 12 + 2)
    # Ledger: listing, commit, rows. Landing: one listing.
    assert [request.split("/")[0].split(" ")[0] for request in bucket.requests] == ["GET"] * 4


def test_times_are_those_of_the_landing_file(table: Table) -> None:
    name = table.land(LOADS[0])
    os.utime(f"{table.landing}/{name}", (1_700_000_000, 1_700_000_000))
    (file,) = table.discover().waiting
    assert file.modified == "2023-11-14T22:13:20.000000+00:00"
    assert datetime.fromisoformat(file.modified).timestamp() == 1_700_000_000
    assert (file.kind, file.format, file.size, file.generation) == ("load", "csv", 3, 1)


def test_small_folder_is_listed_in_full_by_every_run(any_layout: Table) -> None:
    any_layout.cheap_names = 30
    any_layout.land_changes(20, timedelta(days=1))
    any_layout.run()
    very_late = any_layout.land(any_layout.name(START + timedelta(days=2, hours=1)))
    found = any_layout.discover()
    assert (any_layout.names(found.waiting), found.not_listed) == ([very_late], None)
    assert any_layout.run() == [very_late]
    any_layout.land_changes(20, timedelta(days=1), START + timedelta(days=20))
    any_layout.run()
    later = any_layout.land(any_layout.name(START + timedelta(days=3, hours=1)))
    assert any_layout.run() == [], "it is a large folder now"
    assert any_layout.run(full=True) == [later]


def test_an_idle_listing_of_a_small_folder_writes_nothing(table: Table) -> None:
    table.cheap_names = 30
    table.land_changes(3, timedelta(days=1))
    table.run()
    before = sorted(Path(table.state).rglob("*"))
    table.discover()
    table.discover()
    assert sorted(Path(table.state).rglob("*")) == before


def test_unlisted_days_of_a_large_folder_are_reported(table: Table) -> None:
    table.land_changes(20, timedelta(days=1))
    table.run()
    listed = table.now.isoformat(timespec="microseconds")
    table.now += timedelta(hours=5)
    found = table.discover()
    assert found.not_listed == NotListed(days=12, since=listed), "19 days, of which 7 are within the look-back"
    assert table.discover(full=True).not_listed is None


def test_new_folder_has_no_unlisted_days(table: Table) -> None:
    table.land_changes(5, timedelta(days=1))
    table.run()
    assert table.discover().not_listed is None


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that the dialect has parsed from now on; it grows."""
    found: list[str] = []
    classify = DmsDialect.classify

    def counting(dialect: DmsDialect, relative: str) -> Names | None:
        found.append(relative)
        return classify(dialect, relative)

    monkeypatch.setattr(DmsDialect, "classify", counting)
    return found


def test_what_was_ingested_is_counted_and_not_looked_at(table: Table, parsed: list[str]) -> None:
    """Late and rewritten files are found among many that were ingested, whose names are not even parsed."""
    table.cheap_names = 10_000
    table.land(LOADS[0])
    landed = table.land_changes(50, timedelta(hours=1))
    table.run()
    parsed.clear()
    late = table.land(table.name(START - timedelta(days=400)))
    table.land(landed[3], "U,2")
    Path(table.landing, landed[5]).unlink()
    odd = table.land("readme.txt")
    found = table.discover()
    assert sorted(table.names(found.waiting)) == sorted([late, landed[3]])
    assert [file.corrects for file in found.waiting if file.path.endswith(landed[3])] == [True]
    assert found.missing == (f"{table.landing}/{landed[5]}",)
    assert (found.listed, found.ignored_sample) == (52, (odd,))
    assert sorted(parsed) == sorted([LOADS[0], late, landed[3], odd])


def test_what_was_ingested_within_the_lookback_is_not_looked_at(any_layout: Table, parsed: list[str]) -> None:
    """The same in a large folder: what a run looks at is what is new, however many files came in these days."""
    any_layout.land(LOADS[0])
    landed = any_layout.land_changes(20, timedelta(days=1))
    any_layout.run()
    parsed.clear()
    any_layout.land(landed[-2], "U,2")
    Path(any_layout.landing, landed[-3]).unlink()
    new = any_layout.land(any_layout.name(any_layout.now))
    found = any_layout.discover()
    assert any_layout.names(found.waiting) == [landed[-2], new]
    assert found.missing == (f"{any_layout.landing}/{landed[-3]}",)
    assert found.not_listed is not None
    assert sorted(set(parsed)) == sorted([LOADS[0], landed[-2], new])


@pytest.fixture
def archives_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Archives of ledgers that are read from now on; it grows."""
    found: list[str] = []
    read = Storage.read_tagged

    def counting(storage: Storage, path: str) -> tuple[bytes, str]:
        if "/archive/" in path:
            found.append(path)
        return read(storage, path)

    monkeypatch.setattr(Storage, "read_tagged", counting)
    return found


def test_daily_listing_reads_archives_as_far_as_there_are_files_of_their_time(
    any_layout: Table, archives_read: list[str]
) -> None:
    """Where old files were removed, a full listing costs what is there, not all that ever was."""
    any_layout.land(LOADS[0])
    landed = any_layout.land_changes(120, timedelta(days=1))
    any_layout.limits = replace(any_layout.limits, max_files=1)
    any_layout.run()
    archived_before = any_layout.ledger().archived_before or ""
    archived = [name for name in landed if (any_layout.dialect.times.of(name) or "") < archived_before]
    for old in archived[:-1]:
        Path(any_layout.landing, old).unlink()
    any_layout.now += timedelta(days=2)
    new = any_layout.land(any_layout.name(any_layout.now))
    archives_read.clear()
    found = any_layout.discover()
    assert (any_layout.names(found.waiting), found.not_listed) == ([new], None)
    assert len(archives_read) == 1
    Path(any_layout.landing, archived[-1]).unlink()
    archives_read.clear()
    assert any_layout.names(any_layout.discover().waiting) == [new]
    assert archives_read == []
    late = any_layout.land(archived[0], "U,2")
    found = any_layout.discover()
    assert sorted(any_layout.names(found.waiting)) == sorted([late, new])
    assert [file.corrects for file in found.waiting if file.path.endswith(late)] == [True]
    assert len(set(archives_read)) == len(archives_read) > 1
    assert len(any_layout.discover(full=True).missing) == len(archived) - 1, "a user's listing finds all"


def test_a_link_that_leaves_after_it_was_ingested_is_refused(tmp_path: Path) -> None:
    """Also where its target is the very file that was read."""
    table = Table.below(tmp_path / "root" / "schema")
    table.cheap_names = 10_000
    (name,) = table.land_changes(1, timedelta(hours=1))
    table.run()
    file = Path(table.landing, name)
    outside = file.rename(tmp_path / "outside.csv")
    file.symlink_to(outside)
    found = table.discover()
    assert (found.refused, found.missing) == (1, (str(file),))
