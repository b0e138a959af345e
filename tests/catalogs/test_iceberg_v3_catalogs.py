"""An entry of a REST catalog that follows a table of Iceberg's version 3."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.extensions import EntryName
from airflow_gddl.stores import Storage
from spark_jobs.rooms.catalogs.catalog_port import CatalogError, DeltaTableInfo, Registration
from spark_jobs.rooms.catalogs.iceberg_catalog import IcebergCatalog
from spark_jobs.rooms.features.iceberg.publishing import IcebergPublisher
from tests.readers.iceberg_v3 import SharedTable
from tests.readers.test_iceberg_v3_publishing import publisher_of, without_vectors

rest: Any = pytest.importorskip("pyiceberg.catalog.rest")


class Entry:
    """An entry of a table, and a client of its readers."""

    def __init__(self, uri: str, publisher: IcebergPublisher) -> None:
        self.reader, self.publisher = rest.RestCatalog("reader", uri=uri), publisher
        self.catalog = IcebergCatalog(rest.RestCatalog("ours", uri=uri), Storage())
        self.name = EntryName(f"d{secrets.token_hex(6)}", "t")

    def sync(self) -> None:
        versions = self.publisher.versions
        info = DeltaTableInfo(location=versions.table, columns=(), properties=versions.identity())
        registration = Registration(name=self.name, info=info, entry=self.catalog.entry_of(info, {}))
        if self.catalog.read(self.name) is None:
            self.catalog.create(registration)
        else:
            self.catalog.alter(registration)

    def table(self) -> Any:
        return self.reader.load_table((self.name.database, self.name.table))

    def rows(self) -> list[tuple[int, str]]:
        rows = self.table().scan().to_arrow()
        return sorted(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def expected(table: SharedTable) -> list[tuple[int, str]]:
    return sorted((key, name) for key, name, _, _ in table.rows.values())


def test_an_entry_follows_each_version(tmp_path: Path, iceberg_rest: str) -> None:
    """It misses one, as while the catalog does not answer."""
    table, publisher = SharedTable(tmp_path / "t", "copied"), publisher_of(tmp_path)
    entry = Entry(iceberg_rest, publisher)
    table.create()
    for version in range(1, 6):
        held = sorted(table.rows)
        table.change(version, held[1:3], held[4:6], range(100 * version, 100 * version + 10))
        publisher.publish()
        if version == 3:
            continue
        entry.sync()
        assert entry.rows() == expected(table)
        metadata = entry.table().metadata
        assert (metadata.format_version, metadata.last_sequence_number) == (3, version)
        assert metadata.next_row_id == table.next_row_id
        assert len(metadata.snapshots) == 1


def test_an_entry_of_version_2_becomes_one_of_version_3_and_not_back(tmp_path: Path, iceberg_rest: str) -> None:
    table, second, third = SharedTable(tmp_path / "t", "copied"), publisher_of(tmp_path, 2), publisher_of(tmp_path)
    entry = Entry(iceberg_rest, second)
    table.create()
    without_vectors(table)
    table.change(1, [], [], range(5))
    second.publish()
    entry.sync()
    table.change(2, [], [], range(10, 15))
    third.publish()
    entry.sync()
    assert entry.rows() == expected(table)
    assert entry.table().metadata.format_version == 3
    assert entry.table().metadata.next_row_id == table.next_row_id
    second.publish()
    with pytest.raises(CatalogError, match="the entry has format version 3; drop it") as refused:
        entry.sync()
    assert refused.value.code == "CATALOG_REFUSED"
    assert entry.rows() == expected(table)
