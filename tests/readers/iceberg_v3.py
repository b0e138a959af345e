"""Whether Delta and Iceberg v3 can share data files, deletion vectors and row ids, and which readers then read them.

    python -m tests.readers.iceberg_v3 "pyspark==4.1.1" \
        "duckdb==1.5.5 duckdb-extension-delta==1.5.5 duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5 pytz"

The tables are made here, not by a job. A table is a random history of updates, deletes, inserts and compactions, of
which each version is one of a Delta log and an Iceberg table, whose metadata the publisher of `iceberg: 3` writes. Both
name the same Parquet files and bitmaps. `VECTORS` are the ways to hold the bitmaps; `copied` is the publisher's.
`by_spark` has Spark write a table by `MERGE` and `OPTIMIZE`.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
_PUFFIN = b"PFA1"
_FIRST_TIME = 1_700_000_000_000
Known = tuple[int, str, int, int]
"""A row: id, name, row id, and the version that changed it last."""


# --- the tables


@dataclass
class File:
    """A data file.

    Attributes:
        version: that added it.
        first_row_id: of its row 0.
        ids: of its rows, deleted ones among them.
        deleted: numbers of deleted rows.
        vector: Delta's descriptor, and fields of a `puffin.VectorFile`, which the publisher makes of None; None: no row
            is deleted.
    """

    name: str
    size: int
    version: int
    first_row_id: int
    ids: list[int]
    deleted: set[int] = field(default_factory=set)
    vector: tuple[Mapping[str, Any], dict[str, Any] | None] | None = None


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


def publish(root: Path, version: int, placed: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Write the Iceberg table `iceberg-<version>` below a Delta table, of its newest version.

    Args:
        placed: by data file, fields of the `puffin.VectorFile` of its deleted rows; None: the publisher copies bitmaps.
    """
    from airflow_gddl.stores import Storage  # noqa: PLC0415 - not where a reader is asked
    from spark_jobs.rooms.features.iceberg.evolution import Evolution  # noqa: PLC0415 - as above
    from spark_jobs.rooms.features.iceberg.puffin import VectorFile  # noqa: PLC0415 - as above
    from spark_jobs.rooms.features.iceberg.version_3 import NextVersion  # noqa: PLC0415 - as above
    from spark_jobs.tables.iceberg_metadata import MetadataVersions  # noqa: PLC0415 - as above
    from spark_jobs.tables.replayed_log import replayed  # noqa: PLC0415 - as above

    class Placed(NextVersion):
        def vector_files(self, files: Any, held: Any) -> Any:
            if placed is None:
                return super().vector_files(files, held)
            return [(file, VectorFile(**placed[file.path])) for file in files if file.vector]

    storage, log = Storage(), replayed(Storage(), str(root))
    versions = MetadataVersions(storage, f"{root}/iceberg-{version}")
    assert log is not None
    versions.create(1, Placed(Evolution(storage, str(root), versions), log, {}).written())


@dataclass
class SharedTable:
    """A Delta table, and Iceberg metadata of all its versions in the folder `iceberg`."""

    root: Path
    kind: str
    rows: dict[int, Known] = field(default_factory=dict)
    files: list[File] = field(default_factory=list)
    next_row_id: int = 0
    actions: list[dict[str, Any]] = field(default_factory=list)

    def create(self) -> None:
        (self.root / "_delta_log").mkdir(parents=True)
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
        self._write_vectors(lost)
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

    def _write_vectors(self, files: Sequence[File]) -> None:
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
                one.file.vector = (one.descriptor, None)
                self._add(one.file)
        else:
            self._hold(lost, path, b"\x01" if self.kind in ("bin", "both") else _PUFFIN)

    def _hold(self, lost: Sequence[Lost], path: Path, head: bytes) -> None:
        """Write a file of bitmaps for Iceberg, and name it in the logs as `kind` says."""
        starts = [len(head) + sum(len(one.blob) for one in lost[:n]) for n in range(len(lost))]
        foot = b"" if self.kind == "bin" else _footer(lost, starts)
        path.write_bytes(head + b"".join(one.blob for one in lost) + foot)
        for one, start in zip(lost, starts, strict=True):
            held = dict(one.descriptor)
            if self.kind == "inline":
                del held["offset"]
                held |= {"storageType": "i", "pathOrInlineDv": _z85(one.blob[4:-4])}
            else:
                held["offset"] = start
            one.file.vector = (held, _place(one, path, start))
            self._add(one.file)

    def _end(self, version: int) -> None:
        domain = {"domain": "delta.rowTracking", "removed": False}
        domain["configuration"] = json.dumps({"rowIdHighWaterMark": self.next_row_id - 1})
        self.actions.append({"domainMetadata": domain})
        self._commit(version)
        places = {str(self.root / file.name): file.vector[1] or {} for file in self.files if file.vector}
        publish(self.root, version, None if self.kind == "copied" else places)
        (self.root / f"expected-{version}.json").write_text(json.dumps(sorted(self.rows.values())))

    def _commit(self, version: int) -> None:
        moment = {"commitInfo": {"timestamp": _FIRST_TIME + version, "operation": "WRITE", "operationParameters": {}}}
        lines = [json.dumps(action) for action in (moment, *self.actions)]
        (self.root / f"_delta_log/{version:020}.json").write_text("\n".join(lines) + "\n")
        self.actions = []


def _blob(content: bytes, descriptor: Mapping[str, Any]) -> bytes:
    """The bitmap with its size before it and its checksum behind it: `deletion-vector-v1` of Iceberg."""
    return content[descriptor["offset"] : descriptor["offset"] + descriptor["sizeInBytes"] + 8]


def _place(lost: Lost, path: Path, start: int) -> dict[str, Any]:
    """Fields of a `puffin.VectorFile`."""
    return {
        "path": str(path), "data_file": lost.path, "size": path.stat().st_size, "length": len(lost.blob),
        "rows": lost.descriptor["cardinality"], "start": start,
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
MERGE = """MERGE INTO delta.`{}` t USING changes s ON t.id = s.id WHEN MATCHED AND s.op = 'D' THEN DELETE
    WHEN MATCHED THEN UPDATE SET t.name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"""


def create(spark: Any, path: str | Path) -> None:
    spark.sql(_CREATED.format(path))


def by_spark(spark: Any, folder: Path, seed: int = 0) -> Path:
    """A table that Delta in Spark writes, and an Iceberg table of each version, as in `copied`."""
    draw, root = random.Random(seed), folder / MERGED  # noqa: S311 - a history, no secret
    create(spark, root)
    spark.sql(f"INSERT INTO delta.`{root}` SELECT id, concat(id, ' of 1') FROM range(40)")
    live = set(range(40))
    for version in range(2, VERSIONS + 1):
        publish(root, version - 1)
        if version % 5 == 0:
            spark.sql(f"OPTIMIZE delta.`{root}`")
            continue
        held = draw.sample(sorted(live), draw.randint(2, 8))
        cut = draw.randint(1, len(held) - 1)
        rows = [(key, f"{key} of {version}", "U" if n < cut else "D") for n, key in enumerate(held)]
        rows += [(key, f"{key} of {version}", "I") for key in range(100 * version, 100 * version + draw.randint(0, 4))]
        spark.createDataFrame(rows, "id long, name string, op string").createOrReplaceTempView("changes")
        spark.sql(MERGE.format(root))
        live = live - set(held[cut:]) | {key for key, _, op in rows if op == "I"}
    publish(root, VERSIONS)
    expect(spark, root, root, range(1, VERSIONS + 1))
    return root


def expect(spark: Any, table: str | Path, folder: Path, versions: Iterable[int]) -> None:
    """Note the rows that Delta in Spark finds in versions of a table."""
    for version in versions:
        expected = sorted(tuple(row) for row in spark_delta(spark)(str(table), version))
        (folder / f"expected-{version}.json").write_text(json.dumps(expected))


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

    return lambda path, version: list(pl.scan_delta(path, version=version).select("id", "name").collect().iter_rows())


def polars_iceberg() -> Read:
    import polars as pl  # noqa: PLC0415 - in the environment of this reader alone

    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # else it warns that it plans by pyiceberg

    def read(path: str, version: int) -> list[Sequence[Any]]:
        frame = pl.scan_iceberg(f"{path}/iceberg-{version}/metadata/v1.metadata.json", reader_override="native")
        return list(frame.select("id", "name").collect().iter_rows())

    return read


def pyiceberg_iceberg() -> Read:
    tables = importlib.import_module("pyiceberg.table")

    def read(path: str, version: int) -> list[Sequence[Any]]:
        rows = tables.StaticTable.from_metadata(f"{path}/iceberg-{version}").scan().to_arrow()
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
        return list(connection.execute(f"SELECT id, name FROM delta_scan('{path}', version => {version})").fetchall())

    return read


def duckdb_iceberg() -> Read:
    connection, columns = _duckdb(), ", ".join(ICEBERG_IDS)

    def read(path: str, version: int) -> list[Sequence[Any]]:
        return list(connection.execute(f"SELECT {columns} FROM iceberg_scan('{path}/iceberg-{version}')").fetchall())

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
        frame = spark.read.format("iceberg").load(f"{path}/iceberg-{version}")
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


def answer(read: Read, folder: Path, kind: str, versions: Sequence[int] = ()) -> str:
    """`reads`, `reads, with row ids`, `refuses: …` or `WRONG: …`, of versions of a table, by default of all."""
    with_ids = False
    noted = (int(path.stem.partition("-")[2]) for path in (folder / kind).glob("expected-*.json"))
    for version in versions or sorted(noted):
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


def ask(package: str, folder: Path, *tables: str) -> dict[str, dict[str, str]]:
    """What each reader of a package says to each table of a folder, by default to each kind of vectors."""
    readers = {name: of() for name, of in READERS[package].items()}
    kinds = [kind for kind in tables or (*VECTORS, MERGED) if (folder / kind).is_dir()]
    return {name: {kind: answer(read, folder, kind) for kind in kinds} for name, read in readers.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("environments", nargs="*", metavar="REQUIREMENTS")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--make", type=Path, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=0, help="of the history")
    parser.add_argument("--spark", action="store_true", help="with a table that the Spark of this project writes")
    parser.add_argument("--ask", nargs="+", metavar="PACKAGE FOLDER [TABLE ...]")
    given = parser.parse_args(arguments)
    if given.ask:
        print(json.dumps(ask(given.ask[0], Path(given.ask[1]), *given.ask[2:])))
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
