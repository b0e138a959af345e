"""A table with `iceberg: true`: what PyIceberg reads is what Delta readers read, after whatever happens to it."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Erase, Maintain, Rebuild
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.rooms.features.iceberg.publishing import IcebergPublisher
from spark_jobs.tables.iceberg_metadata import MetadataVersions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable
from tests.harness.sharded import Sharded
from tests.harness.sharded import rows_of as shards_rows
from tests.readers.wide_table import SPEC, Row, land

static_table: Any = pytest.importorskip("pyiceberg.table").StaticTable
pytestmark = pytest.mark.timeout(900)
Types = dict[str, pa.DataType] | None
WIDE = replace(SPEC, iceberg=True, history=False)
"""Iceberg metadata is made of the replica alone."""
MAINTAIN = JobOptions(action=Maintain())


class Published(LakeTable):
    """A wide table, and its Iceberg metadata."""

    def __init__(self, root: Path, engine: LocalPort, spec: TableSpec = WIDE) -> None:
        self.port = engine.everywhere()
        super().__init__(Lake(root, port=self.port), spec)

    @property
    def replica(self) -> str:
        return self.layout.replica

    @property
    def iceberg(self) -> str:
        return f"{self.roots.lake}/_gddl/iceberg/s/wide"

    @property
    def versions(self) -> MetadataVersions:
        return MetadataVersions(Storage(), self.iceberg)

    def land(self, name: str, rows: list[Row], added: Types = None, **more: Any) -> None:
        land(self.landing, name, rows, added, **more)

    def delta(self) -> list[dict[str, Any]]:
        return rows_of(pa.table(DeltaTable(self.replica).scan()))

    def read(self) -> list[dict[str, Any]]:
        return rows_of(static_table.from_metadata(self.iceberg).scan().to_arrow())

    def files(self) -> set[str]:
        return {task.file.file_path for task in static_table.from_metadata(self.iceberg).scan().plan_files()}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows by id, columns by name; not-a-number as text, for it differs from itself."""
    rows = [{name: str(v) if isinstance(v, float) else v for name, v in sorted(r.items())} for r in table.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture
def lake(tmp_path: Path, engine: LocalPort) -> Published:
    made = Published(tmp_path, engine)
    made.land("LOAD00000001.parquet", [Row(i, i) for i in range(8)])
    return made


@pytest.fixture
def quick(tmp_path: Path) -> Published:
    """On the engine that needs no Spark: what fails is the same code under both."""
    made = Published(tmp_path, LocalPort("one"))
    made.land("LOAD00000001.parquet", [Row(i, i) for i in range(8)])
    return made


def changed(
    lake: Published, number: int, rows: list[Row], ops: list[str], added: dict[str, pa.DataType] | None = None
) -> None:
    seq = [100 * number + i for i in range(len(rows))]
    lake.land(f"20240101-{number:09d}.parquet", rows, added, Op=ops, seq=seq)


@pytest.mark.deep_on_many
def test_pyiceberg_and_delta_read_the_same_rows(lake: Published) -> None:
    assert lake.run().warnings == ()
    assert lake.read() == lake.delta()
    assert len(lake.read()) == 8
    changed(lake, 1, [Row(1, 102), Row(2, 2), Row(9, 9)], ["U", "D", "I"])
    lake.run()
    assert lake.read() == lake.delta()
    assert {row["id"] for row in lake.read()} == {0, 1, 3, 4, 5, 6, 7, 9}
    found = static_table.from_metadata(lake.iceberg).scan(row_filter="id = 1").to_arrow()
    assert found["n00"].to_pylist() == [102]
    changed(lake, 2, [Row(3, 3)], ["U"], {"later": pa.int64()})
    lake.run()
    assert "later" in lake.read()[0]
    assert lake.read() == lake.delta()
    lake.run(JobOptions(action=Rebuild()))
    assert lake.read() == lake.delta()
    lake.run(MAINTAIN)
    assert lake.read() == lake.delta()
    assert lake.versions.written()[0] == DeltaTable(lake.replica).version()


@pytest.mark.deep_on_many
@pytest.mark.core
def test_shards_are_read_as_one_table(tmp_path: Path, engine: LocalPort) -> None:
    held = Sharded(tmp_path, ("crm_eu", "crm_us"), {"iceberg": True})
    lake = Published(tmp_path, engine, held.spec)

    def is_read(options: JobOptions | None = None) -> None:
        assert lake.run(options).warnings == ()
        found = static_table.from_metadata(f"{lake.roots.lake}/_gddl/iceberg/s/t").scan().to_arrow().to_pylist()
        assert shards_rows(found) == held.expected

    held.load("crm_eu", {1: "a", 2: "b"})
    held.load("crm_us", {1: "c"})
    is_read()
    held.change("crm_eu", ("U", 1, "d"), ("D", 2, ""))
    is_read()
    held.change("crm_us", ("D", 1, ""), ("I", 3, "e"))
    held.change("crm_eu", ("I", 4, "f"))
    is_read()
    is_read(MAINTAIN)


@pytest.mark.deep_on_many
def test_soft_deletes_are_read_with_their_mark(lake: Published) -> None:
    lake.spec = replace(WIDE, delete="soft")
    changed(lake, 1, [Row(2, 2)], ["D"])
    lake.run()
    alive = static_table.from_metadata(lake.iceberg).scan(row_filter="_gddl.deleted = false").to_arrow()
    assert sorted(alive["id"].to_pylist()) == [0, 1, 3, 4, 5, 6, 7]
    assert len(lake.read()) == 8


@pytest.mark.deep_on_many
def test_erased_key_is_absent_and_vacuum_keeps_current_files(lake: Published) -> None:
    lake.run()
    lake.run(JobOptions(action=Erase(key={"id": "3"})))
    assert {row["id"] for row in lake.read()} == {0, 1, 2, 4, 5, 6, 7}
    clock, lake.port.runtime = lake.port.runtime, replace(lake.port.runtime, clock=in_ten_days)
    try:
        lake.run(MAINTAIN)
    finally:
        lake.port.runtime = clock
    assert lake.read() == lake.delta()
    assert all(Path(file).is_file() for file in lake.files())
    assert not Path(lake.versions.path(1)).exists()
    assert Path(lake.versions.path(lake.versions.newest())).exists()


def in_ten_days() -> datetime:
    return datetime.now(UTC) + timedelta(days=10)


@pytest.mark.deep_on_many
def test_iceberg_is_enabled_and_disabled_for_a_loaded_table(lake: Published) -> None:
    lake.spec = replace(WIDE, iceberg=False)
    lake.run()
    assert not Path(lake.iceberg).exists()
    lake.spec = WIDE
    lake.run()
    assert lake.read() == lake.delta()
    lake.spec = replace(WIDE, iceberg=False)
    lake.run(MAINTAIN)
    assert not list(Path(lake.iceberg).rglob("*.json"))


class Stopping(Storage):
    """Fails at the n-th write below a folder of metadata."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def _count(self, path: str) -> None:
        if "/_gddl/iceberg/" in path:
            self.left -= 1
            if self.left < 0:
                raise RetriableError("STORAGE_BUSY", "the store does not answer", where=path)

    def write(self, path: str, data: bytes) -> None:
        self._count(path)
        super().write(path, data)

    def create(self, path: str, data: bytes) -> bool:
        self._count(path)
        return super().create(path, data)


@pytest.mark.parametrize("after", range(6))
def test_failed_write_leaves_the_old_or_the_new_version(quick: Published, after: int) -> None:
    quick.run()
    before = quick.read()
    changed(quick, 1, [Row(1, 101), Row(2, 2)], ["U", "D"])
    kept, quick.port.runtime = quick.port.runtime, replace(quick.port.runtime, storage=Stopping(after))
    try:
        result = quick.run()
    finally:
        quick.port.runtime = kept
    behind = [w.code for w in result.warnings if w.code == "ICEBERG_BEHIND"]
    assert quick.read() == (before if behind else quick.delta())
    assert bool(behind) == (after < 5)
    assert quick.run().warnings == ()
    assert quick.read() == quick.delta()


def test_failed_write_prevents_the_vacuum(quick: Published) -> None:
    quick.run()
    before = quick.read()
    kept = quick.port.runtime
    quick.port.runtime = replace(kept, storage=Stopping(0), clock=in_ten_days)
    changed(quick, 1, [Row(i, 50 + i) for i in range(8)], ["U"] * 8)
    try:
        quick.run()
        result = quick.run(MAINTAIN)
    finally:
        quick.port.runtime = kept
    assert [w.code for w in result.warnings] == ["ICEBERG_BEHIND"]
    assert quick.read() == before
    quick.run(MAINTAIN)
    assert quick.read() == quick.delta() != before


def test_without_pyiceberg_loads_continue_with_a_warning(quick: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (warning,) = quick.run().warnings
    assert warning.code == "ICEBERG_BEHIND"
    assert "[PACKAGE_MISSING]" in warning.message
    assert "airflow-gddl[iceberg]" in warning.message
    assert len(quick.delta()) == 8


def test_unsupported_schema_evolution_starts_a_new_table(tmp_path: Path) -> None:
    path, versions = str(tmp_path / "a b" / "t"), MetadataVersions(Storage(), str(tmp_path / "iceberg"))
    publisher = IcebergPublisher(Storage(), path, versions)
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"], "items": [[1], [2, 3]]})
    tables = [
        first,
        first.set_column(0, "id", pa.array([1, 2], pa.int64())),  # widened
        first.set_column(1, "v", pa.array([1, 2])),  # another type
        first.drop_columns(["items"]),
        first.slice(0, 0),
    ]
    for number, table in enumerate(tables, start=1):
        write_deltalake(path, table, mode="overwrite", schema_mode="overwrite")
        assert publisher.publish()
        found = static_table.from_metadata(versions.table)
        assert rows_of(found.scan().to_arrow()) == rows_of(table)
        assert (versions.newest(), len(found.metadata.snapshots)) == (number, 1)
    assert not publisher.publish()


def test_a_table_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    """Its versions begin anew, so that one may have the number of the one that was published."""
    path, versions = tmp_path / "t", MetadataVersions(Storage(), str(tmp_path / "iceberg"))
    for rows in ([{"id": 1}], [{"id": 2}]):
        shutil.rmtree(path, ignore_errors=True)
        write_deltalake(path, pa.Table.from_pylist(rows))
        assert IcebergPublisher(Storage(), str(path), versions).publish()
        assert rows_of(static_table.from_metadata(versions.table).scan().to_arrow()) == rows


def test_second_writer_retries(tmp_path: Path) -> None:
    path, versions = str(tmp_path / "t"), MetadataVersions(Storage(), str(tmp_path / "iceberg"))
    write_deltalake(path, pa.table({"id": [1]}))
    met = IcebergPublisher(Storage(), path, versions)

    class Late(Storage):
        """Another writer makes each first version that this one is about to create."""

        def create(self, path: str, data: bytes) -> bool:
            met.publish()
            return super().create(path, data)

    IcebergPublisher(Late(), path, MetadataVersions(Late(), versions.table)).publish()
    assert versions.newest() == 1
    assert rows_of(static_table.from_metadata(versions.table).scan().to_arrow()) == [{"id": 1}]


@pytest.mark.parametrize("what", ["binary partition column", "deletionVectors"])
def test_unsupported_delta_tables_are_refused(tmp_path: Path, what: str) -> None:
    path, table = str(tmp_path / "t"), pa.table({"id": [1], "v": pa.array([b"a"])})
    properties = {} if "binary" in what else {"delta.enableDeletionVectors": "true"}
    write_deltalake(path, table, partition_by=["v"] if "binary" in what else None, configuration=properties)
    publisher = IcebergPublisher(Storage(), path, MetadataVersions(Storage(), str(tmp_path / "iceberg")))
    with pytest.raises(FatalError, match=f"ICEBERG_REFUSED.*{what}"):
        publisher.publish()
    assert publisher.versions.newest() == 0


VALUES: dict[str, pa.Array] = {
    "day": pa.array([date(2024, 1, 1), None, date(1960, 1, 1)]),
    "text": pa.array(["a b/ü%:x#?=&'", None, "b"]),
    "local": pa.array([datetime(2024, 1, 1, 1, 2, 3, 4), None, datetime(1960, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001 - without a zone
    "instant": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
    "amount": pa.array([Decimal("1.50"), None, Decimal("-7.00")], pa.decimal128(10, 2)),
    "yes": pa.array([True, None, False]),
    "ratio": pa.array([1.5, None, 0.0]),
    "small": pa.array([7, None, -1], pa.int16()),
    "large": pa.array([2**40, None, -(2**40)]),
}


def test_partition_columns_of_every_type(tmp_path: Path) -> None:
    path, versions = str(tmp_path / "t"), MetadataVersions(Storage(), str(tmp_path / "iceberg"))
    publisher, table = IcebergPublisher(Storage(), path, versions), pa.table({"id": [1, 2, 3], **VALUES})
    plans: list[dict[str, Any]] = [
        {"partition_by": list(VALUES)},
        {"partition_by": ["small", "text"]},
        {"partition_by": None},
    ]
    for plan in plans:
        write_deltalake(path, table, mode="overwrite", schema_mode="overwrite", **plan)
        assert publisher.publish()
        found = static_table.from_metadata(versions.table)
        assert rows_of(found.scan().to_arrow()) == rows_of(table)
        one = found.scan(row_filter="small = -1 and text = 'b'")
        assert (one.to_arrow()["id"].to_pylist(), len(list(one.plan_files()))) == ([3], 1)
    retyped = table.set_column(table.column_names.index("small"), "small", pa.array(["7", None, "-1"]))
    write_deltalake(path, retyped, mode="overwrite", schema_mode="overwrite", partition_by=["small"])
    publisher.publish()
    found = static_table.from_metadata(versions.table)
    assert rows_of(found.scan().to_arrow()) == rows_of(retyped)
    assert found.scan(row_filter="small is null").to_arrow()["id"].to_pylist() == [2]


def values(table: pa.Table) -> list[str]:
    return sorted(f"{row['id']} {row['n00']} {row['_gddl']}" for row in table.to_pylist())


def test_history_is_read_as_iceberg_until_it_is_switched_off(quick: Published) -> None:
    quick.spec = replace(WIDE, history=True)
    quick.run()
    changed(quick, 1, [Row(1, 101), Row(2, 2)], ["U", "D"])
    assert quick.run().warnings == ()
    path, folder = f"{quick.roots.lake}/s/wide__history", f"{quick.iceberg}__history"
    versions = pa.table(DeltaTable(path).scan())
    found = static_table.from_metadata(folder).scan().to_arrow()
    assert len(found) == len(versions) == 9
    assert values(found) == values(versions)
    quick.spec = WIDE
    quick.run(MAINTAIN)
    assert not list(Path(folder).rglob("*.json"))


def test_readers_of_a_replaced_version_keep_its_files(quick: Published) -> None:
    quick.run()
    first = static_table.from_metadata(quick.versions.path(1))
    for file in Path(quick.versions.folder).iterdir():
        os.utime(file, (time.time() - 20 * 86_400,) * 2)  # a table that was quiet for weeks
    changed(quick, 1, [Row(1, 101)], ["U"])
    quick.run()
    quick.run(MAINTAIN)
    assert len(first.scan().to_arrow()) == 8
    assert quick.read() == quick.delta()


def test_damaged_metadata_is_reported(quick: Published) -> None:
    quick.run()
    Path(quick.versions.path(quick.versions.newest())).write_text("{")
    (warning,) = quick.run().warnings
    assert warning.code == "ICEBERG_BEHIND"
    assert len(quick.delta()) == 8


@pytest.mark.deep_on_many
def test_tier_with_deletion_vectors_writes_none_for_iceberg(lake: Published) -> None:
    lake.spec = replace(WIDE, size="large")
    assert lake.run().warnings == ()
    changed(lake, 1, [Row(1, 102), Row(2, 2)], ["U", "D"])
    lake.run()
    assert DeltaTable(lake.replica).metadata().configuration["delta.enableDeletionVectors"] == "false"
    assert lake.read() == lake.delta()
