"""Tables that somebody else wrote to, or whose folders are gone; on both engines."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from tests.conftest import LocalPort
from tests.harness.landing import write

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), history=True)
PERSON = JobOptions(full_listing=True)
REFRESH = JobOptions(full_refresh=True)


@dataclass
class Lake:
    engine: LocalPort
    root: Path
    files: int = field(default=0)

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    @property
    def layout(self) -> Layout:
        return Layout.of(self.roots, SPEC)

    def land(self, *rows: tuple[str, int, str]) -> None:
        """A change file of (operation, id, v)."""
        self.files += 1
        ops, ids, values = zip(*rows, strict=True)
        table = pa.table({"Op": ops, "seq": [100 * self.files + n for n in range(len(rows))], "id": ids, "v": values})
        write(Path(self.layout.landing), f"20240101-{self.files:09d}.parquet", table)

    def run(self, options: JobOptions | None = None) -> JobResult:
        job = JobSpec(run_id="r", roots=self.roots, tables=(SPEC,), options=options or JobOptions())
        (result,) = self.engine.run(job)
        return result

    def replica(self) -> dict[int, str]:
        return {row["id"]: row["v"] for row in self.engine.read(self.layout.replica)}


def codes(result: JobResult) -> list[str]:
    return [warning.code for warning in result.warnings]


@pytest.fixture
def lake(engine: LocalPort, tmp_path: Path) -> Lake:
    """Two batches, by the engine without Spark: rows 1 to 3 of which 3 is deleted again."""
    made = Lake(LocalPort("delta_rs"), tmp_path)
    made.land(("I", 1, "a"), ("I", 2, "a"), ("I", 3, "a"))
    assert made.run().error is None
    made.land(("U", 1, "b"), ("D", 3, "b"))
    assert made.run().error is None
    made.engine = engine
    return made


def restored(path: str) -> None:
    DeltaTable(path).restore(max(0, DeltaTable(path).version() - 1))


def deleted(path: str) -> None:
    DeltaTable(path).delete("id = 2")


Deed = Callable[[str], Any]


@pytest.mark.parametrize(("deed", "operation"), [(restored, "RESTORE"), (deleted, "DELETE")])
def test_foreign_commit_is_reported_until_a_full_refresh(lake: Lake, deed: Deed, operation: str) -> None:
    deed(lake.layout.replica)
    idle = lake.run(PERSON)
    assert (idle.status, codes(idle)) == ("skipped", ["FOREIGN_COMMIT"])
    for _ in range(2):
        lake.land(("I", 4, "c"))
        done = lake.run()
        assert done.error is None
        (warning,) = done.warnings
        assert (warning.code, warning.count) == ("FOREIGN_COMMIT", 1)
        assert warning.sample[0].startswith("replica: version ")
        assert warning.sample[0].endswith(operation)
    assert codes(lake.run(JobOptions(action="verify"))) == ["FOREIGN_COMMIT"]
    assert codes(lake.run(REFRESH)) == []
    assert lake.replica() == {1: "b", 2: "a", 4: "c"}
    lake.land(("U", 4, "d"))
    assert codes(lake.run()) == []


def test_foreign_commit_without_data_change_is_ignored(lake: Lake) -> None:
    for path in (lake.layout.replica, lake.layout.changes, lake.layout.history):
        DeltaTable(path).optimize.compact()
        DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
        DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert codes(lake.run(PERSON)) == []
    assert lake.run(JobOptions(action="maintain")).error is None
    lake.land(("U", 1, "c"), ("D", 2, "c"))
    assert codes(lake.run()) == []
    assert lake.replica() == {1: "c"}


@pytest.mark.parametrize("name", ["replica", "history", "changes", "tombstones"])
def test_missing_table_folder_is_reported_and_restored_by_a_refresh(lake: Lake, name: str) -> None:
    shutil.rmtree(getattr(lake.layout, name))
    idle = lake.run(PERSON)
    assert idle.error is not None
    assert idle.error.code == "TABLES_MISSING"
    lake.land(("I", 4, "c"))
    failed = lake.run()
    assert failed.error is not None
    assert failed.error.code == "TABLES_MISSING"
    assert name in failed.error.message or name == "changes"
    assert lake.run(REFRESH).error is None
    assert lake.replica() == {1: "b", 2: "a", 4: "c"}
    assert lake.run(JobOptions(action="verify")).details["verdict"] == "equal"


def test_foreign_rows_stop_the_table_until_removed(lake: Lake) -> None:
    path = lake.layout.replica
    strange = pa.table({"seq": pa.array([1], pa.int64()), "id": pa.array([7], pa.int64()), "v": ["x"]})
    write_deltalake(path, strange, mode="append", schema_mode="merge")
    lake.land(("U", 7, "c"))
    failed = lake.run()
    assert failed.error is not None
    assert failed.error.code == "FOREIGN_ROWS"
    DeltaTable(path).delete("id = 7")
    assert codes(lake.run()) == ["FOREIGN_COMMIT", "UPDATE_WITHOUT_PRIOR"]
    assert lake.replica() == {1: "b", 2: "a", 7: "c"}
