"""Row ids and last changes of an Iceberg table of version 3, by the words of its specification."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyroaring import BitMap64

from spark_jobs.tables.iceberg_metadata import MetadataVersions

_ROW_ID, _LAST_CHANGED = 2_147_483_540, 2_147_483_539
Lineage = Mapping[Any, tuple[int, int]]
"""Key to row id and sequence number of the last change."""


def lineage(versions: MetadataVersions, key: str = "id") -> Lineage:
    """Of the newest version."""
    metadata = json.loads(versions.read(versions.newest()))
    (snapshot,) = metadata["snapshots"]
    mapping = json.loads(metadata["properties"]["schema.name-mapping.default"])
    (row_ids,), (changed,) = (
        [one["names"] for one in mapping if one["field-id"] == n] for n in (_ROW_ID, _LAST_CHANGED)
    )
    manifests = list(_records(snapshot["manifest-list"]))
    assert all(one["sequence_number"] == snapshot["sequence-number"] for one in manifests)
    entries = [(one["content"], entry) for one in manifests for entry in _records(one["manifest_path"])]
    deleted = {e["data_file"]["referenced_data_file"]: _deleted(e["data_file"]) for content, e in entries if content}
    found: dict[Any, tuple[int, int]] = {}
    for file in (entry for content, entry in entries if not content):
        for position, row in _rows(file["data_file"], deleted):
            first, sequence = file["data_file"]["first_row_id"], file["sequence_number"]
            row_id = row.get(row_ids[0])
            last = row.get(changed[0])
            assert row[key] not in found
            found[row[key]] = (first + position if row_id is None else row_id, sequence if last is None else last)
    ids = {row_id for row_id, _ in found.values()}
    assert len(ids) == len(found)
    assert all(row_id < metadata["next-row-id"] for row_id in ids)
    return found


def _rows(file: Mapping[str, Any], deleted: Mapping[str, BitMap64]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    gone = deleted.get(file["file_path"], BitMap64())
    rows = pq.ParquetFile(file["file_path"]).read().to_pylist()
    assert len(rows) == file["record_count"]
    return ((n, row) for n, row in enumerate(rows) if n not in gone)


def _deleted(vector: Mapping[str, Any]) -> BitMap64:
    """Numbers of the rows that a Puffin file's vector names."""
    content = Path(vector["file_path"]).read_bytes()
    start, length = vector["content_offset"], vector["content_size_in_bytes"]
    assert (content[:4], content[-4:], len(content)) == (b"PFA1", b"PFA1", vector["file_size_in_bytes"])
    rows = BitMap64.deserialize(content[start + 8 : start + length - 4])
    assert len(rows) == vector["record_count"] > 0
    return rows


def _records(path: str) -> Iterator[Mapping[str, Any]]:
    return iter(list(fastavro.reader(io.BytesIO(Path(path).read_bytes()))))
