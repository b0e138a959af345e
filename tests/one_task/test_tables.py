"""Commits: once, at the version that was read, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import utc_now
from spark_jobs.plan.table_schema import Column
from spark_jobs.tables import delta_log as log_upkeep
from spark_jobs.tables.delta_tables import Tables, Write
from spark_jobs.tables.snapshots import BESIDE_SPARK
from spark_jobs.tables.table_definition import TableDefinition

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def opened() -> Tables:
    return Tables(Storage(), utc_now)


def definition(path: str, properties: Mapping[str, str] = MappingProxyType({})) -> TableDefinition:
    return TableDefinition(path=path, columns=(Column("id", parse_type("bigint")),), properties=properties)


@pytest.fixture
def path(tmp_path: Path) -> str:
    found = str(tmp_path / "t")
    opened().create(definition(found))
    return found


def count(path: str) -> int:
    return pa.table(DeltaTable(path).scan()).num_rows


def test_transaction_is_committed_once(path: str) -> None:
    for _ in range(2):
        opened().commit(path, Write(app="gddl:append", version=7, added=[ROWS]))
    opened().commit(path, Write(app="gddl:append", version=6, added=[ROWS]))
    assert count(path) == 2
    opened().commit(path, Write(app="gddl:append", version=8, added=[ROWS]))
    assert count(path) == 4


@pytest.mark.parametrize("once", [True, False])
def test_commit_from_an_older_version_conflicts(once: bool, path: str) -> None:
    """Also when it doesn't ask for the transaction, because it began the batch itself and has lost its claim since."""
    slow, quick = opened(), opened()
    slow.existing(path)
    quick.commit(path, Write(app="gddl:append", version=7, added=[ROWS]))
    with pytest.raises(RetriableError) as caught:
        slow.commit(path, Write(app="gddl:append", version=7, added=[ROWS], once=once))
    assert caught.value.code == "DELTA_CONFLICT"
    assert count(path) == 2


def test_metrics_are_found_by_their_transaction(path: str) -> None:
    tables = opened()
    tables.commit(path, Write(app="gddl:append", version=7, added=[ROWS], metrics={"numOutputRows": 2}))
    assert tables.metrics(path, "gddl:append", 7) == {"numOutputRows": 2}
    assert tables.metrics(path, "gddl:append", 8) == {}


def checkpoints(path: str) -> list[int]:
    return sorted(int(found.name[:20]) for found in Path(path, "_delta_log").glob("*.checkpoint.parquet"))


def committed(path: str, times: int) -> None:
    for _ in range(times):
        tables = opened()
        tables.commit(path, Write(added=[ROWS]))
        assert tables.version(path) == DeltaTable(path).version() == opened().version(path)


def test_checkpoint_every_ten_commits(path: str) -> None:
    committed(path, 21)
    assert checkpoints(path) == [9, 19]
    assert count(path) == 42


def test_checkpoint_interval_follows_the_table_property(tmp_path: Path) -> None:
    path = str(tmp_path / "own")
    opened().create(definition(path, {"delta.checkpointInterval": "3"}))
    committed(path, 7)
    assert checkpoints(path) == [2, 5]


def test_expired_commits_are_removed_unless_disabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upkeep, "COMMITS_PER_CLEANUP", 20)
    for cleans in ("true", "false"):
        path = str(tmp_path / cleans)
        properties = {"delta.logRetentionDuration": "interval 1 days", "delta.enableExpiredLogCleanup": cleans}
        opened().create(definition(path, properties))
        committed(path, 15)
        log = Path(path, "_delta_log")
        for old in log.iterdir():
            os.utime(old, (1_600_000_000, 1_600_000_000))
        committed(path, 4)
        assert (log / f"{0:020d}.json").exists()
        committed(path, 6)
        assert (log / f"{0:020d}.json").exists() == (cleans == "false")
        assert count(path) == 50


def test_failed_checkpoint_does_not_fail_the_commit(path: str, caplog: pytest.LogCaptureFixture) -> None:
    committed(path, 9)
    Path(path, "_delta_log", f"{9:020d}.checkpoint.parquet").mkdir()
    committed(path, 2)
    assert count(path) == 22
    assert "no checkpoint of" in caplog.text


@pytest.mark.parametrize(
    ("rows", "plain"), [(999, set()), (1_000, {"id", "text", "again", "s.id"}), (20_001, {"id", "text", "s.id"})]
)
def test_files_have_no_dictionaries_of_different_values(rows: int, plain: set[str], tmp_path: Path) -> None:
    columns = {
        "id": "bigint",
        "text": "string",
        "again": "string",
        "few": "string",
        "s": "struct<id: bigint, n: array<bigint>>",
    }
    columns["m"] = "map<string, bigint>"
    target, numbers = str(tmp_path / "t"), range(rows)
    made = definition(target)
    opened().create(replace(made, columns=tuple(Column(name, parse_type(kind)) for name, kind in columns.items())))
    schema = opened().existing(target).schema.arrow
    values: dict[str, Any] = {"id": numbers, "text": [f"text {n}" for n in numbers], "few": ["a", "b", None] * rows}
    values["again"] = [f"text {n % 2_000}" for n in numbers]  # different in a part, alike in the whole
    values |= {"s": [{"id": n, "n": [n]} for n in numbers], "m": [[(f"k{n}", n)] for n in numbers]}
    added = pa.table({name: list(found)[:rows] for name, found in values.items()}, schema=schema)
    opened().commit(target, Write(added=[added]))
    snapshot = opened().existing(target)
    assert opened().read_files(snapshot, snapshot.files).equals(added)
    group = pq.ParquetFile(Path(target, snapshot.files[0].path)).metadata.row_group(0)
    found = [group.column(number) for number in range(group.num_columns)]
    assert {c.path_in_schema for c in found if "RLE_DICTIONARY" not in c.encodings} == plain
    assert len(found) == 8


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("rows", [3, 1_000, 30_000])
def test_rising_numbers_are_packed_where_readers_know_vectors(*, vectors: bool, rows: int, tmp_path: Path) -> None:
    kinds = {"id": "bigint", "small": "int", "equal": "int", "falling": "bigint", "some": "bigint", "text": "string"}
    columns = tuple(Column(name, parse_type(kind)) for name, kind in kinds.items())
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    path, tables = str(tmp_path / "t"), Tables(Storage(), utc_now, features=BESIDE_SPARK)
    tables.create(TableDefinition(path=path, columns=columns, properties=properties))
    numbers = list(range(-1, 2 * rows - 1, 2))
    values = {"id": numbers, "small": numbers, "equal": [7] * rows, "falling": numbers[::-1],
              "some": [None, *numbers[1:]], "text": [str(n) for n in numbers]}  # fmt: skip
    added = pa.table(values, schema=tables.existing(path).schema.arrow)
    tables.commit(path, Write(added=[added]))
    snapshot = tables.existing(path)
    assert tables.read_files(snapshot, snapshot.files).equals(added)
    group = pq.ParquetFile(Path(path, snapshot.files[0].path)).metadata.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    packed = {c.path_in_schema for c in chunks if "DELTA_BINARY_PACKED" in c.encodings}
    assert packed == ({"id", "small", "equal"} if vectors else set())
