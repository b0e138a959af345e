"""Metadata of Iceberg's version 3 as it is written: after kills, beside other writers, and what it refuses.

The Delta tables are those of the experiment, which needs no Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.stores import Storage
from spark_jobs.rooms.features.iceberg.publishing import IcebergPublisher
from spark_jobs.tables.iceberg_metadata import MetadataVersions
from tests.readers.iceberg_v3 import SharedTable
from tests.readers.row_lineage import lineage

static_table: Any = pytest.importorskip("pyiceberg.table").StaticTable


ROOT = Path(__file__).parents[2]


class Published(SharedTable):
    """Three versions, with deleted rows in two files, of which two are published."""

    def __init__(self, root: Path, kind: str = "copied") -> None:
        super().__init__(root / "t", kind)
        self.create()
        self.publisher = publisher_of(root)
        self.change(1, [], [], range(40))
        self.publisher.publish()
        self.change(2, [1, 2], [3], range(100, 110))
        self.publisher.publish()
        self.change(3, [4, 101], [5, 102], range(200, 203))

    def read(self) -> list[tuple[int, str]]:
        return read(self.publisher)

    @property
    def expected(self) -> list[tuple[int, str]]:
        return sorted((key, name) for key, name, _, _ in self.rows.values())

    def require_current(self) -> None:
        assert self.read() == self.expected
        assert lineage(self.publisher.versions) == {key: tuple(ids) for key, _, *ids in self.rows.values()}


def publisher_of(root: Path, format_version: int = 3, storage: Storage | None = None) -> IcebergPublisher:
    held = storage or Storage()
    return IcebergPublisher(held, str(root / "t"), MetadataVersions(held, str(root / "iceberg")), format_version)


def read(publisher: IcebergPublisher) -> list[tuple[int, str]]:
    rows = static_table.from_metadata(publisher.versions.table).scan().to_arrow()
    return sorted(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def test_a_version_is_one_snapshot_with_its_files_vectors_and_row_ids(tmp_path: Path) -> None:
    table = Published(tmp_path)
    assert table.publisher.publish()
    assert not table.publisher.publish()
    table.require_current()
    assert table.publisher.versions.written() == (3, 3)
    metadata = json.loads(table.publisher.versions.read(3))
    (snapshot,) = metadata["snapshots"]
    assert (metadata["format-version"], metadata["last-sequence-number"], snapshot["sequence-number"]) == (3, 3, 3)
    assert metadata["next-row-id"] == table.next_row_id
    assert snapshot["first-row-id"] + snapshot["added-rows"] == table.next_row_id


@pytest.mark.parametrize("kind", ["inline", "both"])
def test_a_vector_is_copied_once_wherever_delta_has_it(tmp_path: Path, kind: str) -> None:
    table = Published(tmp_path, kind)
    table.publisher.publish()
    table.require_current()
    before = {file: file.stat().st_mtime_ns for file in Path(table.publisher.versions.folder).glob("*.puffin")}
    assert len(before) == 3
    table.change(4, [], [], [300])
    table.publisher.publish()
    table.require_current()
    assert {file: file.stat().st_mtime_ns for file in Path(table.publisher.versions.folder).glob("*.puffin")} == before


_KILLED = """
import os, signal, sys
from airflow_gddl.stores import Storage
from pathlib import Path
from tests.readers.test_iceberg_v3_publishing import publisher_of

class Deadly(Storage):
    left = int(sys.argv[2])

    def _count(self, path):
        if "/iceberg/" in path:
            Deadly.left -= 1
            if Deadly.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def write(self, path, data):
        self._count(path)
        super().write(path, data)

    def create(self, path, data):
        self._count(path)
        return super().create(path, data)

assert publisher_of(Path(sys.argv[1]), storage=Deadly()).publish()
"""


def test_a_killed_publication_is_healed_by_the_next(tmp_path: Path) -> None:
    """SIGKILL before each write: readers find the version before, or the new one, and the next run writes it."""
    table = Published(tmp_path)
    before, folder, kept = table.read(), Path(table.publisher.versions.table), tmp_path / "kept"
    shutil.copytree(folder, kept)
    killed = 0
    while True:
        command = [sys.executable, "-c", _KILLED, str(tmp_path), str(killed)]
        status = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode
        if status == 0:
            break
        assert status == -signal.SIGKILL
        is_new = table.publisher.versions.written()[0] == 3
        assert table.read() in ([before, table.expected] if is_new else [before])  # the hint may be one behind
        assert table.publisher.publish() == (not is_new)
        table.require_current()
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        killed += 1
    assert killed >= 7  # two vectors, two manifests, their list, the version, the hint
    table.require_current()


def test_of_two_writers_the_later_version_wins(tmp_path: Path) -> None:
    table = Published(tmp_path)

    class Late(Storage):
        """Another writer makes each version that this one is about to create."""

        def create(self, path: str, data: bytes) -> bool:
            table.publisher.publish()
            return super().create(path, data)

    assert not publisher_of(tmp_path, storage=Late()).publish()
    assert table.publisher.versions.newest() == 3
    table.require_current()


def test_contention_ends(tmp_path: Path) -> None:
    table = Published(tmp_path)

    class Refusing(Storage):
        def create(self, path: str, data: bytes) -> bool:  # noqa: ARG002 - the place is taken
            return False

    with pytest.raises(RetriableError, match="ICEBERG_CONTENDED"):
        publisher_of(tmp_path, storage=Refusing()).publish()
    assert len(table.read()) == 49


def test_clean_keeps_what_readers_need(tmp_path: Path) -> None:
    table = Published(tmp_path)
    table.publisher.publish()
    versions, folder = table.publisher.versions, Path(table.publisher.versions.folder)
    for file in folder.iterdir():
        os.utime(file, (time.time() - 20 * 86_400,) * 2)
    table.compact(4)
    table.publisher.publish()
    before = datetime.now(UTC) - timedelta(days=7)
    third = read(publisher_of(tmp_path))
    versions.clean(before, table.publisher.needed(before))
    assert len(list(folder.glob("*.puffin"))) == 2
    assert read(publisher_of(tmp_path)) == third
    assert static_table.from_metadata(versions.path(3)).scan().to_arrow().num_rows == len(third)
    now = datetime.now(UTC) + timedelta(days=1)
    versions.clean(now, table.publisher.needed(now))
    assert list(folder.glob("*.puffin")) == []
    table.require_current()
    assert versions.withdraw() > 0
    assert list(folder.iterdir()) == []


def test_a_table_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    """Its versions begin anew, so that one may have the number of the one that was published."""
    first = Published(tmp_path)
    first.publisher.publish()
    uuid = json.loads(first.publisher.versions.read(3))["table-uuid"]
    shutil.rmtree(first.root)
    again = SharedTable(first.root, "copied")
    again.create()
    for version in (1, 2, 3):
        again.change(version, [], [], range(10 * version, 10 * version + 2))
    assert first.publisher.publish()
    assert [key for key, _ in first.read()] == [10, 11, 20, 21, 30, 31]
    assert first.publisher.versions.newest() == 4
    assert json.loads(first.publisher.versions.read(4))["table-uuid"] != uuid


def test_version_2_continues_as_version_3_and_not_back(tmp_path: Path) -> None:
    """A table without deletion vectors; version 2 begins anew, since it has no row ids."""
    table = SharedTable(tmp_path / "t", "copied")
    table.create()
    without_vectors(table)
    table.change(1, [], [], range(5))
    second = publisher_of(tmp_path, 2)
    second.publish()
    table.change(2, [], [], range(10, 12))
    second.publish()
    third = publisher_of(tmp_path)
    table.change(3, [], [], [20])
    assert third.publish()
    held = [json.loads(third.versions.read(n)) for n in (1, 2, 3)]
    assert [one["format-version"] for one in held] == [2, 2, 3]
    assert len({one["table-uuid"] for one in held}) == 1
    assert held[2]["last-sequence-number"] > held[1]["last-sequence-number"]
    assert held[2]["schemas"] == held[1]["schemas"]
    assert len(read(third)) == 8
    assert second.publish()
    assert second.versions.written() == (3, 2)
    assert read(second) == sorted((key, name) for key, name, _, _ in table.rows.values())
    assert json.loads(second.versions.read(4))["table-uuid"] != held[2]["table-uuid"]
    assert third.publish()
    assert lineage(third.versions) == {key: tuple(ids) for key, _, *ids in table.rows.values()}


_WITHOUT_VECTORS = {"readerFeatures": [], "writerFeatures": ["rowTracking", "domainMetadata"]}


def without_vectors(table: SharedTable) -> None:
    """Let the table's first commit name no deletion vectors."""
    _alter(table, lambda action: action.get("protocol", {}).update(_WITHOUT_VECTORS))
    _alter(table, _with(enableDeletionVectors="false"))


def _alter(table: SharedTable, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the actions of a table's first commit."""
    path = table.root / f"_delta_log/{0:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        change(action)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def _renamed(action: dict[str, Any]) -> None:
    if held := action.get("metaData"):
        held["schemaString"] = held["schemaString"].replace('"name": "name"', '"name": "_Row_Id"')


def _with(**properties: str) -> Callable[[dict[str, Any]], object]:
    given = {f"delta.{name.replace('_', '.')}": value for name, value in properties.items()}
    return lambda action: action.get("metaData", {}).get("configuration", {}).update(given)


def _featured(action: dict[str, Any]) -> None:
    action.get("protocol", {}).get("readerFeatures", []).append("typeWidening")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_renamed, "its column _Row_Id has a name that Iceberg reserves"),
        (_with(columnMapping_mode="name"), "the Delta table has columnMapping"),
        (_featured, "the Delta table has typeWidening"),
        (_with(enableRowTracking="false"), "the Delta table has no row tracking"),
    ],
)
def test_tables_that_iceberg_can_not_represent_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    table = SharedTable(tmp_path / "t", "copied")
    table.create()
    table.change(1, [], [], range(5))
    _alter(table, change)
    publisher = publisher_of(tmp_path)
    with pytest.raises(FatalError, match=f"ICEBERG_REFUSED.*{message}") as caught:
        publisher.publish()
    assert caught.value.remedy
    assert publisher.versions.newest() == 0


@pytest.mark.parametrize(("field", "what"), [("baseRowId", "row ids"), ("stats", "row count")])
def test_a_file_of_which_the_log_says_too_little_is_refused(tmp_path: Path, field: str, what: str) -> None:
    table = SharedTable(tmp_path / "t", "copied")
    table.create()
    table.change(1, [], [], range(5))
    path = table.root / f"_delta_log/{1:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop(field, None)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(FatalError, match=f"ICEBERG_REFUSED.*no {what}, e.g. of part-1.parquet"):
        publisher_of(tmp_path).publish()


def test_row_tracking_is_asked_for(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    with pytest.raises(FatalError, match=r"no row tracking.*'delta.enableRowTracking' = 'true'"):
        publisher_of(tmp_path).publish()
    assert DeltaTable(str(tmp_path / "t")).version() == 0
