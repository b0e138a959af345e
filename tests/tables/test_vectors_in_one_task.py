"""Tables with deletion vectors in one task: what a batch writes, and what maintenance and erasures leave."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_gddl.contract.actions import Erase, HandleErrors, Maintain, Verify
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, TableSpec
from airflow_gddl.contract.table_spec import Expectation
from airflow_gddl.stores import Storage
from spark_jobs.tables import deletion_vectors
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.strategies import with_expressions

ROWS = 2000
TIER = replace(DEFAULT_TIERS["small"], deletion_vectors=True)
OLD = 30 * 24 * 3600
"""Seconds; more than any retention here."""


def lake_of(root: Path, spec: TableSpec, *, changes: int = 3) -> Lake:
    """A loaded table, and so many batches that each change and delete a row."""
    lake = Lake(root, TIER)
    lake.load(spec, ROWS)
    assert lake.result(spec).error is None
    for number in range(1, changes + 1):
        lake.change(spec, number, [("U", number, f"changed {number}"), ("D", ROWS - number, None)])
        assert lake.result(spec).main.deleted == 1
    return lake


def vectors(path: str) -> set[Path]:
    return set(Path(path).glob("deletion_vector_*.bin"))


def rows(path: str, version: int | None = None) -> dict[int, str]:
    """By `deltalake`, which knows the vectors."""
    table = DeltaTable(path, version=version)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT id, v FROM t")).to_pydict()
    return dict(zip(found["id"], found["v"], strict=True))


def aged(folder: str) -> None:
    """All of a table was written a month ago."""
    before = time.time() - OLD
    for file in Path(folder).rglob("*"):
        os.utime(file, (before, before))


def expected(changes: int) -> dict[int, str]:
    live = {i: f"load {i}" for i in range(ROWS - changes)}
    return live | {number: f"changed {number}" for number in range(1, changes + 1)}


def test_a_batch_writes_the_changed_rows_and_leaves_the_files(tmp_path: Path) -> None:
    spec = spec_of(settle="0s")
    lake = lake_of(tmp_path, spec, changes=0)
    replica = lake.layout(spec).replica
    (loaded,) = Path(replica).glob("*.parquet")
    lake.change(spec, 1, [("U", 1, "changed 1"), ("D", ROWS - 1, None)])
    assert lake.result(spec).tasks == "one"
    assert loaded.exists()
    assert sum(pq.read_metadata(file).num_rows for file in Path(replica).glob("*.parquet")) == ROWS + 1
    assert len(vectors(replica)) == 1
    assert rows(replica) == expected(1)
    assert lake.result(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_maintenance_keeps_vectors_in_use(tmp_path: Path) -> None:
    """`deltalake`'s own vacuum takes them for files of no version."""
    spec = spec_of(settle="0s")
    lake = lake_of(tmp_path, spec)
    replica = lake.layout(spec).replica
    aged(replica)
    lake.change(spec, 4, [("D", ROWS - 4, None)])
    lake.result(spec)  # a vector of a month ago is replaced now: readers may still ask for the version before
    before = vectors(replica)
    done = lake.result(spec, JobOptions(action=Maintain()))
    assert done.error is None
    assert rows(replica) == {i: v for i, v in expected(3).items() if i != ROWS - 4}
    version = DeltaTable(replica).version()
    older = next(v for v in range(version, 0, -1) if len(rows(replica, v)) == ROWS - 3)
    assert rows(replica, older) == expected(3)
    assert 0 < len(vectors(replica)) < len(before)


def test_maintenance_removes_vectors_that_no_reader_may_ask_for(tmp_path: Path) -> None:
    spec = spec_of(settle="0s")
    lake = lake_of(tmp_path, spec)
    replica = lake.layout(spec).replica
    aged(replica)
    assert lake.result(spec, JobOptions(action=Maintain())).details["files_removed"] > 0
    assert rows(replica) == expected(3)
    named = {str(add["deletionVector"]) for add in pa.table(DeltaTable(replica).get_add_actions()).to_pylist()
             if add.get("deletionVector")}  # fmt: skip
    assert len(vectors(replica)) <= max(1, len(named))
    assert lake.result(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


@dataclass
class Past:
    """Runs of days ago: the log and the files say so."""

    lake: Lake
    spec: TableSpec
    known: set[Path] = field(default_factory=set)

    def load(self, days: int) -> None:
        moment = datetime.now(UTC) - timedelta(days=days)
        assert self.lake.result(self.spec, clock=lambda: moment).error is None
        for file in Path(self.lake.roots.lake).rglob("*"):
            if file not in self.known:
                self.known.add(file)
                os.utime(file, (moment.timestamp(), moment.timestamp()))

    def change(self, number: int, days: int) -> None:
        self.lake.change(self.spec, number, [("U", number, f"changed {number}"), ("D", ROWS - number, None)])
        self.load(days)


def test_maintenance_keeps_a_file_whose_first_vector_is_old(tmp_path: Path) -> None:
    """The file got its first vector a month ago, a further one three days ago, and is given up today."""
    past = Past(lake := Lake(tmp_path, TIER), spec := spec_of(settle="0s"))
    lake.load(spec, ROWS)
    past.load(40)
    past.change(1, days=30)
    past.change(2, days=3)
    replica = lake.layout(spec).replica
    version = DeltaTable(replica).version()
    lake.change(spec, 3, [("U", i, "new") for i in range(1200)])
    assert lake.result(spec).main.updated == 1200
    lake.result(spec, JobOptions(action=Maintain()))
    assert rows(replica, version) == expected(2)


@pytest.mark.parametrize("shortened", [False, True])
def test_vectors_that_were_replaced_long_ago_are_removed(shortened: bool, tmp_path: Path) -> None:
    """Also where the log is kept for a shorter time than files: a version that it has no more can't be asked for."""
    past = Past(lake := Lake(tmp_path, TIER), spec := spec_of(settle="0s"))
    lake.load(spec, ROWS)
    past.load(40)
    for number in (1, 2, 3):
        past.change(number, days=30 - number)
    replica = lake.layout(spec).replica
    if shortened:
        DeltaTable(replica).create_checkpoint()
        version = DeltaTable(replica).version()
        for number in range(version):
            Path(replica, "_delta_log", f"{number:020d}.json").unlink(missing_ok=True)
    assert len(vectors(replica)) == 3
    lake.result(spec, JobOptions(action=Maintain()))
    assert len(vectors(replica)) == 1
    assert rows(replica) == expected(3)


@pytest.mark.parametrize("vectors", [True, False])
def test_a_change_that_was_in_quarantine_is_applied(vectors: bool, engine: LocalPort, tmp_path: Path) -> None:
    """In both places: tasks of Spark leave such a batch to the driver."""
    spec = spec_of(settle="0s")
    strict = with_expressions(replace(spec, expect={"good": Expectation(rule="v <> 'bad'", on="quarantine")}))
    lake = Lake(tmp_path, replace(TIER, deletion_vectors=vectors), engine)
    lake.load(strict, ROWS)
    assert lake.result(strict).error is None
    lake.change(strict, 1, [("U", 2, "bad")])
    assert lake.result(strict).quarantined == 1
    done = lake.result(spec, JobOptions(action=HandleErrors(mode="replay")))
    assert (done.error, done.main.updated) == (None, 1)
    assert rows(lake.layout(spec).replica)[2] == "bad"
    assert lake.result(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_an_erasure_leaves_no_value_under_a_vector(tmp_path: Path) -> None:
    """Also where the row had been deleted, or changed, before: its file still held it."""
    spec = spec_of(settle="0s", history=True)
    lake = lake_of(tmp_path, spec)
    done = lake.result(spec, JobOptions(action=Erase(key={"id": "1"})))
    assert done.error is None
    layout = lake.layout(spec)
    for path in (layout.changes, layout.replica, layout.history):
        for add in pa.table(DeltaTable(path).get_add_actions()).column("path").to_pylist():
            assert 1 not in pq.read_table(Path(path, add), columns=["id"]).column("id").to_pylist()
    assert 1 not in rows(layout.replica)
    assert lake.result(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_a_table_of_many_tasks_goes_on_in_one(tmp_path: Path) -> None:
    """Its tier changes from one with vectors to one without: it keeps its vectors, and gets further ones."""
    spec = spec_of(settle="0s")
    lake = lake_of(tmp_path, spec)
    lake = replace(lake, tier=replace(TIER, deletion_vectors=False))
    lake.change(spec, 4, [("D", ROWS - 4, None)])
    assert lake.result(spec).tasks == "one"
    assert rows(lake.layout(spec).replica) == {i: v for i, v in expected(3).items() if i != ROWS - 4}


class Counted(Storage):
    """Counts the bytes of files of vectors that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def read(self, path: str, most: int | None = None) -> bytes:
        data = super().read(path, most)
        self.bytes += len(data)
        return data


@pytest.mark.parametrize("files", [10, 400])
def test_bytes_read_grow_with_the_vectors(files: int, tmp_path: Path) -> None:
    numbers = [np.arange(at, 3000 + at, 7, dtype=np.int64) for at in range(files)]
    written = deletion_vectors.written(Storage(), str(tmp_path), numbers)
    storage = Counted()
    for vector, expected_rows in zip(written, numbers, strict=True):
        assert deletion_vectors.rows_of(storage, str(tmp_path), vector).tolist() == expected_rows.tolist()
    (file,) = vectors(str(tmp_path))
    assert storage.bytes == file.stat().st_size


def test_vectors_of_a_file_that_is_too_large_to_keep_are_read_by_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [np.arange(at, 3000 + at, 7, dtype=np.int64) for at in range(50)]
    written = deletion_vectors.written(Storage(), str(tmp_path), numbers)
    storage = Counted()
    monkeypatch.setattr(deletion_vectors, "CONTENTS", deletion_vectors.Contents(most=1000))
    for vector, expected_rows in zip(written, numbers, strict=True):
        assert deletion_vectors.rows_of(storage, str(tmp_path), vector).tolist() == expected_rows.tolist()
    assert storage.bytes == 1001
