"""The right to be forgotten on Spark, with deletion vectors: rows are gone from the files in use, not only marked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.delta_rs.small_lake import SmallLake, spec_of
from tests.landing import write
from tests.spark.test_maintenance import TIER, done

NAME = "Ada Lovelace"


def test_with_deletion_vectors(tmp_path: Path) -> None:
    port, spec = LocalPort("spark"), spec_of(history=True, before_image_prefix="BI_")
    lake = SmallLake(tmp_path, TIER)
    columns = {"id": pa.array(range(1000), pa.int32()), "v": [NAME if i == 7 else f"v{i}" for i in range(1000)]}
    write(Path(lake.layout(spec).landing), "LOAD00000001.parquet", pa.table(columns))
    moved = {"Op": ["U", "U", "?"], "seq": [1, 2, 3], "id": pa.array([7, 2000, 7], pa.int32()),
             "v": [f"{NAME} 2", "moved", NAME], "BI_id": pa.array([None, 7, None], pa.int32()),
             "BI_v": [None, f"{NAME} 2", None]}  # fmt: skip
    write(Path(lake.layout(spec).landing), "20240101-000000001.parquet", pa.table(moved))
    done(lake, spec, JobOptions(), port)
    asked = JobOptions(action="erase", key={"id": "7"})
    told = done(lake, spec, asked, port).details
    assert (told["removed"]["changes"], told["removed"]["before_images"], told["removed"]["errors"]) == (2, 1, 1)
    layout = lake.layout(spec)
    for path in (layout.changes, layout.replica, layout.history, layout.errors):
        assert [row for row in port.read(path) if NAME in str(row) or row.get("id") == 7] == []
        for file in files_in_use(port, path):
            assert NAME not in str(pq.read_table(file).to_pylist()), file
    again = Path(layout.landing, "20240101-000000002.parquet")
    write(again.parent, again.name, pa.table({**moved, "seq": [11, 12, 13]}))
    result = done(lake, spec, JobOptions(), port)
    assert {w.code: w.count for w in result.warnings if w.code == "ERASED_SKIPPED"} == {"ERASED_SKIPPED": 2}
    assert [row for row in port.read(layout.changes) if NAME in str(row)] == []
    assert done(lake, spec, JobOptions(action="verify"), port).details["verdict"] == "equal"


def files_in_use(port: LocalPort, path: str) -> list[str]:
    frame = port.spark.for_table().read.format("delta").load(path)
    return [name.removeprefix("file://") for name in frame.inputFiles()]
