"""Random histories in tables with deletion vectors, without Spark: the oracle judges all tables after every run.

The tables are read by `deltalake`'s own scan, which knows the vectors.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Maintain
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.tables import deletion_vectors
from spark_jobs.tables.delta_tables import Tables, Write
from spark_jobs.tables.snapshots import VECTORS
from tests.harness import exact_bounds
from tests.harness.examples import examples
from tests.harness.lake import Lake, read
from tests.harness.landing import write
from tests.harness.replayed_files import files_at
from tests.harness.strategies import EVERYTHING, Case, Traits, cases, dense
from tests.oracle import replay
from tests.spark.change_feeds import FEED
from tests.spark.table_lines import by_engine, by_oracle, counts_of, differences

pytestmark = pytest.mark.wide

SORTS = {
    "everything": dense(EVERYTHING),
    "plain": dense(Traits(variants=False)),
    "partial": dense(Traits(partial=True, ties=False, steps=True)),
    "reloads": dense(Traits(most_reloads=3, steps=True)),
}
VECTOR_TIER = replace(DEFAULT_TIERS["small"], deletion_vectors=True)


def run_once(lake: Lake, spec: TableSpec) -> JobResult:
    return lake.raising(spec)


@pytest.mark.parametrize("sort", SORTS)
def test_pipeline_and_oracle_agree(sort: str) -> None:
    written = []

    @settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
    @given(st.deferred(lambda: cases(SORTS[sort])))
    def agree(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            lake = Lake(Path(folder), VECTOR_TIER)
            play(case, lake)
            written.extend(Path(lake.layout(case.spec).replica).glob("deletion_vector_*.bin"))

    agree()
    assert written


def play(case: Case, lake: Lake) -> None:
    for number, run in enumerate(case.runs):
        lake.land(case.spec, run, case.types)
        result = run_once(lake, case.spec)
        lake.result(case.spec, JobOptions(action=Maintain()))
        outcome = replay(case.spec, case.runs[: number + 1])
        assert differences(by_oracle(outcome, case.spec), by_engine(lake.layout(case.spec))) == []
        assert counts_of(result) == outcome.counts[number]


@given(st.lists(st.sets(st.integers(0, 2**33), max_size=50), min_size=1, max_size=4))
def test_vectors_read_back(found: list[set[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [np.array(sorted(one), np.int64) for one in found]
        vectors = deletion_vectors.written(Storage(), folder, rows)
        for vector, expected in zip(vectors, rows, strict=True):
            assert deletion_vectors.rows_of(Storage(), folder, vector).tolist() == expected.tolist()
            assert Path(deletion_vectors.path_of(folder, vector)).is_file()


def test_damaged_vector_is_refused(tmp_path: Path) -> None:
    (vector,) = deletion_vectors.written(Storage(), str(tmp_path), [np.array([1, 2, 3])])
    path = Path(deletion_vectors.path_of(str(tmp_path), vector))
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="checksum"):
        deletion_vectors.rows_of(Storage(), str(tmp_path), vector)


@pytest.mark.parametrize("checkpoint_at", [None, 3, 5])
def test_files_are_those_of_deltalake(checkpoint_at: int | None, tmp_path: Path) -> None:
    """By commits alone, and by a checkpoint and the commits after it."""
    path = str(tmp_path)
    for number in range(6):
        mode = "overwrite" if number == 4 else "append"
        _write(path, number, mode)
        if number == checkpoint_at:
            DeltaTable(path).create_checkpoint()
    table = DeltaTable(path)
    expected = pa.table(table.get_add_actions()).column("path").to_pylist()
    assert sorted(files_at(path, table.version())) == sorted(expected)
    older = DeltaTable(path, version=3)
    expected = pa.table(older.get_add_actions()).column("path").to_pylist()
    assert sorted(files_at(path, 3)) == sorted(expected)


def test_the_last_checkpoint_is_gone(tmp_path: Path) -> None:
    """The commits since it are not all files: rows that vectors name would be there again."""
    path = str(tmp_path)
    for number in range(4):
        _write(path, number, "append")
    DeltaTable(path).create_checkpoint()
    _write(path, 4, "append")
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.unlink()
    assert len(files_at(path, 4)) == 5


def _write(path: str, number: int, mode: str) -> None:
    write_deltalake(path, pa.table({"id": [number], "p": [number % 2]}), mode=mode, partition_by=["p"])


def test_bounds_beside_a_vector_are_those_of_the_file(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path, VECTOR_TIER), TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))
    for _ in exact_bounds.landings(Path(lake.layout(spec).landing)):
        assert run_once(lake, spec).error is None
    assert exact_bounds.wrong(lake.layout(spec).replica) == []


def test_polars_reads_no_deleted_row_of_any_partition(tmp_path: Path) -> None:
    """It misses vectors of files whose paths have special characters."""
    texts = ["plain", "a b", "100%", "\u00e9", "{n}", "'q'", "x=y/z", None]
    spec = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), settle="0s", partition_by=("p",))
    lake = Lake(tmp_path, VECTOR_TIER)
    folder, replica = Path(lake.layout(spec).landing), lake.layout(spec).replica
    loaded = [(4 * number + row, text) for number, text in enumerate(texts) for row in range(4)]
    write(folder, "LOAD00000001.parquet", pa.table({"id": [i for i, _ in loaded], "p": [p for _, p in loaded]}))
    run_once(lake, spec)
    gone = [4 * number for number in range(len(texts))]
    changes = {"Op": ["D"] * len(gone), "seq": gone, "id": gone}
    write(folder, "20240101-000000001.parquet", pa.table(changes))
    assert run_once(lake, spec).main.deleted == len(gone)
    found = pl.scan_delta(replica).select("id", "p").collect().rows()
    assert sorted(found) == [row for row in loaded if row[0] not in gone]
    assert list(Path(replica).glob("deletion_vector_*.bin"))


@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize("differs", [False, True])
def test_a_commit_that_leaves_its_rows_as_they_are_changes_no_data(differs: bool, rows: int, tmp_path: Path) -> None:
    """Rows named by a vector, by a file that is written again, and by one that only goes: readers of the feed without
    change data files take each action that changes data for a change.
    """
    spec = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), settle="0s", table_properties=FEED)
    lake = Lake(tmp_path, VECTOR_TIER)
    lake.load(spec, 4)
    run_once(lake, spec)
    replica = lake.layout(spec).replica
    tables = Tables(Storage(), lambda: datetime.now(UTC), features=frozenset({VECTORS}))
    snapshot = tables.existing(replica)
    (file,) = snapshot.files
    before = tables.read_files(snapshot, [file]).slice(0, rows)
    at = before.schema.get_field_index("v")
    after = before.set_column(at, before.schema.field(at), pa.array(["new"] * rows)) if differs else before
    write = Write(added=[after], deleted=[(file, np.arange(rows))], deleted_rows=before, keys=spec.keys)
    tables.commit(replica, write)
    newest = max(Path(replica, "_delta_log").glob("*.json"))
    put = [json.loads(line) for line in newest.read_text().splitlines()]
    kinds = {(kind, one["dataChange"]) for action in put for kind, one in action.items() if "dataChange" in one}
    if differs:
        assert kinds == {("cdc", False), ("remove", True), ("add", True)}
    else:
        assert kinds == {("remove", False), ("add", False)}
    assert {row["v"] for row in read(replica)} >= ({"new"} if differs else {"load 0"})
    assert len(read(replica)) == 4
