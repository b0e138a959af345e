"""Whether Delta and Iceberg v3 can share data files, deletion vectors and row ids, and which readers then read them.

    python -m tests.readers.iceberg_v3 "pyspark==4.1.1" \
        "duckdb==1.5.5 duckdb-extension-delta==1.5.5 duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5 pytz"

The tables are made here, not by a job: `iceberg: true` writes v2. A table is a random history of updates, deletes,
inserts and compactions, of which each version is one of a Delta log and one snapshot of Iceberg metadata. Both name the
same Parquet files and the same bitmaps. `VECTORS` are the ways to hold the bitmaps. `by_spark` has Spark write a table
by `MERGE`, `DELETE` and `OPTIMIZE`, and makes the Iceberg metadata of its log.

Each argument is one environment: requirements, of which the first names the reader. Spark of an environment reads
Iceberg, the Spark of this project Delta. An answer is `reads`, `reads, with row ids`, `refuses` with the reader's
error, or `WRONG` with the first version that had other rows; the exit status is 1 where one is wrong.
`--make FOLDER` only makes the tables, `--ask PACKAGE FOLDER` asks the reader that is installed.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import random
import struct
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VECTORS = {
    "bin": "Delta's file, which Iceberg points into",
    "both": "Delta's file with Puffin's footer behind it",
    "puffin": "Puffin's file, which Delta points into",
    "inline": "in Delta's log, and in a Puffin file for Iceberg",
    "copied": "Delta's file, and a Puffin file for each bitmap for Iceberg",
}
VERSIONS = 12
_ROW_ID, _SEQUENCE = "_row_id", "_last_updated_sequence_number"
"""Columns of the data files that the schema of neither format has: Iceberg finds them by its name mapping, Delta by
table properties of row tracking."""
_MAPPED = {"id": 1, "name": 2, _ROW_ID: 2_147_483_540, _SEQUENCE: 2_147_483_539}
_PUFFIN = b"PFA1"
_FIRST_TIME = 1_700_000_000_000
Known = tuple[int, str, int, int]
"""A row: id, name, row id, and the version that changed it last."""


# --- the tables


@dataclass
class File:
    """A data file.

    Attributes:
        version: that added it; Iceberg's sequence number of it.
        first_row_id: of its row 0.
        ids: of its rows, deleted ones among them.
        deleted: numbers of deleted rows.
        vector: Delta's descriptor, and place and path of the bitmap as Iceberg has it; None: no row is deleted.
    """

    name: str
    size: int
    version: int
    first_row_id: int
    ids: list[int]
    deleted: set[int] = field(default_factory=set)
    vector: tuple[dict[str, Any], dict[str, Any]] | None = None


@dataclass(frozen=True)
class Lost:
    """A data file that has lost rows.

    Attributes:
        path: of the data file.
        blob: its bitmap with size and checksum, which is the same in both formats.
        descriptor: Delta's, of the file that jobs write.
    """

    file: File
    path: str
    blob: bytes
    descriptor: Mapping[str, Any]


@dataclass
class IcebergVersions:
    """Iceberg metadata of a table's versions, in the folder `iceberg` below the table's.

    Attributes:
        mapped: ids of the columns of the data files, by name.
    """

    root: Path
    mapped: Mapping[str, int]
    snapshots: list[dict[str, Any]] = field(default_factory=list)

    def add(self, version: int, files: Sequence[File], next_row_id: int) -> None:
        """Manifests of the version's files and vectors, and metadata of all versions until then.

        Args:
            next_row_id: above those of all rows until then.
        """
        data = [
            {"content": 0, "file_path": str(self.root / file.name), "file_format": "PARQUET",
             "record_count": len(file.ids), "file_size_in_bytes": file.size, "first_row_id": file.first_row_id,
             "sequence_number": file.version}
            for file in files
        ]  # fmt: skip
        vectors = [file.vector[1] for file in files if file.vector]
        first = self.snapshots[-1]["first-row-id"] + self.snapshots[-1]["added-rows"] if self.snapshots else 0
        lists = [self._manifest(version, 0, data, first)]
        if vectors:
            lists.append(self._manifest(version, 1, vectors, None))
        path = self.root / f"iceberg/metadata/snap-{version}.avro"
        about = {"format-version": "3", "snapshot-id": str(version), "sequence-number": str(version)}
        _write_avro(path, _record("manifest_file", _LIST), lists, about | {"first-row-id": str(first)})
        self.snapshots.append(
            {"snapshot-id": version, "sequence-number": version, "timestamp-ms": _FIRST_TIME + version,
             "manifest-list": str(path), "schema-id": 0, "first-row-id": first,
             "added-rows": next_row_id - first, "summary": {"operation": "overwrite"}}
        )  # fmt: skip
        (path.parent / f"v{version}.metadata.json").write_text(json.dumps(self._metadata(version, next_row_id)))
        (path.parent / "version-hint.text").write_text(str(version))

    def _manifest(self, version: int, content: int, files: list[dict[str, Any]], first: int | None) -> dict[str, Any]:
        entries = [
            {"status": 1 if file["sequence_number"] == version else 0, "snapshot_id": file["sequence_number"],
             "sequence_number": file["sequence_number"], "file_sequence_number": file["sequence_number"],
             "data_file": {"partition": {}} | {name: v for name, v in file.items() if name != "sequence_number"}}
            for file in files
        ]  # fmt: skip
        path = self.root / f"iceberg/metadata/manifest-{version}-{content}.avro"
        about = {
            "schema": json.dumps(_SCHEMA), "schema-id": "0", "partition-spec": "[]", "partition-spec-id": "0",
            "format-version": "3", "content": ("data", "deletes")[content],
        }  # fmt: skip
        _write_avro(path, _entry(), entries, about)
        added = [entry["data_file"]["record_count"] for entry in entries if entry["status"] == 1]
        stayed = [entry["data_file"]["record_count"] for entry in entries if entry["status"] == 0]
        return {
            "manifest_path": str(path), "manifest_length": path.stat().st_size, "partition_spec_id": 0,
            "content": content, "sequence_number": version,
            "min_sequence_number": min(file["sequence_number"] for file in files), "added_snapshot_id": version,
            "added_files_count": len(added), "existing_files_count": len(stayed), "deleted_files_count": 0,
            "added_rows_count": sum(added), "existing_rows_count": sum(stayed), "deleted_rows_count": 0,
            "first_row_id": first,
        }  # fmt: skip

    def _metadata(self, version: int, next_row_id: int) -> dict[str, Any]:
        mapping = [{"field-id": number, "names": [name]} for name, number in self.mapped.items()]
        return {
            "format-version": 3, "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, str(self.root))),
            "location": str(self.root / "iceberg"), "last-sequence-number": version,
            "last-updated-ms": _FIRST_TIME + version, "last-column-id": 2, "schemas": [_SCHEMA],
            "current-schema-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0,
            "last-partition-id": 999, "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0,
            "properties": {"schema.name-mapping.default": json.dumps(mapping)}, "current-snapshot-id": version,
            "next-row-id": next_row_id, "refs": {"main": {"snapshot-id": version, "type": "branch"}},
            "snapshots": self.snapshots, "snapshot-log": [], "metadata-log": [],
        }  # fmt: skip


@dataclass
class SharedTable:
    """A Delta table, and Iceberg metadata of all its versions in the folder `iceberg`."""

    root: Path
    kind: str
    rows: dict[int, Known] = field(default_factory=dict)
    files: list[File] = field(default_factory=list)
    next_row_id: int = 0
    actions: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.iceberg = IcebergVersions(self.root, _MAPPED)

    def create(self) -> None:
        (self.root / "_delta_log").mkdir(parents=True)
        (self.root / "iceberg/metadata").mkdir(parents=True)
        features = ["deletionVectors", "rowTracking", "domainMetadata"]
        fields = [("id", "long"), ("name", "string")]
        schema = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
        properties = {
            "delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": _ROW_ID,
            "delta.rowTracking.materializedRowCommitVersionColumnName": _SEQUENCE,
        }  # fmt: skip
        protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": features[:1], "writerFeatures": features}
        metadata = {
            "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
            "schemaString": json.dumps({"type": "struct", "fields": schema}), "configuration": properties,
            "createdTime": _FIRST_TIME,
        }  # fmt: skip
        self.actions = [{"protocol": protocol}, {"metaData": metadata}]
        self._commit(0)

    def change(self, version: int, updated: Sequence[int], deleted: Sequence[int], added: Sequence[int]) -> None:
        """New rows of changed keys are in a file with their row ids, as the update of an engine writes them."""
        lost = self._delete({*updated, *deleted})
        for key in deleted:
            del self.rows[key]
        kept = [(key, self.rows[key][2]) for key in updated]
        first = self.next_row_id + len(kept)
        self.rows |= {key: (key, f"{key} of {version}", at, version) for key, at in kept}
        self.rows |= {key: (key, f"{key} of {version}", first + n, version) for n, key in enumerate(added)}
        self._add_file(version, [(key, at, None) for key, at in kept] + [(key, None, None) for key in added])
        self._write_vectors(lost, version)
        self._end(version)

    def compact(self, version: int) -> None:
        """All rows in one file, with their row ids and with the versions that changed them."""
        for file in self.files:
            self._remove(file)
        self.files = []
        self._add_file(version, [(key, at, changed) for key, _, at, changed in self.rows.values()])
        self._end(version)

    def _add_file(self, version: int, rows: Sequence[tuple[int, int | None, int | None]]) -> None:
        import pyarrow as pa  # noqa: PLC0415 - not where a reader is asked
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        keys, row_ids, changed = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
        columns = {"id": keys, "name": [self.rows[key][1] for key in keys], _ROW_ID: row_ids, _SEQUENCE: changed}
        types = {name: pa.string() if name == "name" else pa.int64() for name in columns}
        path = self.root / f"part-{version}.parquet"
        pq.write_table(pa.table({name: pa.array(values, types[name]) for name, values in columns.items()}), path)
        file = File(path.name, path.stat().st_size, version, self.next_row_id, keys)
        self.next_row_id += len(keys)
        self.files.append(file)
        self._add(file)

    def _delete(self, keys: set[int]) -> list[File]:
        """Files that lose rows."""
        lost = []
        for file in self.files:
            found = {n for n, key in enumerate(file.ids) if key in keys} - file.deleted
            if found:
                self._remove(file)
                file.deleted |= found
                lost.append(file)
        return lost

    def _add(self, file: File) -> None:
        add = {
            "path": file.name, "partitionValues": {}, "size": file.size, "modificationTime": _FIRST_TIME,
            "dataChange": True, "stats": json.dumps({"numRecords": len(file.ids), "tightBounds": not file.deleted}),
            "baseRowId": file.first_row_id, "defaultRowCommitVersion": file.version,
        }  # fmt: skip
        self.actions.append({"add": add | ({"deletionVector": file.vector[0]} if file.vector else {})})

    def _remove(self, file: File) -> None:
        remove = {
            "path": file.name, "dataChange": True, "deletionTimestamp": _FIRST_TIME, "extendedFileMetadata": True,
            "partitionValues": {}, "size": file.size, "baseRowId": file.first_row_id,
            "defaultRowCommitVersion": file.version,
        }  # fmt: skip
        self.actions.append({"remove": remove | ({"deletionVector": file.vector[0]} if file.vector else {})})

    def _write_vectors(self, files: Sequence[File], version: int) -> None:
        """The bitmaps of a version in one file, written as jobs write them, then held as `kind` says."""
        import numpy as np  # noqa: PLC0415 - not where a reader is asked

        from airflow_gddl.stores import Storage  # noqa: PLC0415 - as above
        from spark_jobs.tables.deletion_vectors import path_of, written  # noqa: PLC0415 - as above

        descriptors = written(Storage(), str(self.root), [np.array(sorted(file.deleted)) for file in files])
        if not files:
            return
        path = Path(path_of(str(self.root), descriptors[0]))
        content = path.read_bytes()
        lost = [
            Lost(file, str(self.root / file.name), _blob(content, d), d)
            for file, d in zip(files, descriptors, strict=True)
        ]
        if self.kind == "copied":
            for one in lost:
                self._hold([one], self.root / f"{path.stem}-{one.file.name}.puffin", _PUFFIN, version)
        else:
            self._hold(lost, path, b"\x01" if self.kind in ("bin", "both") else _PUFFIN, version)

    def _hold(self, lost: Sequence[Lost], path: Path, head: bytes, version: int) -> None:
        """Write a file of bitmaps for Iceberg, and name it in the logs as `kind` says."""
        starts = [len(head) + sum(len(one.blob) for one in lost[:n]) for n in range(len(lost))]
        foot = b"" if self.kind == "bin" else _footer(lost, starts)
        path.write_bytes(head + b"".join(one.blob for one in lost) + foot)
        for one, start in zip(lost, starts, strict=True):
            held = dict(one.descriptor)
            if self.kind == "inline":
                del held["offset"]
                held |= {"storageType": "i", "pathOrInlineDv": _z85(one.blob[4:-4])}
            elif self.kind != "copied":
                held["offset"] = start
            one.file.vector = (held, _place(one, path, start, version))
            self._add(one.file)

    def _end(self, version: int) -> None:
        domain = {"domain": "delta.rowTracking", "removed": False}
        domain["configuration"] = json.dumps({"rowIdHighWaterMark": self.next_row_id - 1})
        self.actions.append({"domainMetadata": domain})
        self._commit(version)
        self.iceberg.add(version, self.files, self.next_row_id)
        (self.root / f"expected-{version}.json").write_text(json.dumps(sorted(self.rows.values())))

    def _commit(self, version: int) -> None:
        moment = {"commitInfo": {"timestamp": _FIRST_TIME + version, "operation": "WRITE", "operationParameters": {}}}
        lines = [json.dumps(action) for action in (moment, *self.actions)]
        (self.root / f"_delta_log/{version:020}.json").write_text("\n".join(lines) + "\n")
        self.actions = []


_SCHEMA = {
    "type": "struct", "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"},
               {"id": 2, "name": "name", "required": False, "type": "string"}],
}  # fmt: skip
_LIST = (
    ("manifest_path", "string", 500), ("manifest_length", "long", 501), ("partition_spec_id", "int", 502),
    ("content", "int", 517), ("sequence_number", "long", 515), ("min_sequence_number", "long", 516),
    ("added_snapshot_id", "long", 503), ("added_files_count", "int", 504), ("existing_files_count", "int", 505),
    ("deleted_files_count", "int", 506), ("added_rows_count", "long", 512), ("existing_rows_count", "long", 513),
    ("deleted_rows_count", "long", 514), ("first_row_id", ["null", "long"], 520),
)  # fmt: skip


def _record(name: str, fields: Sequence[tuple[str, Any, int]]) -> dict[str, Any]:
    """A record of Avro with Iceberg's ids."""
    return {
        "type": "record", "name": name,
        "fields": [{"name": field, "type": kind, "field-id": number} for field, kind, number in fields],
    }  # fmt: skip


def _entry() -> dict[str, Any]:
    file = (
        ("content", "int", 134), ("file_path", "string", 100), ("file_format", "string", 101),
        ("partition", _record("r102", ()), 102), ("record_count", "long", 103), ("file_size_in_bytes", "long", 104),
        ("first_row_id", ["null", "long"], 142), ("referenced_data_file", ["null", "string"], 143),
        ("content_offset", ["null", "long"], 144), ("content_size_in_bytes", ["null", "long"], 145),
    )  # fmt: skip
    numbers = ("snapshot_id", 1), ("sequence_number", 3), ("file_sequence_number", 4)
    of_entry = [(name, ["null", "long"], number) for name, number in numbers]
    return _record("manifest_entry", [("status", "int", 0), *of_entry, ("data_file", _record("r2", file), 2)])


def _write_avro(path: Path, schema: dict[str, Any], records: list[dict[str, Any]], about: Mapping[str, str]) -> None:
    import fastavro  # noqa: PLC0415 - not where a reader is asked

    with path.open("wb") as stream:
        fastavro.writer(stream, schema, records, metadata=dict(about))


def _blob(content: bytes, descriptor: Mapping[str, Any]) -> bytes:
    """The bitmap with its size before it and its checksum behind it: `deletion-vector-v1` of Iceberg."""
    return content[descriptor["offset"] : descriptor["offset"] + descriptor["sizeInBytes"] + 8]


def _place(lost: Lost, path: Path, start: int, version: int) -> dict[str, Any]:
    """Entry of a manifest for a bitmap."""
    return {
        "content": 1, "file_path": str(path), "file_format": "PUFFIN", "record_count": lost.descriptor["cardinality"],
        "file_size_in_bytes": path.stat().st_size, "referenced_data_file": lost.path, "content_offset": start,
        "content_size_in_bytes": len(lost.blob), "sequence_number": version,
    }  # fmt: skip


def _footer(lost: Sequence[Lost], starts: Sequence[int]) -> bytes:
    """What a Puffin file of these bitmaps ends with."""
    listed = [
        {"type": "deletion-vector-v1", "fields": [2_147_483_645], "snapshot-id": -1, "sequence-number": -1,
         "offset": start, "length": len(one.blob),
         "properties": {"referenced-data-file": one.path, "cardinality": str(one.descriptor["cardinality"])}}
        for one, start in zip(lost, starts, strict=True)
    ]  # fmt: skip
    text = json.dumps({"blobs": listed, "properties": {}}).encode()
    return _PUFFIN + text + struct.pack("<i", len(text)) + bytes(4) + _PUFFIN


def _z85(data: bytes) -> str:
    ours = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    theirs = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(bytes.maketrans(ours, theirs)).decode()


def make(folder: Path, seed: int = 0) -> None:
    """A table for each of `VECTORS`, all with the same history."""
    for kind in VECTORS:
        draw = random.Random(seed)  # noqa: S311 - a history, no secret
        table = SharedTable(folder / kind, kind)
        table.create()
        table.change(1, [], [], range(40))
        for version in range(2, VERSIONS + 1):
            if version % 5 == 0:
                table.compact(version)
                continue
            held = draw.sample(sorted(table.rows), draw.randint(2, 12))
            cut = draw.randint(1, len(held) - 1)
            table.change(version, held[:cut], held[cut:], range(100 * version, 100 * version + draw.randint(0, 4)))


# --- a table that Spark writes

MERGED = "merged"
_CREATED = """CREATE TABLE delta.`{}` (id BIGINT, name STRING) USING delta TBLPROPERTIES
    ('delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true')"""
_MERGE = """MERGE INTO delta.`{}` t USING changes s ON t.id = s.id WHEN MATCHED AND s.op = 'D' THEN DELETE
    WHEN MATCHED THEN UPDATE SET t.name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"""


def by_spark(spark: Any, folder: Path, seed: int = 0) -> Path:
    """A table that Delta in Spark writes, and Iceberg metadata of each version of its log, as in `copied`."""
    draw, root = random.Random(seed), folder / MERGED  # noqa: S311 - a history, no secret
    spark.sql(_CREATED.format(root))
    spark.sql(f"INSERT INTO delta.`{root}` SELECT id, concat(id, ' of 1') FROM range(40)")
    live = set(range(40))
    for version in range(2, VERSIONS + 1):
        if version % 5 == 0:
            spark.sql(f"OPTIMIZE delta.`{root}`")
            continue
        held = draw.sample(sorted(live), draw.randint(2, 8))
        cut = draw.randint(1, len(held) - 1)
        rows = [(key, f"{key} of {version}", "U" if n < cut else "D") for n, key in enumerate(held)]
        rows += [(key, f"{key} of {version}", "I") for key in range(100 * version, 100 * version + draw.randint(0, 4))]
        spark.createDataFrame(rows, "id long, name string, op string").createOrReplaceTempView("changes")
        spark.sql(_MERGE.format(root))
        live = live - set(held[cut:]) | {key for key, _, op in rows if op == "I"}
    _publish(root)
    for version in range(1, VERSIONS + 1):
        expected = sorted(tuple(row) for row in spark_delta(spark)(str(root), version))
        (root / f"expected-{version}.json").write_text(json.dumps(expected))
    return root


def _publish(root: Path) -> None:
    """Iceberg metadata of all versions of a Delta log with row tracking."""
    commits = [
        [json.loads(line) for line in path.read_text().splitlines()] for path in sorted(root.glob("_delta_log/*.json"))
    ]
    (properties,) = (a["metaData"]["configuration"] for actions in commits for a in actions if "metaData" in a)
    columns = {_ROW_ID: "materializedRowIdColumnName", _SEQUENCE: "materializedRowCommitVersionColumnName"}
    mapped = {properties.get(f"delta.rowTracking.{columns.get(name)}", name): n for name, n in _MAPPED.items()}
    iceberg, files, next_row_id = IcebergVersions(root, mapped), dict[str, File](), 0
    (root / "iceberg/metadata").mkdir(parents=True)
    for version, actions in enumerate(commits):
        for removed in (action["remove"] for action in actions if "remove" in action):
            del files[removed["path"]]
        files |= {
            action["add"]["path"]: _published(root, action["add"], version) for action in actions if "add" in action
        }
        for domain in (action["domainMetadata"] for action in actions if "domainMetadata" in action):
            next_row_id = json.loads(domain["configuration"])["rowIdHighWaterMark"] + 1
        if files:
            iceberg.add(version, list(files.values()), next_row_id)


def _published(root: Path, add: dict[str, Any], version: int) -> File:
    """A file of a commit, with a copy of its bitmap in a Puffin file."""
    from spark_jobs.tables.deletion_vectors import path_of  # noqa: PLC0415 - not where a reader is asked

    rows = json.loads(add["stats"])["numRecords"]
    file = File(add["path"], add["size"], add["defaultRowCommitVersion"], add["baseRowId"], list(range(rows)))
    vector = add.get("deletionVector")
    if vector:
        content = Path(path_of(str(root), vector)).read_bytes()
        lost = Lost(file, str(root / file.name), _blob(content, vector), vector)
        path = root / f"iceberg/{version}-{file.name}.puffin"
        path.write_bytes(_PUFFIN + lost.blob + _footer([lost], [len(_PUFFIN)]))
        file.vector = (vector, _place(lost, path, len(_PUFFIN), version))
    return file


# --- the readers, in their own environment

Read = Callable[[str, int], list[Sequence[Any]]]
"""Rows of a version, as lists of id and name, and where the reader has them, of row id and version, too."""
DELTA_IDS = ("id", "name", "_metadata.row_id", "_metadata.row_commit_version")
ICEBERG_IDS = ("id", "name", _ROW_ID, _SEQUENCE)


def deltalake_delta() -> Read:
    import deltalake  # noqa: PLC0415 - in the environment of this reader alone

    def read(path: str, version: int) -> list[Sequence[Any]]:
        found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path, version=version))
        rows = found.execute("SELECT id, name FROM t").read_all()
        return list(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))

    return read


def polars_delta() -> Read:
    import polars as pl  # noqa: PLC0415 - in the environment of this reader alone

    return lambda path, version: list(pl.scan_delta(path, version=version).collect().iter_rows())


def polars_iceberg() -> Read:
    import polars as pl  # noqa: PLC0415 - in the environment of this reader alone

    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # else it warns that it plans by pyiceberg

    def read(path: str, version: int) -> list[Sequence[Any]]:
        metadata = f"{path}/iceberg/metadata/v{version}.metadata.json"
        return list(pl.scan_iceberg(metadata, reader_override="native").collect().iter_rows())

    return read


def pyiceberg_iceberg() -> Read:
    tables = importlib.import_module("pyiceberg.table")

    def read(path: str, version: int) -> list[Sequence[Any]]:
        table = tables.StaticTable.from_metadata(f"{path}/iceberg")
        rows = table.scan(snapshot_id=version).to_arrow()
        return list(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))

    return read


def _duckdb() -> Any:
    import duckdb  # noqa: PLC0415 - in the environment of this reader alone

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg", "delta"):
        (folder,) = importlib.import_module(f"duckdb_extension_{name}").__path__
        (file,) = Path(folder).rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    return connection


def duckdb_delta() -> Read:
    connection = _duckdb()

    def read(path: str, version: int) -> list[Sequence[Any]]:
        return list(connection.execute(f"FROM delta_scan('{path}', version => {version})").fetchall())

    return read


def duckdb_iceberg() -> Read:
    connection, columns = _duckdb(), ", ".join(ICEBERG_IDS)

    def read(path: str, version: int) -> list[Sequence[Any]]:
        table = f"iceberg_scan('{path}/iceberg', snapshot_from_id => {version})"
        return list(connection.execute(f"SELECT {columns} FROM {table}").fetchall())

    return read


ICEBERG = "1.12.0"
"""Version of Iceberg that Spark reads with."""


def pyspark_iceberg() -> Read:
    import pyspark  # noqa: PLC0415 - in the environment of this reader alone
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    central = Path(tempfile.mkdtemp()) / "ivy.xml"  # Spark's own settings ask a second repository, too
    resolver = '<ibiblio name="central" m2compatible="true"/>'
    central.write_text(
        f'<ivysettings><settings defaultResolver="central"/><resolvers>{resolver}</resolvers></ivysettings>'
    )
    minor = ".".join(pyspark.__version__.split(".")[:2])
    settings = {
        "spark.jars.packages": f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:{ICEBERG}",
        "spark.jars.ivySettings": str(central), "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
    }  # fmt: skip
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

    def read(path: str, version: int) -> list[Sequence[Any]]:
        frame = spark.read.format("iceberg").option("versionAsOf", version).load(f"{path}/iceberg")
        return list(frame.select(*ICEBERG_IDS).collect())

    return read


def spark_delta(spark: Any) -> Read:
    """By a session that has Delta."""

    def read(path: str, version: int) -> list[Sequence[Any]]:
        return list(spark.read.format("delta").option("versionAsOf", version).load(path).select(*DELTA_IDS).collect())

    return read


READERS: Mapping[str, Mapping[str, Callable[[], Read]]] = {
    "deltalake": {"deltalake": deltalake_delta},
    "polars": {"Polars, Delta": polars_delta, "Polars, Iceberg": polars_iceberg},
    "pyiceberg": {"pyiceberg": pyiceberg_iceberg},
    "duckdb": {"DuckDB, Delta": duckdb_delta, "DuckDB, Iceberg": duckdb_iceberg},
    "pyspark": {"Spark, Iceberg": pyspark_iceberg},
}
"""By the name of a package: its readers."""


def answer(read: Read, folder: Path, kind: str, versions: Sequence[int] = range(1, VERSIONS + 1)) -> str:
    """`reads`, `reads, with row ids`, `refuses: …` or `WRONG: …`, of versions of a table."""
    with_ids = False
    for version in versions:
        known = json.loads((folder / kind / f"expected-{version}.json").read_text())
        try:
            found = sorted(tuple(row) for row in read(str(folder / kind), version))
        except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
            return f"refuses version {version}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        columns = len(found[0]) if found else 0
        with_ids = columns == len(ICEBERG_IDS)
        if found != [tuple(row[:columns]) for row in known]:
            return f"WRONG: version {version} has {len(found)} rows, of {len(known)}, e.g. {found[:2]}"
    return "reads, with row ids" if with_ids else "reads"


def ask(package: str, folder: Path) -> dict[str, dict[str, str]]:
    """What each reader of a package says to each kind of vectors."""
    readers = {name: of() for name, of in READERS[package].items()}
    kinds = [kind for kind in (*VECTORS, MERGED) if (folder / kind).is_dir()]
    return {name: {kind: answer(read, folder, kind) for kind in kinds} for name, read in readers.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("environments", nargs="*", metavar="REQUIREMENTS")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--make", type=Path, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=0, help="of the history")
    parser.add_argument("--spark", action="store_true", help="with a table that the Spark of this project writes")
    parser.add_argument("--ask", nargs=2, metavar=("PACKAGE", "FOLDER"))
    given = parser.parse_args(arguments)
    if given.ask:
        print(json.dumps(ask(given.ask[0], Path(given.ask[1]))))
        return 0
    if given.make:
        make(given.make, given.seed)
        return 0
    with tempfile.TemporaryDirectory() as made:
        make(Path(made), given.seed)
        if given.spark:
            from tests.conftest import LocalPort  # noqa: PLC0415 - not where a reader is asked

            by_spark(LocalPort("many").spark.for_table(), Path(made), given.seed)
        lines = list(_each(given.environments, given.python, made))
    return int(any("WRONG" in line for line in lines))


def _each(environments: Sequence[str], python: str, folder: str) -> Iterator[str]:
    """Print and give a line for each reader and kind of vectors."""
    from tests.readers.reader_versions import in_environment  # noqa: PLC0415 - not where a reader is asked

    for requirements in environments:
        package = requirements.split()[0].partition("==")[0]
        command = [str(Path(__file__).resolve()), "--ask", package, folder]
        with tempfile.TemporaryDirectory() as venv:
            output, failure = in_environment(requirements.split(), Path(venv), python, command)
        found = {package: {"": failure}} if failure else json.loads(output)
        for name, by_kind in found.items():
            for kind, said in by_kind.items():
                line = f"{requirements.split()[0]:20} {name:18} {kind:8} {said}"
                print(line, flush=True)
                yield line


if __name__ == "__main__":
    raise SystemExit(main())
