"""The comparison of a listing with the ledger, docs/semantics.md section 2."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from spark_jobs.plan.planned_batch import BatchPlan, FileEntry, GenerationFloor, LandedFile, TableState
from spark_jobs.plan.source_snapshots import KnownSnapshots, SnapshotRun
from spark_jobs.plan.waiting_files import Discovery, Overtaken, find, with_begun, with_overtaken
from tests.harness.landed import LANDING, content, entry, landed

FIRST = TableState(batch=1, generation=1)


def known(*entries: FileEntry) -> dict[str, FileEntry]:
    return {row.path: row for row in entries}


def found(listing: Iterable[LandedFile], *entries: FileEntry, state: TableState = FIRST) -> Discovery:
    return find(listing, known(*entries), state, content)


def waiting(discovery: Discovery) -> list[tuple[str, int]]:
    return [(file.path.removeprefix(f"{LANDING}/"), file.generation) for file in discovery.waiting]


def test_first_files_are_generation_one_loads_before_changes_in_order() -> None:
    names = [
        "20240102-000000000.csv",
        "20240101-000000000.csv",
        "LOAD00000010.csv",
        "LOAD0000000A.csv",
        "LOAD00000009.csv",
    ]
    discovery = found(map(landed, names), state=TableState())
    assert waiting(discovery) == [(name, 1) for name in reversed(names)]
    assert discovery.waiting[0].fingerprint == "content:etag-1"


def test_known_files_cost_no_fingerprint() -> None:
    files = [landed("LOAD00000001.csv"), landed("20240101-000000000.csv")]

    def refuse(file: LandedFile) -> str:
        raise AssertionError(f"fingerprint of {file.path} asked for")

    assert find(files, known(*map(entry, files)), FIRST, refuse) == Discovery()


def test_a_rewritten_change_file_waits_in_the_current_generation() -> None:
    old, new = landed("20240101-000000000.csv"), landed("20240101-000000000.csv", 2)
    discovery = found([new], entry(old))
    assert waiting(discovery) == [("20240101-000000000.csv", 1)]
    assert discovery.waiting[0].fingerprint == "content:etag-2"


def test_first_file_of_a_load_opens_a_generation_after_changes_without_keys() -> None:
    """With keys a row of the load loses to every change of it."""
    load = [landed("LOAD00000000.parquet", 2), landed("LOAD00000001.parquet", 3)]
    change = entry(landed("20240101-000000000.csv"))
    for keys, generation in (((), 2), (("id",), 1)):
        discovery = found(load, change, state=replace(FIRST, keys=keys))
        assert waiting(discovery) == [("LOAD00000000.parquet", generation), ("LOAD00000001.parquet", generation)]
    assert {number for _, number in waiting(found(load, state=TableState()))} == {1}


def test_a_touched_file_does_not_wait() -> None:
    old, new = landed("20240101-000000000.csv"), landed("20240101-000000000.csv", 9, etag="etag-1+touched")
    discovery = found([new], entry(old))
    assert discovery.waiting == ()
    assert discovery.touched == {new.path: ("content:etag-1", "etag-1+touched")}


def test_a_rewritten_load_of_the_current_generation_opens_the_next() -> None:
    old = entry(landed("LOAD00000001.csv"))
    discovery = found([landed("LOAD00000001.csv", 2), landed("LOAD00000002.csv", 2)], old)
    assert waiting(discovery) == [("LOAD00000001.csv", 2), ("LOAD00000002.csv", 2)]


def test_a_rewritten_load_of_an_older_generation_continues_the_current_one() -> None:
    second = TableState(batch=2, generation=2)
    rows = [entry(landed("LOAD00000001.csv", 2), generation=2), entry(landed("LOAD00000002.csv"), generation=1)]
    discovery = found([landed("LOAD00000001.csv", 2), landed("LOAD00000002.csv", 2)], *rows, state=second)
    assert waiting(discovery) == [("LOAD00000002.csv", 2)]


def test_a_new_load_continues_the_current_generation() -> None:
    second = TableState(batch=2, generation=2)
    assert waiting(found([landed("LOAD00000002.csv")], state=second)) == [("LOAD00000002.csv", 2)]


def test_unchanged_rewritten_load_file_belongs_to_the_reload() -> None:
    rows = [entry(landed("LOAD00000001.csv")), entry(landed("LOAD00000002.csv"))]
    first, second = landed("LOAD00000001.csv", 2), landed("LOAD00000002.csv", 2, etag="etag-1+touched")
    together = found([first, second], *rows)
    assert waiting(together) == [("LOAD00000001.csv", 2), ("LOAD00000002.csv", 2)]
    assert together.touched == {}
    # One after the other, in both orders: a store whose ETag is a digest tells only a new time.
    after = [entry(first, generation=2), rows[1]]
    same_etag = landed("LOAD00000002.csv", 1, modified="2024-01-02T00:00:00.000000+00:00")
    assert waiting(found([first, same_etag], *after, state=TableState(batch=2, generation=2))) == [
        ("LOAD00000002.csv", 2)
    ]
    noted = replace(rows[1], etag=second.etag)
    assert waiting(found([first, second], rows[0], noted)) == [("LOAD00000001.csv", 2), ("LOAD00000002.csv", 2)]


def test_untouched_load_file_is_not_part_of_the_reload() -> None:
    rows = [entry(landed("LOAD00000001.csv")), entry(landed("LOAD00000002.csv"))]
    discovery = found([landed("LOAD00000001.csv", 2), landed("LOAD00000002.csv")], *rows)
    assert waiting(discovery) == [("LOAD00000001.csv", 2)]


def test_changes_written_before_the_reload_stay_in_the_generation_it_ends() -> None:
    old = entry(landed("LOAD00000001.csv"))
    before = landed("20240102-000000000.csv", modified="2024-01-02T00:00:00.000000+00:00")
    after = landed("20240104-000000000.csv", modified="2024-01-04T00:00:00.000000+00:00")
    discovery = found([landed("LOAD00000001.csv", 3), before, after], old)
    assert waiting(discovery) == [
        ("20240102-000000000.csv", 1),
        ("LOAD00000001.csv", 2),
        ("20240104-000000000.csv", 2),
    ]


def test_unreadable_files_wait_when_they_change_and_open_no_generation() -> None:
    load, change = landed("LOAD00000001.csv"), landed("20240101-000000000.csv")
    bad = [replace(entry(file), state="unreadable", rows=None) for file in (load, change)]
    assert found([load, change], *bad).waiting == ()
    again = found([landed("LOAD00000001.csv", 2), landed("20240101-000000000.csv", 2)], *bad)
    assert waiting(again) == [("LOAD00000001.csv", 1), ("20240101-000000000.csv", 1)]
    same = landed("LOAD00000001.csv", 2, etag="etag-1+touched")
    assert found([same], bad[0]).waiting == ()


def test_missing_files_are_reported_also_during_the_listing() -> None:
    kept, gone, vanishing = landed("LOAD00000001.csv"), landed("LOAD00000002.csv"), landed("LOAD00000003.csv", 2)

    def fingerprint(file: LandedFile, _known: FileEntry | None) -> str:
        raise FileNotFoundError(file.path)

    rows = known(entry(kept), entry(gone), entry(landed("LOAD00000003.csv")))
    discovery = find([kept, vanishing, landed("LOAD00000004.csv")], rows, FIRST, fingerprint)
    assert discovery.waiting == ()
    assert discovery.missing == (gone.path, vanishing.path)


def test_without_takes_the_planned_files_off() -> None:
    discovery = found(map(landed, ["LOAD00000001.csv", "LOAD00000002.csv"]), state=TableState())
    plan = BatchPlan(number=1, mode="initial", planned_at="", generation=1, files=discovery.waiting[:1])
    assert waiting(discovery.without(plan)) == [("LOAD00000002.csv", 1)]


def test_full_listing_is_void_with_an_older_version_in_the_plan() -> None:
    listed = replace(found([landed("LOAD00000001.csv", 2)], state=TableState()), listed_in_full_at="2024-01-02")
    same = BatchPlan(number=1, mode="initial", planned_at="", generation=1, files=listed.waiting)
    assert listed.without(same).listed_in_full_at == "2024-01-02"
    older = replace(same, files=(replace(listed.waiting[0], etag="etag-1"),))
    assert listed.without(older) == Discovery()


def test_a_change_written_before_the_reload_that_was_ingested_belongs_to_the_generation_that_it_ended() -> None:
    load = entry(landed("LOAD00000001.csv", 5), generation=2)
    names = {version: f"2024010{version}-000000000.csv" for version in (4, 5, 6)}
    listing = [landed("LOAD00000001.csv", 5), *(landed(name, version) for version, name in names.items())]
    state = TableState(batch=4, generation=2)
    assert waiting(found(listing, load, state=state)) == [(names[4], 1), (names[5], 2), (names[6], 2)]
    older = entry(landed("LOAD00000001.csv", 5), generation=1)
    assert {number for _, number in waiting(found(listing, older, state=state))} == {2}


def test_a_reload_is_overtaken_by_changes_of_its_generation_that_were_written_after_it() -> None:
    old = entry(landed("LOAD00000001.csv"))
    discovery = found([landed("LOAD00000001.csv", 5)], old)
    late = Overtaken(changes=1, change=landed("20240101-000000000.csv", 6).path, load=old.path)
    for version, overtaken in ((4, None), (5, None), (6, late)):
        change = entry(landed("20240101-000000000.csv", version))
        assert with_overtaken(discovery, [old, change], 1).overtaken == overtaken
    later = entry(landed("20240101-000000000.csv", 6))
    assert with_overtaken(found([landed("LOAD00000002.csv", 5)], old), [old, later], 1).overtaken is None


def test_the_first_load_of_a_generation_that_a_missing_folder_opened_is_late_after_changes() -> None:
    old = entry(landed("LOAD00000001.csv"))
    state = TableState(
        batch=4, generation=2, max_sequence="2", floors=(GenerationFloor(), GenerationFloor("1")),
        max_commit_ts="2024-01-03T00:00:00.000000+00:00",
    )  # fmt: skip
    discovery = found([landed("LOAD00000001.csv", 5)], old, state=state)
    assert discovery.late_loads == (f"{LANDING}/LOAD00000001.csv",)
    own = entry(landed("LOAD00000002.csv", 2), generation=2)
    assert found([landed("LOAD00000001.csv", 5)], old, own, state=state).late_loads == ()


CHANGED = entry(landed("20240101-000000000.csv", modified="2024-01-05T00:00:00.000000+00:00"))
LOADED = entry(landed("LOAD00000001.csv", 1))
OTHER_LOAD = entry(landed("LOAD00000002.csv", 1))
NEW = landed("LOAD00000001.csv", 9)


@pytest.mark.parametrize(("listing", "rows", "begins"), [
    ([NEW], [LOADED, CHANGED], ["LOAD00000001.csv"]),
    ([NEW, landed("20240109-000000000.csv", 9)], [LOADED, OTHER_LOAD, CHANGED], ["LOAD00000001.csv"]),
    ([NEW], [LOADED], []),  # no changes
    ([NEW, landed("20240101-000000000.csv", 9)], [LOADED, CHANGED], []),  # a change is still there
    ([NEW, landed("LOAD00000002.csv", 1)], [LOADED, OTHER_LOAD, CHANGED], []),  # and so is a load
    ([NEW, landed("LOAD00000002.csv", 9)], [LOADED, OTHER_LOAD, CHANGED], ["LOAD00000001.csv", "LOAD00000002.csv"]),
    ([landed("LOAD00000001.csv", 3)], [LOADED, CHANGED], []),  # written before the changes
    ([landed("LOAD00000001.csv", 5, etag="new")], [LOADED, CHANGED], ["LOAD00000001.csv"]),  # at the same time
    ([NEW], [LOADED, replace(CHANGED, generation=0)], []),
    ([NEW], [LOADED, replace(CHANGED, state="unreadable")], []),
])  # fmt: skip
def test_load_after_all_files_were_removed_begins(
    listing: list[LandedFile], rows: list[FileEntry], begins: list[str]
) -> None:
    marked = with_begun(listing, known(*rows), FIRST)
    assert [file.path.removeprefix(f"{LANDING}/") for file in marked if file.begins] == begins
    assert [file.path for file in marked] == [file.path for file in listing]


@pytest.mark.parametrize(("state", "batch", "named"), [
    ("unreadable", 2, True), ("unreadable", 3, True), ("unreadable", 1, False), ("committed", 2, False),
])  # fmt: skip
def test_change_files_that_could_not_be_read_since_the_newest_snapshot(state: Any, batch: int, named: bool) -> None:
    file = landed("20240101-000000000.csv")
    snapshots = KnownSnapshots(runs=(SnapshotRun(generation=1, position="p", batch=2),))
    rows = replace(entry(file, batch=batch), state=state)
    discovery = found([file], rows, state=replace(FIRST, batch=3, snapshots=snapshots))
    assert discovery.unreadable_changes == ((file.path,) if named else ())
