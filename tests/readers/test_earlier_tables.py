"""Tables of an earlier release, whose files have statistics of keys alone: their next batch puts that right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.readers.reading import READERS
from tests.readers.test_filtered_reads import Lake
from tests.readers.wide_table import Row, land


def made_earlier(table: str) -> None:
    """Take out of a log what earlier releases did not write."""
    for commit in sorted(Path(table, "_delta_log").glob("*.json")):
        actions = [_earlier(json.loads(line)) for line in commit.read_text().splitlines()]
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def _earlier(action: dict[str, Any]) -> dict[str, Any]:
    if "metaData" in action:
        action["metaData"]["configuration"] = {}
    if "add" in action:
        stats = json.loads(action["add"]["stats"])
        for part in ("minValues", "maxValues", "nullCount"):
            stats[part] = {name: value for name, value in stats.get(part, {}).items() if name in ("id", "_gddl")}
        action["add"]["stats"] = json.dumps(stats)
    return action


def with_int96(table: str) -> None:
    """Its files as Spark wrote them in earlier releases."""
    for commit in sorted(Path(table, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for add in (action["add"] for action in actions if "add" in action):
            file = Path(table, add["path"])
            pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
            add["size"] = file.stat().st_size
        commit.write_text("".join(f"{json.dumps(_earlier(action))}\n" for action in actions))


def test_maintenance_rewrites_int96_timestamps(tmp_path: Path) -> None:
    lake = Lake(tmp_path, LocalPort("delta_rs"))
    land(lake.landing, "LOAD00000001.parquet", [Row(i, i) for i in range(8)])
    lake.run()
    before = len(DeltaTable(lake.layout.replica).file_uris())
    with_int96(lake.layout.replica)
    with pytest.raises(pa.ArrowInvalid):
        DeltaTable(lake.layout.replica).to_pyarrow_table()
    assert lake.run(JobOptions(action="maintain", dry_run=True)).details["rewritten"] == before
    assert lake.run(JobOptions(action="maintain")).details["rewritten"] == before
    assert DeltaTable(lake.layout.replica).to_pyarrow_table().num_rows == 8
    assert lake.run(JobOptions(action="maintain")).details["rewritten"] == 0


def test_the_next_batch_completes_the_statistics(tmp_path: Path) -> None:
    lake = Lake(tmp_path, LocalPort("delta_rs"))
    land(lake.landing, "LOAD00000001.parquet", [Row(i, i) for i in range(8)] + [Row(None, 41)])
    land(lake.landing, "20240101-000000001.parquet", [Row(1, 101), Row(2, 2)], Op=["U", "D"], seq=[1, 2])
    lake.run()
    for kind in ("replica", "changes", "history", "errors", "tombstones"):
        made_earlier(getattr(lake.layout, kind))
    lake.forget_settings()
    assert next(lake.each_wrong(READERS), None) is not None
    land(lake.landing, "20240101-000000002.parquet", [Row(3, 103)], Op=["U"], seq=[3])
    assert "STATISTICS_COMPLETED" in [warning.code for warning in lake.run().warnings]
    assert lake.wrong() == []
    land(lake.landing, "20240101-000000003.parquet", [Row(4, 104)], Op=["U"], seq=[4])
    assert lake.run(JobOptions()).warnings == ()
