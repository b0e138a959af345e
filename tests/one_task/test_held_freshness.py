"""Freshness of a table of which something has landed and is not applied, whatever holds it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.runtime.state.table_runs import TablePoll, TableRecord, merged, seconds_of
from airflow_gddl.runtime.state.table_status import TableStatus, judge
from airflow_gddl.runtime.table_directory import TableRow
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of
from tests.one_task.exports import SNAPSHOTS, Exports

SPEC = spec_of(settle="0s", options={"types": {"id": "int"}})
ROW = TableRow(table="s.t", source="s", tier="small", priority="normal", freshness=300, grace=300)
AGO = 600.0
NEWER = "20240102-000000009.parquet"
Table = tuple[Lake, TableSpec]


def landed(path: Path) -> None:
    """Ten minutes ago."""
    when = time.time() - AGO
    os.utime(path, (when, when))


def loaded(root: Path, spec: TableSpec = SPEC, rows: int = 9) -> Table:
    lake = Lake(root)
    lake.load(spec, rows)
    landed(lake.landing(spec) / "LOAD00000001.parquet")
    assert lake.done(spec).freshness.waiting_since is None
    return lake, spec


def truncate(root: Path) -> Table:
    lake, spec = loaded(root)
    lake.change(spec, 9, [("T", 0, None), ("I", 50, "new")], day=2)
    landed(lake.landing(spec) / NEWER)
    return lake, spec


def sweep(root: Path) -> Table:
    lake, spec = loaded(root)
    lake.load(spec, 2)
    landed(lake.landing(spec) / "LOAD00000001.parquet")
    return lake, spec


def sweep_without_keys(root: Path) -> Table:
    lake, spec = loaded(root, replace(SPEC, keys=()))
    lake.load(spec, 2)
    landed(lake.landing(spec) / "LOAD00000001.parquet")
    return lake, spec


def unreadable(root: Path) -> Table:
    lake, spec = loaded(root)
    (lake.landing(spec) / NEWER).write_bytes(b"PAR1 and no more")
    landed(lake.landing(spec) / NEWER)
    return lake, spec


def export(root: Path) -> Table:
    exports = Exports(Lake(root), replace(SNAPSHOTS, sweep_limit=0.3))
    for day, rows in ((1, 9), (2, 2)):
        exports.land(day, pa.table({"id": list(range(rows)), "v": ["x"] * rows}))
        for path in exports.folder(day).iterdir():
            landed(path)
        if day == 1:
            exports.run()
    return exports.lake, exports.spec


_SWEEP = options_of("release", held="sweep")
HOLDS: dict[Callable[[Path], Table], JobOptions] = {
    truncate: options_of("release", held="truncate"), sweep: _SWEEP, sweep_without_keys: _SWEEP, export: _SWEEP,
    unreadable: options_of("errors_dismiss", codes=("FILE_UNREADABLE",), reason="sent again"),
}  # fmt: skip
"""What brings a table with something that is held, to the action that ends it."""


def status(record: TableRecord) -> TableStatus:
    """Where a sensor has just found nothing new."""
    now = time.time()
    return judge(ROW, replace(record, poll=TablePoll(polled=now, files=2, clear=now)), now)


def after(record: TableRecord, result: JobResult) -> TableRecord:
    return record.after(result, time.time())


@pytest.mark.parametrize("hold", HOLDS, ids=lambda hold: hold.__name__)
def test_what_has_landed_and_is_not_applied_is_late(hold: Callable[[Path], Table], tmp_path: Path) -> None:
    lake, spec = hold(tmp_path)
    record = TableRecord()
    for number in range(2):
        result = replace(lake.done(spec), run_id=str(number))
        since = seconds_of(result.freshness.waiting_since)
        assert since is not None, result
        assert AGO <= time.time() - since < AGO + 300
        record = after(record, result)
        found = status(record)
        assert (found.late, found.state) == (True, "late")
        assert found.as_of == since
        assert found.attention
    lake.done(spec, HOLDS[hold])
    freed = lake.done(spec)
    assert freed.freshness.waiting_since is None
    assert not status(after(record, freed)).late


def test_an_export_whose_marker_does_not_come_is_late(tmp_path: Path) -> None:
    exports = Exports(Lake(tmp_path), SNAPSHOTS)
    exports.land(1, pa.table({"id": [1], "v": ["1"]}))
    record = after(TableRecord(), exports.lake.done(exports.spec))
    exports.land(2, pa.table({"id": [1], "v": ["2"]}))
    for path in exports.folder(2).iterdir():
        landed(path)
    marker = exports.folder(2) / "_SUCCESS"
    marker.unlink()
    waits = replace(exports.lake.done(exports.spec), run_id="waits")
    record = after(record, waits)
    assert (waits.status, status(record).late) == ("skipped", True)
    marker.touch()
    whole = replace(exports.lake.done(exports.spec), run_id="whole")
    assert (whole.status, status(after(record, whole)).late) == ("succeeded", False)


def test_a_record_of_two_writers_has_what_the_newest_run_says() -> None:
    one = TableRecord(waiting_since=5.0, waiting_at=10.0)
    other = TableRecord(waiting_at=20.0)
    assert merged(one, other).waiting_since is merged(other, one).waiting_since is None
    assert merged(one, TableRecord()).waiting_since == 5.0
