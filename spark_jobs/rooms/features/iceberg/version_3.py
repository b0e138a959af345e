"""Metadata of Iceberg's format version 3, of the files, deletion vectors and row ids of a Delta table's version.

Its history is the Delta table's: a snapshot has the Delta version as its sequence number, and each data file the one of
the version that added it, with the row ids that Delta's row tracking gave it then. Versions between two that were
published look like snapshots that were expired.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_gddl.contract.codes import ICEBERG_REFUSED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.features.iceberg import RESERVED, V2, V3
from spark_jobs.rooms.features.iceberg import puffin
from spark_jobs.rooms.features.iceberg.evolution import Evolution, partition_of
from spark_jobs.rooms.features.iceberg.manifests import (
    ADDED,
    DATA,
    DELETES,
    EXISTING,
    Entry,
    SnapshotFiles,
    stored_entries,
)
from spark_jobs.rooms.features.iceberg.readable import ActiveFile, active_files
from spark_jobs.rules.arrays import schema_of
from spark_jobs.tables.iceberg_metadata import DELTA_TABLE, StoreIO, VersionedCatalog, parsed
from spark_jobs.tables.replayed_log import ReplayedLog
from spark_jobs.tables.row_ids import RowIdColumns, highest
from spark_jobs.tables.snapshots import VECTORS

_COPIES_AT_ONCE = 8
_CHANGING = frozenset({"snapshots", "refs", "snapshot-log", "metadata-log", "current-snapshot-id", "next-row-id"})
"""Fields of metadata that each version has anew."""


@dataclass(frozen=True)
class NextVersion:
    """The metadata that follows another.

    Attributes:
        held: metadata of the newest version, of format version 2 or 3; empty: there is none.
    """

    evolution: Evolution
    log: ReplayedLog
    held: Mapping[str, Any]

    def written(self) -> bytes:
        """Write the files that the version names; returns its metadata.

        Raises:
            FatalError: `ICEBERG_REFUSED`: Iceberg can't represent the Delta table.
        """
        files, model = self._tracked_files(), self._model()
        number = self._snapshot_id(self.log.version)
        made = SnapshotFiles(self._io, self.evolution.versions.folder, model, self.log.version, number)
        manifests = []
        if files:
            manifests.append(made.manifest(DATA, [self._data_entry(file, model) for file in files]))
        if deletes := self._vector_entries(files, model):
            manifests.append(made.manifest(DELETES, deletes))
        first = int(self._continued.get("next-row-id") or 0)
        next_row_id = max(first, highest(self.log) + 1)
        return self._metadata(model, made.listed(manifests, first), first, next_row_id)

    def _tracked_files(self) -> list[ActiveFile]:
        """The data files, which all have row ids."""
        files = active_files(self.evolution.storage, self.evolution.source, self.log, {VECTORS})
        taken = sorted(name for name in schema_of(self.log.schema).types if name.lower() in RESERVED)
        if taken:
            remedy = "rename it in the source, exclude the column, or write iceberg: true"
            raise self._refused(f"its column {taken[0]} has a name that Iceberg reserves", remedy)
        if RowIdColumns.of(self.log.properties) is None:
            raise self._refused("the Delta table has no row tracking", _TRACKING_REMEDY)
        for file in files:
            if file.add.get("baseRowId") is None or file.add.get("defaultRowCommitVersion") is None:
                raise self._refused(f"the Delta log has no row ids, e.g. of {file.add['path']}", _TRACKING_REMEDY)
        return files

    def _refused(self, what: str, remedy: str) -> FatalError:
        return FatalError(ICEBERG_REFUSED, what, where=self.evolution.source, remedy=remedy)

    @property
    def _io(self) -> StoreIO:
        return StoreIO(self.evolution.storage)

    @cached_property
    def _continued(self) -> Mapping[str, Any]:
        """The metadata that the version continues; empty where the Delta table is another one, as after a reload."""
        known = self.held.get("properties", {}).get(DELTA_TABLE, self.log.metadata["id"])
        is_later = self.held.get("last-sequence-number", 0) < self.log.version
        return self.held if known == self.log.metadata["id"] and is_later else {}

    def _model(self) -> Any:
        """pyiceberg's model of the table, without snapshots and of version 2, the newest that it can change."""
        metadata = self.evolution.empty()
        if self._continued:
            kept = {name: value for name, value in self._continued.items() if name not in _CHANGING}
            metadata = parsed(json.dumps({**kept, "format-version": V2}).encode())
        catalog = VersionedCatalog(self.evolution.versions, 0)
        return self.evolution.evolved(metadata, catalog, self.log).table_metadata

    def _snapshot_id(self, version: int) -> int:
        """Of a version of the Delta table, whether or not it was published."""
        digest = hashlib.sha256(f"{self.log.metadata['id']} {version}".encode()).digest()
        return int.from_bytes(digest[:8]) >> 1

    def _entry(self, version: int, data_file: Mapping[str, Any]) -> Entry:
        status = ADDED if version == self.log.version else EXISTING
        return {
            "status": status, "snapshot_id": self._snapshot_id(version), "sequence_number": version,
            "file_sequence_number": version, "data_file": data_file,
        }  # fmt: skip

    def _data_entry(self, file: ActiveFile, model: Any) -> Entry:
        """Without column bounds, so that the metadata contains no values but those of partitions."""
        return self._entry(
            file.add["defaultRowCommitVersion"],
            {"content": DATA, "file_path": file.path, "file_format": "PARQUET",
             "partition": partition_of(file.partition, model.spec(), model.schema()), "record_count": file.rows,
             "file_size_in_bytes": file.size, "first_row_id": file.add["baseRowId"]},
        )  # fmt: skip

    def _vector_entries(self, files: Sequence[ActiveFile], model: Any) -> list[Entry]:
        held, entries = self._held_vectors(), []
        for file, vector in self.vector_files(files, held):
            data_file = {
                "content": DELETES, "file_path": vector.path, "file_format": "PUFFIN",
                "partition": partition_of(file.partition, model.spec(), model.schema()), "record_count": vector.rows,
                "file_size_in_bytes": vector.size, "referenced_data_file": file.path, "content_offset": vector.start,
                "content_size_in_bytes": vector.length,
            }  # fmt: skip
            entries.append(self._entry(held.get(vector.path, self.log.version), data_file))
        return entries

    def vector_files(
        self, files: Sequence[ActiveFile], held: Container[str]
    ) -> list[tuple[ActiveFile, puffin.VectorFile]]:
        """Data files that have lost rows, each with its copied vector.

        Args:
            held: copies that the version before named, which are not written again.
        """
        storage, source = self.evolution.storage, self.evolution.source
        folder = self.evolution.versions.folder
        made = [
            (file, file.vector, puffin.vector_file(folder, file.path, file.vector)) for file in files if file.vector
        ]
        new = [(vector, copied) for _, vector, copied in made if copied.path not in held]
        with ThreadPoolExecutor(_COPIES_AT_ONCE, thread_name_prefix="vectors") as pool:
            list(pool.map(lambda one: puffin.copy_vector(storage, source, *one), new))
        return [(file, copied) for file, _, copied in made]

    def _held_vectors(self) -> dict[str, int]:
        """Files of vectors of the version before, each with the Delta version that it is known since."""
        if self._continued.get("format-version") != V3:
            return {}
        snapshot = parsed(json.dumps(self._continued).encode()).current_snapshot()
        entries = stored_entries(snapshot, self._io, DELETES)
        return {entry.data_file.file_path: entry.sequence_number for entry in entries}

    def _metadata(self, model: Any, manifests: str, first: int, next_row_id: int) -> bytes:
        known, number = json.loads(model.model_dump_json()), self._snapshot_id(self.log.version)
        now = max(int(time.time() * 1000), self._continued.get("last-updated-ms", 0))
        snapshot = {
            "snapshot-id": number, "sequence-number": self.log.version, "timestamp-ms": now, "manifest-list": manifests,
            "schema-id": known["current-schema-id"], "first-row-id": first, "added-rows": next_row_id - first,
            "summary": {"operation": "overwrite"},
        }  # fmt: skip
        metadata = {
            **known, "format-version": V3, "last-sequence-number": self.log.version, "last-updated-ms": now,
            "current-snapshot-id": number, "next-row-id": next_row_id, "snapshots": [snapshot],
            "refs": {"main": {"snapshot-id": number, "type": "branch"}},
            "snapshot-log": [{"snapshot-id": number, "timestamp-ms": now}], "metadata-log": [],
        }  # fmt: skip
        return json.dumps(metadata).encode()


_TRACKING_REMEDY = (
    "a batch with new files turns it on, else ALTER TABLE ... SET TBLPROPERTIES ('delta.enableRowTracking' = 'true'); "
    "or write iceberg: true"
)
