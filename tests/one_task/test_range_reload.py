"""Reload of a time: what it reads, keeps and refuses, and that a killed one is resumed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Erase, Maintain, Rebuild, Reload, Verify
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.harness.asked import options_of, planned
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.spark.children import killed_child

SPEC = spec_of(history=True, settle="0s")
DAY = 86_400
FIRST = 1_704_067_200
"""The first of January 2024; a file of day N lands on the N-th."""
VERIFY = JobOptions(action=Verify())


def option(first: int, last: int, **fields: Any) -> JobOptions:
    """A reload of the files of these days, both included."""
    since, until = f"2024-01-{first:02d}", f"2024-01-{last + 1:02d}T00:00:00Z"
    fields = {"confirmed": True, **fields}
    return options_of(action="reload", full_listing=True, landed_since=since, landed_until=until, **fields)


def day(lake: Lake, number: int, rows: Sequence[tuple[str, int, str | None]], spec: TableSpec = SPEC) -> Path:
    lake.change(spec, number, rows, day=number)
    return dated(lake.landing(spec) / f"202401{number:02d}-{number:09d}.parquet", number)


def dated(path: Path, day: float) -> Path:
    moment = FIRST + (day - 1) * DAY + 3600
    os.utime(path, (moment, moment))
    return path


def filled(root: Path, spec: TableSpec = SPEC) -> Lake:
    """Three days of changes after a full load."""
    lake = Lake(root)
    lake.load(spec, 5)
    dated(lake.landing(spec) / "LOAD00000001.parquet", 1)
    day(lake, 2, [("U", 0, "new"), ("D", 4, None)], spec)
    day(lake, 3, [("U", 1, "two"), ("I", 7, "seven")], spec)
    day(lake, 4, [("U", 2, "three"), ("U", 7, "more")], spec)
    lake.done(spec)
    return lake


def refused(lake: Lake, options: JobOptions, code: str, spec: TableSpec = SPEC) -> ErrorInfo:
    """The error of a reload that has to fail, and changes nothing; the next run is a usual one."""
    before, version = lake.replica(spec), lake.rows(lake.layout(spec).changes)
    error = lake.result(spec, options).error
    assert error is not None
    assert error.code == code, error
    assert (lake.replica(spec), lake.rows(lake.layout(spec).changes)) == (before, version)
    assert lake.ledger(spec).plan() is None
    return error


def counts(result: JobResult) -> dict[str, int]:
    names = ("files", "change", "appear", "vanish", "archived", "replaced")
    return {name: result.details["reload"][name] for name in names}


def archived(lake: Lake, spec: TableSpec = SPEC) -> list[tuple[int, str]]:
    rows = lake.rows(lake.layout(spec).changes)
    return sorted((row["id"], row["v"]) for row in rows if row["_gddl"]["generation"] == 0)


def test_files_of_the_time_are_read_again(tmp_path: Path) -> None:
    """One change is another, one is gone, one is new; a later file has the last word on key 7."""
    lake = filled(tmp_path)
    day(lake, 3, [("U", 1, "TWO"), ("I", 8, "eight")])
    result = lake.done(SPEC, option(3, 3))
    assert counts(result) == {"files": 1, "change": 1, "appear": 1, "vanish": 0, "archived": 2, "replaced": 1}
    assert (result.rows_read, result.changes_written, result.mode) == (2, 2, "refresh")
    assert lake.replica(SPEC) == {0: "new", 1: "TWO", 2: "three", 3: "load 3", 7: "more", 8: "eight"}
    assert archived(lake) == [(1, "two"), (7, "seven")]
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"
    assert lake.done(SPEC).status == "skipped", "the ledger has the files as they are"
    before = lake.rows(lake.layout(SPEC).history)
    lake.done(SPEC, JobOptions(action=Rebuild()))
    assert lake.rows(lake.layout(SPEC).history) == before
    assert archived(lake) == [(1, "two"), (7, "seven")]


def test_a_correction_that_a_usual_run_has_taken_loses_its_former_rows(tmp_path: Path) -> None:
    """The usual run keeps rows that only the earlier version had."""
    lake = filled(tmp_path)
    day(lake, 3, [("U", 1, "TWO")])
    lake.done(SPEC)
    assert lake.replica(SPEC)[7] == "more"
    day(lake, 4, [("U", 2, "three")])
    lake.done(SPEC)
    assert lake.replica(SPEC)[7] == "more"
    lake.done(SPEC, option(3, 4))
    assert archived(lake) == [(1, "TWO"), (1, "two"), (7, "more"), (7, "seven")], "the right one comes again"
    assert 7 not in lake.replica(SPEC)


def test_it_asks_where_something_goes(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    day(lake, 3, [("U", 1, "two")])
    error = refused(lake, option(3, 4, confirmed=False), "RELOAD_UNCONFIRMED")
    assert "1 changes that no file holds" in error.message
    assert "--since 2024-01-03T00:00:00+00:00 --until 2024-01-05T00:00:00+00:00" in error.message
    day(lake, 3, [("U", 1, "TWO"), ("I", 7, "seven")])
    assert counts(lake.done(SPEC, option(3, 4, confirmed=False)))["change"] == 1, "nothing goes: it does not ask"


def test_files_are_of_the_time_when_they_landed_or_were_written_again(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    dated(day(lake, 3, [("U", 1, "TWO"), ("I", 7, "seven")]), 20)
    assert counts(lake.done(SPEC, option(20, 20)))["change"] == 1
    dated(day(lake, 2, [("U", 0, "NEW"), ("D", 4, None)]), 25)
    assert counts(lake.done(SPEC, option(2, 2)))["change"] == 1
    assert lake.replica(SPEC) == {0: "NEW", 1: "TWO", 2: "three", 3: "load 3", 7: "more"}


def test_new_files_wait_for_the_next_run(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    dated(day(lake, 9, [("I", 9, "nine")]), 3.5)
    assert counts(lake.done(SPEC, option(3, 3)))["files"] == 1
    assert 9 not in lake.replica(SPEC)
    assert lake.done(SPEC).files == 1
    assert lake.replica(SPEC)[9] == "nine"


def test_a_started_batch_is_finished_first(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    day(lake, 5, [("I", 9, "nine")])
    assert killed_child(lake.job([SPEC], run_id="dies"), "append").status == -9
    day(lake, 3, [("U", 1, "TWO"), ("I", 7, "seven")])
    day(lake, 6, [("I", 10, "ten")])
    lake.done(SPEC, option(3, 3))
    assert lake.replica(SPEC) == {0: "new", 1: "TWO", 2: "three", 3: "load 3", 7: "more", 9: "nine"}
    lake.done(SPEC)
    assert lake.replica(SPEC)[10] == "ten"


ONCE = ("plan", "staged", "checked", "swapping", "tombstones", "replica", "history", "quarantine")
TWICE = ("append", "commit", "committed")
"""First of the files as they are read, then of the tables."""


@pytest.mark.parametrize(("step", "time"), [(step, 1) for step in (*ONCE, *TWICE)] + [(step, 2) for step in TWICE])
def test_a_killed_one_is_resumed_by_a_usual_run(step: str, time: int, tmp_path: Path) -> None:
    lake = filled(tmp_path / "killed")
    other = filled(tmp_path / "whole")
    for one in (lake, other):
        day(one, 3, [("U", 1, "TWO"), ("D", 0, None)])
    assert killed_child(lake.job([SPEC], option(3, 3), run_id="dies"), step, time).status == -9
    day(lake, 5, [("I", 9, "nine")])
    result = lake.done(SPEC)
    assert result.mode == ("incremental" if (step, time) == ("committed", 2) else "refresh")
    lake.done(SPEC)
    other.done(SPEC, option(3, 3))
    day(other, 5, [("I", 9, "nine")])
    other.done(SPEC)
    assert (lake.replica(SPEC), archived(lake)) == (other.replica(SPEC), archived(other))
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"


def test_another_time_begins_again(tmp_path: Path) -> None:
    """What an interrupted one has read says nothing of another time, nor of a reload of all files."""
    lake = filled(tmp_path)
    day(lake, 3, [("U", 1, "TWO"), ("I", 7, "seven")])
    day(lake, 4, [("U", 2, "THREE"), ("U", 7, "more")])
    assert killed_child(lake.job([SPEC], option(3, 3), run_id="dies"), "staged").status == -9
    assert counts(lake.done(SPEC, option(4, 4)))["files"] == 1
    assert (lake.replica(SPEC)[1], lake.replica(SPEC)[2]) == ("two", "THREE")
    assert killed_child(lake.job([SPEC], option(3, 3), run_id="dies"), "staged").status == -9
    assert lake.done(SPEC, JobOptions(action=Reload(confirmed=True), full_listing=True)).details["reload"]["files"] == 4
    assert lake.replica(SPEC) == {0: "new", 1: "TWO", 2: "THREE", 3: "load 3", 7: "more"}


def test_files_that_are_gone_are_named(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    gone = lake.landing(SPEC) / "20240103-000000003.parquet"
    gone.unlink()
    assert str(gone) in refused(lake, option(2, 4), "RANGE_FILES_GONE").message
    assert counts(lake.done(SPEC, option(4, 4)))["files"] == 1


def test_a_time_without_files(tmp_path: Path) -> None:
    refused(filled(tmp_path), option(20, 21), "RANGE_EMPTY")


@pytest.mark.parametrize(
    ("since", "until"), [("yesterday", ""), ("2024-01-05", "2024-01-02"), ("2024-01-05", "2024-01-05T00:00:00Z")]
)
def test_a_range_that_is_no_time_or_empty_is_refused(since: str, until: str, tmp_path: Path) -> None:
    options = JobOptions(action=Reload(landed_since=since, landed_until=until))
    refused(filled(tmp_path), options, "RANGE_INVALID")


def test_a_file_that_cannot_be_read_any_more(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    path = lake.landing(SPEC) / "20240103-000000003.parquet"
    path.write_bytes(path.read_bytes()[:50])
    dated(path, 3)
    assert str(path) in refused(lake, option(3, 4), "RANGE_UNREADABLE").message


def test_a_file_that_could_not_be_read_is_mended(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    path = day(lake, 5, [("I", 9, "nine")])
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    dated(path, 5)
    assert lake.done(SPEC).files_in_quarantine == 1
    path.write_bytes(whole)
    dated(path, 5)
    result = lake.done(SPEC, option(5, 5, confirmed=False))
    assert (lake.replica(SPEC)[9], result.files_in_quarantine) == ("nine", 0)


def test_a_full_load_is_read_again_with_its_changes_alone(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    columns = {"id": pa.array([0, 1, 2, 3], pa.int32()), "v": ["mended 0", "mended 1", "mended 2", "mended 3"]}
    dated(write(lake.landing(SPEC), "LOAD00000001.parquet", pa.table(columns)), 1)
    message = refused(lake, option(1, 3), "RANGE_SPLITS_LOAD").message
    assert "LOAD00000001.parquet is a full load" in message
    assert "20240104-000000004.parquet" in message
    lake.done(SPEC, option(1, 4))
    assert lake.replica(SPEC) == {0: "new", 1: "two", 2: "three", 3: "mended 3", 7: "more"}
    assert lake.ledger(SPEC).state.generation == 1
    assert lake.done(SPEC).status == "skipped"


def test_a_full_load_that_is_as_it_was_hinders_nothing(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    day(lake, 2, [("U", 0, "NEW"), ("D", 4, None)])
    assert counts(lake.done(SPEC, option(1, 2)))["change"] == 1


TIMED = replace(SPEC, sequence_by=())
"""Ordered by commit time alone."""


def timed(lake: Lake, number: int, rows: Sequence[tuple[str, int, int, str | None]], *, name: str = "") -> Path:
    """A file of day N: operation, second of its commit, key, value."""
    columns = {
        "Op": [op for op, *_ in rows], "id": pa.array([key for _, _, key, _ in rows], pa.int32()),
        "v": pa.array([value for *_, value in rows], pa.string()),
        "dms_timestamp": pa.array([(FIRST + second) * 1_000_000 for _, second, _, _ in rows], pa.timestamp("us")),
    }  # fmt: skip
    file = name or f"202401{number:02d}-{number:09d}.parquet"
    return dated(write(lake.landing(TIMED), file, pa.table(columns)), number)


def test_at_one_commit_time_names_and_rows_of_files_order(tmp_path: Path) -> None:
    """A file between two others, which have changes of its key at the same time."""
    lake = Lake(tmp_path)
    timed(lake, 2, [("I", 1, 1, "a"), ("I", 1, 2, "first")])
    timed(lake, 3, [("U", 1, 1, "b"), ("U", 1, 1, "c"), ("U", 1, 2, "second")])
    timed(lake, 4, [("U", 1, 1, "d")])
    lake.done(TIMED)
    timed(lake, 3, [("U", 1, 1, "C"), ("U", 1, 2, "second"), ("D", 1, 2, None), ("I", 1, 3, "new")])
    assert counts(lake.done(TIMED, option(3, 3)))["files"] == 1
    assert lake.replica(TIMED) == {1: "d", 3: "new"}
    timed(lake, 4, [("I", 9, 4, "four")])
    lake.done(TIMED, option(4, 4))
    assert lake.replica(TIMED) == {1: "C", 3: "new", 4: "four"}
    assert lake.done(TIMED, VERIFY).details["verdict"] == "equal"
    before = lake.rows(lake.layout(TIMED).history)
    lake.done(TIMED, JobOptions(action=Reload(confirmed=True), full_listing=True))
    names = ("id", "v", "__start_at", "__end_at")
    assert [[row[n] for n in names] for row in lake.rows(lake.layout(TIMED).history)] == [
        [row[n] for n in names] for row in before
    ]


def test_what_repeats_another_file_at_a_commit_time_stays_as_it_was(tmp_path: Path) -> None:
    """The file repeats the end of the one before it, which was skipped: read alone, it has it again."""
    lake = Lake(tmp_path)
    timed(lake, 2, [("I", 1, 1, "a"), ("U", 1, 1, "b")])
    timed(lake, 3, [("U", 1, 1, "b"), ("U", 1, 1, "c")])
    assert lake.done(TIMED).redelivered == 1
    result = counts(lake.done(TIMED, option(3, 3, confirmed=False)))
    assert (result["archived"], result["change"]) == (0, 0)
    assert lake.replica(TIMED) == {1: "c"}


def test_a_commit_time_whose_other_changes_are_not_known_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    timed(lake, 2, [("I", 1, 1, "a")])
    repeats = timed(lake, 3, [("I", 1, 1, "a"), ("I", 5, 5, "five")])
    assert lake.done(TIMED).redelivered == 1
    timed(lake, 2, [("I", 1, 1, "a"), ("D", 1, 1, None)])
    assert str(repeats) in refused(lake, option(2, 2), "RANGE_OVERLAPS", TIMED).message
    lake.done(TIMED, option(2, 3))
    assert lake.replica(TIMED) == {1: "a", 5: "five"}, "the later file brings it back"


def test_files_of_the_time_that_repeat_each_other_around_another_are_refused(tmp_path: Path) -> None:
    """Read without the file between them, the last one is taken for a re-delivery of the first."""
    lake = Lake(tmp_path)
    timed(lake, 2, [("I", 1, 1, "a")])
    between = dated(timed(lake, 3, [("U", 1, 1, "b")]), 20)
    dated(timed(lake, 4, [("I", 1, 1, "a")]), 3)
    lake.done(TIMED)
    assert lake.replica(TIMED) == {1: "a"}
    assert str(between) in refused(lake, option(2, 4), "RANGE_OVERLAPS", TIMED).message


def test_files_of_an_hour_that_comes_twice_are_not_ordered_at_commit_times(tmp_path: Path) -> None:
    spec = replace(TIMED, options={"date_partition_timezone": "Europe/Berlin"})
    names = ("20241027-021000000.parquet", "20241027-023000000.parquet", "20241027-040000000.parquet")
    lake = Lake(tmp_path)
    for at, name in enumerate(names, start=1):
        timed(lake, 2, [("I", at, at, "a")], name=name)
    lake.done(spec)
    path = timed(lake, 2, [("I", 1, 1, "A")], name=names[0])
    assert path.name in refused(lake, option(2, 2), "RANGE_UNORDERED", spec).message
    timed(lake, 2, [("I", 1, 1, "a")], name=names[0])
    timed(lake, 2, [("I", 3, 3, "A")], name=names[2])
    lake.done(spec, option(2, 2))
    assert lake.replica(spec)[3] == "A"


def test_without_a_key_equal_rows_at_a_commit_time_are_not_decided(tmp_path: Path) -> None:
    spec = replace(TIMED, keys=(), history=False)
    lake = Lake(tmp_path)
    timed(lake, 2, [("I", 1, 1, "a")])
    lake.done(spec)
    error = lake.result(spec, option(2, 2)).error
    assert error is not None
    assert error.code == "RANGE_UNORDERED"


def test_the_same_time_is_read_again(tmp_path: Path) -> None:
    """Also where its files were last modified at another time when they were read."""
    lake = filled(tmp_path)
    dated(day(lake, 3, [("U", 1, "TWO"), ("I", 7, "seven")]), 20)
    assert counts(lake.done(SPEC, option(3, 3)))["change"] == 1
    for span in ((3, 3), (20, 20), (3, 20)):
        assert counts(lake.done(SPEC, option(*span, confirmed=False)))["change"] == 0, span
    dated(day(lake, 3, [("U", 1, "again"), ("I", 7, "seven")]), 25)
    assert counts(lake.done(SPEC, option(3, 3)))["change"] == 1
    assert lake.replica(SPEC)[1] == "again"


def test_a_change_that_another_file_had_too_is_no_loss(tmp_path: Path) -> None:
    """The other file's was skipped as a re-delivery, so that nothing would keep the change."""
    lake = filled(tmp_path)
    columns = {"Op": ["I", "I"], "seq": [301, 900], "id": pa.array([7, 9], pa.int32()), "v": ["seven", "nine"]}
    again = dated(write(lake.landing(SPEC), "20240105-000000001.parquet", pa.table(columns)), 5)
    assert lake.done(SPEC).redelivered == 1
    day(lake, 3, [("U", 1, "TWO")])
    assert str(again) in refused(lake, option(3, 3), "RANGE_OVERLAPS").message
    lake.done(SPEC, option(3, 5))
    assert lake.replica(SPEC) == {0: "new", 1: "TWO", 2: "three", 3: "load 3", 7: "more", 9: "nine"}
    assert archived(lake) == [(1, "two"), (7, "seven")], "the other file's is in its place"


def test_what_was_cut_for_its_age_is_not_brought_to_light(tmp_path: Path) -> None:
    """Key 7 had another row before the file's; maintenance has removed it, so that nobody can say what it is now."""
    spec = spec_of(settle="0s", changes_retention="1d")
    lake = filled(tmp_path, spec)
    later = datetime.now(UTC) + timedelta(days=400)
    assert lake.done(spec, JobOptions(action=Maintain()), clock=lambda: later).details["changes_cut"]
    right = lake.replica(spec)
    assert counts(lake.done(spec, option(2, 4)))["archived"] == 0, "files that are as they were lose nothing"
    assert lake.replica(spec) == right
    day(lake, 4, [("U", 2, "three")], spec)
    assert "changes_retention" in refused(lake, option(4, 4), "RANGE_NOT_KNOWN", spec).message


def test_a_lost_change_table_is_refused(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    shutil.rmtree(lake.layout(SPEC).changes)
    error = lake.result(SPEC, option(3, 3)).error
    assert error is not None
    assert error.code == "TABLES_MISSING"


def test_other_settings_of_the_row_need_their_rebuild_first(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    masked = replace(SPEC, mask={"v": "hash"})
    error = lake.result(masked, option(3, 3)).error
    assert error is not None
    assert error.code == "MASK_CHANGED"


def test_masks_and_soft_deletes_hold(tmp_path: Path) -> None:
    spec = replace(SPEC, mask={"v": "hash"}, delete="soft")
    lake = filled(tmp_path, spec)
    day(lake, 3, [("U", 1, "TWO"), ("D", 0, None)], spec)
    lake.done(spec, option(3, 3))
    other = Lake(tmp_path / "other")
    other.load(spec, 5)
    for number, rows in ((2, [("U", 0, "new"), ("D", 4, None)]), (3, [("U", 1, "TWO"), ("D", 0, None)]),
                         (4, [("U", 2, "three"), ("U", 7, "more")])):  # fmt: skip
        other.change(spec, number, rows, day=number)
    other.done(spec)
    assert _live(lake, spec) == _live(other, spec)
    assert "TWO" not in str(lake.rows(lake.layout(spec).changes))


def _live(lake: Lake, spec: TableSpec) -> list[tuple[int, str, bool]]:
    return sorted((row["id"], row["v"], row["_gddl"]["deleted"]) for row in lake.rows(lake.layout(spec).replica))


def test_erased_keys_stay_out(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    lake.done(SPEC, JobOptions(action=Erase(key={"id": "1"})))
    day(lake, 2, [("U", 0, "NEW"), ("D", 4, None)])
    lake.done(SPEC, option(2, 4))
    assert lake.replica(SPEC) == {0: "NEW", 2: "three", 3: "load 3", 7: "more"}


def test_the_quarantine_of_its_files_is_as_they_are_now(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    day(lake, 3, [("U", 1, "two"), ("X", 7, "seven")])
    lake.done(SPEC)
    day(lake, 5, [("X", 5, "later")])
    assert lake.done(SPEC).in_quarantine == 2
    day(lake, 3, [("U", 1, "two"), ("I", 7, "seven")])
    result = lake.done(SPEC, option(3, 3))
    assert result.in_quarantine == 1
    day(lake, 3, [("U", 1, "two"), ("Y", 7, "seven")])
    assert lake.done(SPEC, option(3, 3)).in_quarantine == 2


def test_a_dry_run_shows_its_files(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    details = lake.done(SPEC, planned(option(3, 4))).details
    assert [len(batch["files"]) for batch in details["batches"]] == [2]
    error = lake.result(SPEC, planned(option(20, 21))).error
    assert error is not None
    assert error.code == "RANGE_EMPTY"


def test_a_truncate_that_its_file_holds_no_more_is_taken_back(tmp_path: Path) -> None:
    spec = replace(SPEC, truncate="apply")
    lake = filled(tmp_path, spec)
    columns = {"Op": ["T", "I"], "seq": [500, 501], "id": pa.array([None, 9], pa.int32()), "v": [None, "nine"]}
    dated(write(lake.landing(spec), "20240105-000000005.parquet", pa.table(columns)), 5)
    lake.done(spec)
    assert lake.replica(spec) == {9: "nine"}
    assert counts(lake.done(spec, option(2, 5)))["change"] == 0, "a truncate that is still there stays"
    assert lake.replica(spec) == {9: "nine"}
    dated(write(lake.landing(spec), "20240105-000000005.parquet", pa.table(columns).slice(1)), 5)
    lake.done(spec, option(5, 5))
    assert lake.replica(spec) == {0: "new", 1: "two", 2: "three", 3: "load 3", 7: "more", 9: "nine"}


def landed(lake: Lake, spec: TableSpec, number: int, rows: Sequence[tuple[str, int, int | None, str | None]]) -> None:
    """A file of (operation, seq, id, v) in order; a change is forced where v begins with `forced`."""
    columns = {
        "Op": [one[0] for one in rows], "seq": [one[1] for one in rows],
        "id": pa.array([one[2] for one in rows], pa.int32()), "v": pa.array([one[3] for one in rows], pa.string()),
        "forced": [(one[3] or "").startswith("forced") for one in rows],
    }  # fmt: skip
    path = lake.landing(spec) / f"20240101-{number:09d}.parquet"
    write(path.parent, path.name, pa.table(columns))
    dated(path, number)


def as_it_is(lake: Lake, spec: TableSpec) -> list[Any]:
    """Replica, history, and the changes that count, by their keys and values."""
    changes = [row for row in lake.rows(lake.layout(spec).changes) if row["_gddl"]["generation"]]
    shown = [(row["id"], row["seq"], row["v"], row["_gddl"]["source_file"]) for row in changes]
    history = [(row["id"], row["v"], row["__start_at"]) for row in lake.rows(lake.layout(spec).history)]
    return [lake.replica(spec), sorted(history, key=str), sorted(shown, key=str)]


def test_a_repeat_that_was_skipped_stays_so(tmp_path: Path) -> None:
    """A file has another change of the key before it, at the same place."""
    lake, spec = Lake(tmp_path), replace(SPEC, tie_break="last_arrival")
    lake.load(spec, 1)
    dated(lake.landing(spec) / "LOAD00000001.parquet", 1)
    landed(lake, spec, 2, [("U", 100, 0, "first")])
    landed(lake, spec, 3, [("U", 100, 0, "other"), ("U", 100, 0, "first")])
    lake.done(spec)
    before = as_it_is(lake, spec)
    assert before[0] == {0: "other"}
    lake.done(spec, option(1, 9))
    assert as_it_is(lake, spec) == before


def test_a_truncate_stays_when_it_came_whichever_file_has_it_first_now(tmp_path: Path) -> None:
    """A forced change after it stays; another file, of an earlier name, has brought the truncate once more."""
    lake, spec = Lake(tmp_path), replace(SPEC, truncate="apply", force_update="forced")
    lake.load(spec, 1)
    dated(lake.landing(spec) / "LOAD00000001.parquet", 1)
    landed(lake, spec, 5, [("T", 600, None, None), ("I", 500, 2, "forced")])
    lake.done(spec)
    landed(lake, spec, 3, [("T", 600, None, None)])
    lake.done(spec)
    before = as_it_is(lake, spec)
    assert before[0] == {2: "forced"}
    lake.done(spec, option(1, 9))
    assert as_it_is(lake, spec) == before
