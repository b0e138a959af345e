"""Files that could not be read are read again by a replay of the quarantine, once their cause is corrected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.actions import HandleErrors, Reload
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.runtime.state.table_status import judge
from spark_jobs.ledger.ledger import BatchCommit, Ledger
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable, spec_of
from tests.harness.landing import write_bytes
from tests.unit.test_table_status import ROW

WRONG = spec_of(settle="0s")
"""The row does not say that files of CSV have a header."""
RIGHT = replace(WRONG, options={"csv_header": True})
REPLAY = JobOptions(action=HandleErrors(mode="replay"))
COMMIT = Ledger.commit
HEADER = "Op,seq,id,v\n"


def land(lake: Lake, name: str, *lines: str) -> Path:
    return write_bytes(lake.landing(WRONG), name, (HEADER + "".join(f"{line}\n" for line in lines)).encode())


def codes(lake: Lake, spec: TableSpec = RIGHT) -> dict[str, int]:
    listed = lake.done(spec, JobOptions(action=HandleErrors())).details["codes"]
    return {code["code"]: code["rows"] for code in listed}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.load(WRONG)
    made.done(WRONG)
    return made


def attention(*results: JobResult) -> tuple[str, ...]:
    record = TableRecord()
    for result in results:
        record = record.after(result, 0.0)
    return judge(replace(ROW, table=WRONG.table, freshness=None), record, 0.0).attention


def test_corrected_row_reads_them(lake: Lake, engine: LocalPort) -> None:
    lake = replace(lake, port=engine)
    land(lake, "20240101-000000001.csv", "U,100,0,old", "U,101,1,one")
    land(lake, "20240101-000000002.csv", "D,200,2,")
    bad = lake.done(WRONG)
    assert [(w.code, w.count) for w in bad.warnings] == [("FILE_UNREADABLE", 2)]
    lake.change(WRONG, 3, [("U", 0, "newer")])
    later = lake.done(RIGHT)
    assert lake.replica(RIGHT) == {0: "newer", 1: "load 1", 2: "load 2"}
    assert attention(bad, later) == ("FILE_UNREADABLE",)
    replayed = lake.done(RIGHT, REPLAY)
    assert (replayed.files, replayed.rows_read, replayed.quarantined) == (2, 3, 0)
    assert lake.replica(RIGHT) == {0: "newer", 1: "one"}
    assert codes(lake) == {}
    assert attention(bad, later, replayed) == ()
    assert lake.done(RIGHT, REPLAY).files == 0
    assert lake.done(RIGHT).status == "skipped"


def test_what_can_still_not_be_read_stays_once(lake: Lake) -> None:
    land(lake, "20240101-000000001.csv", "U,100,0,old")
    gone = land(lake, "20240101-000000002.csv", "U,200,1,gone")
    bad = lake.done(WRONG)
    gone.unlink()
    for _ in range(2):
        again = lake.done(WRONG, REPLAY)
        assert [(w.code, w.count) for w in again.warnings] == [("FILE_UNREADABLE", 1)]
        assert codes(lake) == {"FILE_UNREADABLE": 2}
        assert attention(bad, again) == ("FILE_UNREADABLE",)
    lake.done(RIGHT, REPLAY)
    assert lake.replica(RIGHT) == {0: "old", 1: "load 1", 2: "load 2"}
    assert codes(lake) == {"FILE_UNREADABLE": 1}


def test_replay_reads_no_file_that_waits_for_a_run(lake: Lake) -> None:
    land(lake, "20240101-000000001.csv", "U,100,0,old")
    lake.done(WRONG)
    lake.change(WRONG, 2, [("U", 1, "later")])
    assert lake.done(RIGHT, REPLAY).files == 1
    assert lake.replica(RIGHT) == {0: "old", 1: "load 1", 2: "load 2"}
    lake.done(RIGHT)
    assert lake.replica(RIGHT) == {0: "old", 1: "later", 2: "load 2"}


@pytest.mark.parametrize(("code", "files"), [("CAST_FAILED", 0), ("FILE_UNREADABLE", 1), ("FILE_TOO_LARGE", 1)])
def test_codes_of_files_choose_all_of_them(lake: Lake, code: str, files: int) -> None:
    land(lake, "20240101-000000001.csv", "U,100,0,old")
    lake.done(WRONG)
    assert lake.done(RIGHT, JobOptions(action=HandleErrors(mode="replay", codes=(code,)))).files == files


def test_raised_limit_of_the_tier_reads_what_was_too_large(lake: Lake) -> None:
    lake.change(WRONG, 1, [("I", i, "x" * 40_000) for i in range(10, 60)])
    small = replace(lake, tier=replace(lake.tier, max_inflated_bytes=1_000_000))
    assert [w.code for w in small.done(WRONG).warnings] == ["FILE_UNREADABLE"]
    assert codes(small, WRONG) == {"FILE_TOO_LARGE": 1}
    assert lake.done(WRONG).status == "skipped"
    assert lake.done(WRONG, REPLAY).rows_read == 50
    assert len(lake.replica(WRONG)) == 53


def test_load_that_begins_a_full_load_is_read_by_the_corrected_row(tmp_path: Path) -> None:
    """Changes wait for it, so that they are newer than its rows."""
    lake = Lake(tmp_path)
    landing = Path(lake.layout(RIGHT).landing)
    landing.mkdir(parents=True)
    (landing / "LOAD00000001.csv").write_text("id,v\n0,load 0\n1,load 1\n")
    lake.done(RIGHT)
    (landing / "LOAD00000001.csv").write_text("id,v\n0,again 0\n1,again 1\n")
    assert LakeTable(lake, WRONG).refused().code == "LOAD_UNREADABLE"
    lake.change(RIGHT, 5, [("U", 0, "changed")])
    assert LakeTable(lake, WRONG).refused().code == "LOAD_UNREADABLE"
    assert lake.replica(RIGHT) == {"0": "load 0", "1": "load 1"}
    lake.done(RIGHT)
    assert lake.replica(RIGHT) == {"0": "changed", "1": "again 1"}
    assert codes(lake) == {}


def test_load_that_was_dismissed_is_left_to_a_reload(tmp_path: Path) -> None:
    """Changes that were ingested since are newer than its rows."""
    lake = Lake(tmp_path)
    landing = Path(lake.layout(RIGHT).landing)
    landing.mkdir(parents=True)
    (landing / "LOAD00000001.csv").write_text("id,v\n0,load 0\n1,load 1\n")
    lake.done(RIGHT)
    (landing / "LOAD00000001.csv").write_text("id,v\n0,again 0\n1,again 1\n")
    lake.change(RIGHT, 5, [("U", 0, "changed")])
    assert LakeTable(lake, WRONG).refused().code == "LOAD_UNREADABLE"
    lake.done(WRONG, JobOptions(action=HandleErrors(mode="dismiss", codes=("FILE_UNREADABLE",), reason="not needed")))
    lake.done(RIGHT)
    left = lake.done(RIGHT, REPLAY)
    assert [(w.code, w.count) for w in left.warnings] == [("FILE_UNREADABLE", 1), ("LOAD_INCOMPLETE", 1)]
    assert "gddl reload --from-files" in left.warnings[0].message
    assert lake.replica(RIGHT) == {"0": "changed", "1": "load 1"}
    lake.done(RIGHT, JobOptions(action=Reload(confirmed=True)))
    assert lake.replica(RIGHT) == {"0": "changed", "1": "again 1"}


def test_load_beside_others_is_read_below_the_changes(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(RIGHT, 1)
    (Path(lake.layout(RIGHT).landing) / "LOAD00000002.csv").write_text("id,v\n7,load 7\n8,load 8\n9,load 9\n")
    assert LakeTable(lake, WRONG).refused().code == "FIRST_LOAD_UNREADABLE"
    lake.change(RIGHT, 1, [("U", 7, "changed"), ("D", 8, None)])
    assert LakeTable(lake, WRONG).refused().code == "FIRST_LOAD_UNREADABLE"
    lake.done(RIGHT)
    assert lake.replica(RIGHT) == {0: "load 0", 7: "changed", 9: "load 9"}


def test_newer_full_load_has_taken_the_place_of_older_files(lake: Lake) -> None:
    land(lake, "20240101-000000001.csv", "U,100,0,older than the load")
    lake.done(WRONG)
    rows = pa.table({"id": pa.array([0, 1], pa.int32()), "v": ["again 0", "again 1"]})
    pq.write_table(rows, Path(lake.layout(WRONG).landing) / "LOAD00000001.parquet")
    lake.done(RIGHT)
    assert lake.done(RIGHT, REPLAY).files == 0
    assert lake.replica(RIGHT)[0] == "again 0"


def _broken_at_files(self: Ledger, outcome: BatchCommit) -> None:
    if outcome.plan.files:
        raise KeyboardInterrupt
    COMMIT(self, outcome)


def test_replay_goes_on_where_it_broke_off(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, "20240101-000000001.csv", "U,100,0,a")
    lake.done(WRONG)
    with monkeypatch.context() as patch:
        patch.setattr("spark_jobs.ledger.ledger.Ledger.commit", _broken_at_files)
        with pytest.raises(KeyboardInterrupt):
            lake.run(RIGHT, REPLAY)
    lake.done(RIGHT)
    assert lake.replica(RIGHT)[0] == "a"
    assert codes(lake) == {}


def test_a_replayed_file_without_the_key_stays_in_quarantine(lake: Lake) -> None:
    path = Path(lake.layout(WRONG).landing) / "20240101-000000001.csv"
    path.write_text("Op,seq,other\nU,100,0\n")
    lake.done(WRONG)
    lake.done(RIGHT, REPLAY)
    assert codes(lake) == {"FILE_KEY_MISSING": 1}
    lake.change(WRONG, 2, [("U", 1, "later")])
    assert lake.done(RIGHT).rows_read == 1
    assert lake.replica(RIGHT) == {0: "load 0", 1: "later", 2: "load 2"}
    assert codes(lake) == {"FILE_KEY_MISSING": 1}
