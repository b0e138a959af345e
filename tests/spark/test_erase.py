"""The right to be forgotten on Spark, with deletion vectors: rows are gone from the files in use, not only marked."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.actions import Erase, Maintain, Reload, Verify
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write, written_before
from tests.spark.test_maintenance import TIER, done

NAME = "Ada Lovelace"


@pytest.mark.deep
def test_an_erasure_writes_files_with_deletion_vectors_again(tmp_path: Path) -> None:
    port, spec = LocalPort("many"), spec_of(history=True, before_image_prefix="BI_")
    lake = Lake(tmp_path, TIER)
    columns = {"id": pa.array(range(1000), pa.int32()), "v": [NAME if i == 7 else f"v{i}" for i in range(1000)]}
    write(Path(lake.layout(spec).landing), "LOAD00000001.parquet", pa.table(columns))
    moved = {"Op": ["U", "U", "?"], "seq": [1, 2, 3], "id": pa.array([7, 2000, 7], pa.int32()),
             "v": [f"{NAME} 2", "moved", NAME], "BI_id": pa.array([None, 7, None], pa.int32()),
             "BI_v": [None, f"{NAME} 2", None]}  # fmt: skip
    write(Path(lake.layout(spec).landing), "20240101-000000001.parquet", pa.table(moved))
    done(lake, spec, JobOptions(), port)
    asked = JobOptions(action=Erase(key={"id": "7"}))
    reported = done(lake, spec, asked, port).details
    assert (reported["removed"]["changes"], reported["removed"]["before_images"], reported["removed"]["errors"]) == (
        2,
        1,
        1,
    )
    layout = lake.layout(spec)
    for path in (layout.changes, layout.replica, layout.history, layout.errors):
        assert [row for row in port.read(path) if NAME in str(row) or row.get("id") == 7] == []
        for file in files_in_use(port, path):
            assert NAME not in str(pq.read_table(file).to_pylist()), file
    again = Path(layout.landing, "20240101-000000002.parquet")
    written_before(write(again.parent, again.name, pa.table({**moved, "seq": [11, 12, 13]})))
    result = done(lake, spec, JobOptions(), port)
    assert {w.code: w.count for w in result.warnings if w.code == "ERASED_SKIPPED"} == {"ERASED_SKIPPED": 2}
    assert [row for row in port.read(layout.changes) if NAME in str(row)] == []
    assert done(lake, spec, JobOptions(action=Verify()), port).details["verdict"] == "equal"


def test_erasure_covers_moved_rows_and_logs_no_key(tmp_path: Path) -> None:
    port, spec = LocalPort("many"), spec_of(before_image_prefix="BI_")
    lake = Lake(tmp_path, TIER)
    lake.load(spec, 20)
    moves = {"Op": ["U", "U"], "seq": [1, 2], "id": pa.array([7777, 30], pa.int32()), "v": [NAME, "moved"],
             "BI_id": pa.array([5, 7], pa.int32()), "BI_v": ["load 5", "load 7"]}  # fmt: skip
    folder, layout = Path(lake.layout(spec).landing), lake.layout(spec)
    write(folder, "20240101-000000001.parquet", pa.table(moves))
    done(lake, spec, JobOptions(), port)
    result = done(lake, spec, JobOptions(action=Erase(key={"id": "7777"})), port)
    assert (result.details["removed"]["changes"], result.details["removed"]["replica"]) == (1, 1)
    assert {w.code: w.sample for w in result.warnings}["ERASED_KEY_MOVED"] == ('{"id": "5"}',)
    ids = {*range(20), 30} - {5, 7}
    assert {row["id"] for row in port.read(layout.replica)} == ids
    (turned,) = [row for row in port.read(layout.changes) if row["_gddl"]["op"] == "D"]
    assert (turned["id"], turned["v"], turned["BI_id"], turned["BI_v"]) == (5, None, None, None)
    assert done(lake, spec, JobOptions(action=Verify()), port).details["verdict"] == "equal"
    reported = [line for path in (layout.changes, layout.replica) for file in Path(path, "_delta_log").glob("*.json")
            for line in file.read_text().splitlines() if "commitInfo" in line]  # fmt: skip
    assert reported
    assert [line for line in reported if "7777" in line] == []
    write(folder, "20240101-000000002.parquet", pa.table(moves))
    assert done(lake, spec, JobOptions(), port).redelivered == 2
    done(lake, spec, JobOptions(action=Reload(confirmed=True)), port)
    assert {row["id"] for row in port.read(layout.replica)} == ids


@pytest.mark.deep
def test_reused_key_is_loaded_after_erasure(tmp_path: Path) -> None:
    """As on the other engine: by changes and by a load, with late rows and a rebuild after."""
    port, spec = LocalPort("many"), spec_of(before_image_prefix="BI_")
    lake = Lake(tmp_path, TIER)
    lake.load(spec, 9)
    lake.change(spec, 1, [("U", 7, NAME)])
    done(lake, spec, JobOptions(), port)
    result = done(lake, spec, JobOptions(action=Erase(key={"id": "7"})), port)
    assert (result.main.deleted, result.main.rows) == (1, 8)
    folder, layout = Path(lake.layout(spec).landing), lake.layout(spec)
    moved = {"Op": ["U"], "seq": [501], "id": pa.array([70], pa.int32()), "v": ["Grace moved"],
             "BI_id": pa.array([7], pa.int32()), "BI_v": ["Grace"]}  # fmt: skip
    lake.change(spec, 4, [("I", 7, "Grace"), ("I", 20, "n")])
    assert done(lake, spec, JobOptions(), port).main.rows == 10
    lake.change(spec, 1, [("U", 7, NAME)], day=2)
    (folder / "20240103-000000001.parquet").write_bytes((folder / "LOAD00000001.parquet").read_bytes())
    late = done(lake, spec, JobOptions(), port)
    assert {w.code: w.count for w in late.warnings if w.code == "ERASED_SKIPPED"} == {"ERASED_SKIPPED": 2}
    for options in (JobOptions(), JobOptions(action=Reload(confirmed=True))):
        done(lake, spec, options, port)
        rows = {row["id"]: row["v"] for row in port.read(layout.replica)}
        assert (rows[7], len(rows)) == ("Grace", 10)
        assert [row for row in port.read(layout.changes) if NAME in str(row)] == []
    write(folder, "20240104-000000001.parquet", pa.table(moved))
    done(lake, spec, JobOptions(), port)
    assert {row["id"]: row["v"] for row in port.read(layout.replica)}[70] == "Grace moved"
    assert [row["BI_v"] for row in port.read(layout.changes) if row["id"] == 70] == ["Grace"]
    assert done(lake, spec, JobOptions(action=Verify()), port).details["verdict"] == "equal"


@pytest.mark.deep
def test_log_drops_the_key_after_retention(tmp_path: Path) -> None:
    """Maintenance, once it is time, leaves no commit that names the key, and the table as it is."""
    port, spec = LocalPort("many"), spec_of()
    lake = Lake(tmp_path, TIER)
    layout = lake.layout(spec)
    columns = {"id": pa.array([1, 2, 7777], pa.int32()), "v": ["a", "b", NAME]}
    write(Path(layout.landing), "LOAD00000001.parquet", pa.table(columns))
    done(lake, spec, JobOptions(), port)
    done(lake, spec, JobOptions(action=Erase(key={"id": "7777"})), port)
    before = sorted(map(str, port.read(layout.changes)))
    logs = [Path(path, "_delta_log") for path in (layout.changes, layout.replica)]
    for days in (8, 2):
        for file in (f for log in logs for f in log.glob("*")):
            then = file.stat().st_mtime - days * 86400
            os.utime(file, (then, then))
        kept = done(lake, spec, JobOptions(action=Maintain()), port).details
    assert kept["log_files_removed"] > 0
    texts = [f.read_text() for log in logs for f in (*log.glob("[0-9]*.json"), *log.glob("[0-9]*.crc"))]
    parts = [str(pq.read_table(f).to_pylist()) for log in logs for f in log.glob("*.parquet")]
    assert parts
    assert [text for text in (*texts, *parts) if "7777" in text] == []
    assert sorted(map(str, port.read(layout.changes))) == before
    assert {row["id"] for row in port.read(layout.replica)} == {1, 2}


def files_in_use(port: LocalPort, path: str) -> list[str]:
    frame = port.spark.for_table().read.format("delta").load(path)
    return [name.removeprefix("file://") for name in frame.inputFiles()]
