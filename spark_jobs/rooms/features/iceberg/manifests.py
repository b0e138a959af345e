"""Manifests of Iceberg's format version 3, for which pyiceberg has the schemas and no writer."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from airflow_gddl.contract.features.iceberg import V3
from airflow_gddl.contract.layout import join
from spark_jobs.tables.iceberg_metadata import StoreIO

EXISTING, ADDED = 0, 1
DATA, DELETES = 0, 1
"""Content of manifests, and of the files that they name."""
Entry = Mapping[str, Any]
"""Fields of a `manifest_entry`, among them `data_file` as a mapping of its fields."""


@dataclass(frozen=True)
class SnapshotFiles:
    """The manifests of a snapshot, and their list.

    Attributes:
        model: pyiceberg's `TableMetadata`.
        sequence: sequence number of the snapshot, whose number is `snapshot_id`.
    """

    io: StoreIO
    folder: str
    model: Any
    sequence: int
    snapshot_id: int

    def manifest(self, content: int, entries: Sequence[Entry]) -> Mapping[str, Any]:
        """Write a manifest of at least one file; returns its entry of the list."""
        kinds, spec, schema = _kinds(), self.model.spec(), self.model.schema()
        typed = kinds.data_file_with_partition(spec.partition_type(schema), V3)
        about = {
            "schema": schema.model_dump_json(), "schema-id": str(schema.schema_id),
            "partition-spec": json.dumps([json.loads(field.model_dump_json()) for field in spec.fields]),
            "partition-spec-id": str(spec.spec_id), "format-version": str(V3), "content": ("data", "deletes")[content],
        }  # fmt: skip
        kind = kinds.manifest_entry_schema_with_data_file(V3, typed)
        path = join(self.folder, f"{uuid4()}-m{content}.avro")
        size = self._write(path, kind, "manifest_entry", [_record(kinds, entry) for entry in entries], about)
        rows = {n: [e["data_file"]["record_count"] for e in entries if e["status"] == n] for n in (EXISTING, ADDED)}
        partitions = [entry["data_file"]["partition"] for entry in entries]
        return {
            "manifest_path": path, "manifest_length": size, "partition_spec_id": spec.spec_id, "content": content,
            "sequence_number": self.sequence, "min_sequence_number": min(e["sequence_number"] for e in entries),
            "added_snapshot_id": self.snapshot_id, "added_files_count": len(rows[ADDED]),
            "existing_files_count": len(rows[EXISTING]), "deleted_files_count": 0,
            "added_rows_count": sum(rows[ADDED]), "existing_rows_count": sum(rows[EXISTING]), "deleted_rows_count": 0,
            "partitions": kinds.construct_partition_summaries(spec, schema, partitions),
        }  # fmt: skip

    def listed(self, manifests: Sequence[Mapping[str, Any]], first_row_id: int) -> str:
        """Write the list of manifests; returns its path.

        Args:
            first_row_id: of the rows of files without one, of which there are none.
        """
        kinds, of_data = _kinds(), {"first_row_id": first_row_id}
        records = [
            kinds.ManifestFile.from_args(V3, **one, **(of_data if one["content"] == DATA else {})) for one in manifests
        ]
        about = {
            "snapshot-id": str(self.snapshot_id), "parent-snapshot-id": "null", "sequence-number": str(self.sequence),
            "format-version": str(V3), "first-row-id": str(first_row_id),
        }  # fmt: skip
        path = join(self.folder, f"snap-{self.snapshot_id}-{uuid4()}.avro")
        self._write(path, kinds.MANIFEST_LIST_FILE_SCHEMAS[V3], "manifest_file", records, about)
        return path

    def _write(self, path: str, kind: Any, name: str, records: Sequence[Any], about: dict[str, str]) -> int:
        """Write an Avro file; returns its size."""
        writer, file = importlib.import_module("pyiceberg.avro.file").AvroOutputFile, self.io.new_output(path)
        with writer(output_file=file, file_schema=kind, schema_name=name, metadata=about) as stream:
            stream.write_block(records)
        return len(file)


def stored_entries(snapshot: Any, io: StoreIO, content: int) -> Iterator[Any]:
    """pyiceberg's entries of a snapshot's manifests of this content."""
    for manifest in snapshot.manifests(io):
        if manifest.content == content:
            yield from manifest.fetch_manifest_entry(io)


def _kinds() -> Any:
    return importlib.import_module("pyiceberg.manifest")


def _record(kinds: Any, entry: Entry) -> Any:
    """pyiceberg's record of an entry."""
    file = kinds.DataFile.from_args(V3, **entry["data_file"])
    return kinds.ManifestEntry.from_args(V3, **{**entry, "data_file": file})
