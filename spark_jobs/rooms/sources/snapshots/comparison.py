"""Reads a snapshot and those around it, and compares them, in parts where their rows are too many for memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.codes import FILE_EMPTY, SNAPSHOT_HELD
from airflow_gddl.contract.errors import QuarantinableError
from airflow_gddl.contract.names import delivered_name
from airflow_gddl.stores import scratch
from airflow_gddl.stores.readers import StoredObject
from spark_jobs.batch.table_run import TableRun
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.plan.table_schema import Schema
from spark_jobs.rooms.dialects.probe import probe, without_rows
from spark_jobs.rooms.dialects.protocol import Dialect, InputOpener, Probed, Unreadable
from spark_jobs.rooms.sources.snapshots.exports import Export, column_id, data_of, key_columns, with_key_types
from spark_jobs.rooms.sources.snapshots.folders import columns_in_folders
from spark_jobs.rooms.sources.snapshots.snapshot_changes import ComparedBy, SnapshotChanges, differences
from spark_jobs.rules.file_rows import read_file
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.places import DeclinedError

_SIDES = ("before", "snapshot", "after")
_WEIGHT = 18
"""Bytes of decoded rows for a byte of a file."""
Files = Sequence[StoredObject]


@dataclass
class Comparison:
    """A snapshot and those around it, read once; rows that are too many for memory are in files, by parts of the keys.

    Attributes:
        files: those of the snapshot, of the one `before` and the one `after`, where there are such.
        known: `column_id` of all columns that came in earlier ones.
        spelled: the same to the names under which they came first.
        most_bytes: decoded rows that are compared at once.
        deletes: keys of the one before that the snapshot lacks, of `keys_before`.
        taken_back: keys that only the snapshot has, so that the one after it deletes them, of its `keys`.
        changed: changes, of this snapshot and the one after.
        columns: `column_id` of the columns of all three.
    """

    run: TableRun
    files: Mapping[str, Files]
    known: frozenset[str]
    spelled: Mapping[str, str]
    most_bytes: int
    deletes: int = 0
    keys_before: int = 0
    taken_back: int = 0
    keys: int = 0
    changed: int = 0
    columns: set[str] = field(default_factory=set)
    _exports: dict[str, list[Export]] = field(default_factory=dict)
    _parts: int = 1
    _rows: dict[tuple[str, int], list[pa.Table]] = field(default_factory=dict)
    _spill: Path | None = None
    _found: list[tuple[str, SnapshotChanges]] = field(default_factory=list)

    def __enter__(self) -> Comparison:
        self._parts = 1 + sum(one.size for files in self.files.values() for one in files) * _WEIGHT // self.most_bytes
        if self._parts > 1:
            self._spill = scratch.make("snapshots")
        try:
            self._probe()
            for side, exports in self._exports.items():
                for number, rows in enumerate(rows for one in exports for rows in self._read(one)):
                    self._keep(side, number, rows)
            self._compare()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._spill is not None:
            scratch.remove(self._spill)

    @cached_property
    def names(self) -> dict[str, str]:
        """`column_id` to the name that change files give a column: the table's, else the one under which it came first.

        So it is one column, whatever the case of its name in an export.
        """
        every = [one for side in reversed(_SIDES) for one in reversed(self._exports.get(side, []))]
        stored = () if self._table is None else map(delivered_name, self._table.names)
        return {
            **{known: name for one in every for known, name in one.names.items()},
            **self.spelled,
            **{column_id(name): name for name in stored},
        }

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of columns of the files that do not reach the lake."""
        names = (name for exports in self._exports.values() for one in exports for name in one.left_out)
        return tuple({column_id(name): name for name in names}.values())

    def changes(self) -> Iterator[tuple[str, SnapshotChanges]]:
        """Changes of the `snapshot`, and of the one `after`."""
        if self._parts == 1:
            yield from self._found
            return
        for part in range(self._parts):
            yield from self._of_part(part)

    def _compare(self) -> None:
        for part in range(self._parts):
            self._found = list(self._of_part(part))
            self.run.go_on()
            for side, changes in self._found:
                self.changed += changes.count
                if side == "snapshot":
                    self.deletes += changes.deletes
                    self.keys_before += changes.keys_before
                else:
                    self.taken_back += changes.deletes
                    self.keys += changes.keys_before

    def _of_part(self, part: int) -> Iterator[tuple[str, SnapshotChanges]]:
        before, snapshot, after = (self._of_side(side, part) for side in _SIDES)
        like = next((one for one in (snapshot, before) if one is not None), None)
        if like is None:
            return
        nothing = like.slice(0, 0)
        before, snapshot = (nothing if one is None else one for one in (before, snapshot))
        if after is None and "after" in self.files:
            after = nothing
        changes, back = differences(before, snapshot, after, self._by)
        yield "snapshot", changes
        if after is not None:
            yield "after", back

    @property
    def _by(self) -> ComparedBy:
        spec, gate = self.run.spec, self.run.spec.schema
        required = self.known if gate.compatible == "backward" else frozenset(map(column_id, gate.require))
        return ComparedBy(
            keys=key_columns(spec.keys),
            dropped=spec.schema_evolution.dropped_column,
            known=self.known,
            required=required,
        )

    def _of_side(self, side: str, part: int) -> pa.Table | None:
        """Rows of one of the snapshots; None: it has none."""
        if self._spill is None:
            tables = self._rows.get((side, part), [])
        else:
            tables = [_stored(path) for path in sorted(self._spill.glob(f"{side}-{part}-*"))]
        try:
            return pa.concat_tables(tables, promote_options="permissive") if tables else None
        except pa.ArrowException as error:
            raise QuarantinableError(SNAPSHOT_HELD, f"columns of its files differ: {error}") from error

    def _probe(self) -> None:
        storage, dialect = self.run.runtime.storage, self.run.dialect
        depth = str(dialect.options.path_format).strip("/").count("/") + 1
        sides = [side for side in _SIDES if side in self.files]
        exports = [
            (side, Export.of(_probed(storage, planned(item), dialect), dialect, columns_in_folders(item.name, depth)))
            for side in sides
            for item in self.files[side]
        ]
        # A reload makes the table of the files alone.
        stored = None if isinstance(self.run.job.options.load, Reload) else self._table
        typed = with_key_types([one for _, one in exports], stored)
        for (side, _), one in zip(exports, typed, strict=True):
            self._exports.setdefault(side, []).append(one)

    @cached_property
    def _table(self) -> Schema | None:
        """Columns of the table now; None: there is none."""
        try:  # which needs no Spark
            snapshot = Tables(self.run.runtime.storage, self.run.runtime.clock).snapshot(self.run.layout.changes)
        except DeclinedError:
            return self.run.context().stored_columns().data
        return None if snapshot is None else snapshot.schema

    def _read(self, export: Export) -> Iterator[pa.Table]:
        probed = export.probed
        parts: list[range | None] = [range(i, i + 1) for i in range(len(probed.ranges))]
        for part in parts if parts and self._parts > 1 else [None]:
            rows = read_file(self.run.runtime.storage, probed, part)
            name = probed.file.path.rpartition("/")[2]
            if isinstance(rows, Unreadable):
                raise QuarantinableError(SNAPSHOT_HELD, f"{name}: {rows.reason}", where=probed.file.path)
            if rows.malformed is not None and (bad := rows.rows - rows.malformed.null_count):
                what = f"{name}: {bad} lines have more or fewer fields than there are columns"
                raise QuarantinableError(SNAPSHOT_HELD, what, where=probed.file.path)
            self.run.go_on()
            yield export.rows(rows)

    def _keep(self, side: str, number: int, rows: pa.Table) -> None:
        self.columns.update(data_of(rows))
        if self._spill is None:
            self._rows.setdefault((side, 0), []).append(rows)
            return
        parts = _parts_of(rows, key_columns(self.run.spec.keys), self._parts)
        for part in np.unique(parts).tolist():
            _store(self._spill / f"{side}-{part}-{number:09d}", rows.filter(pa.array(parts == part)))


def _probed(storage: InputOpener, file: PlannedFile, dialect: Dialect) -> Probed:
    """A file of a snapshot. One of no lines has the columns that the row names where none has a header: it has no rows.

    Raises:
        QuarantinableError: as `probe`; where files have a header, one without it is no whole file.
    """
    options = dialect.options
    if not options.csv_header:
        options = replace(options, op_column="")
    complete = str(options.complete)
    has_marker = complete != "settle" and not complete.isdigit()
    try:
        return replace(probe(storage, file, options, dialect.inflated_bytes), is_whole=has_marker)
    except QuarantinableError as error:
        if error.code != FILE_EMPTY or file.format != "csv" or options.csv_header:
            raise
        return without_rows(file, options.csv_columns)


def planned(item: StoredObject) -> PlannedFile:
    """A file of a snapshot as files of batches are read."""
    name = item.name.rpartition("/")[2].lower()
    is_csv = ".csv" in name and not name.endswith(".parquet")
    return PlannedFile(
        path=item.path, kind="change", format="csv" if is_csv else "parquet", size=item.size,
        etag=item.etag, modified="", fingerprint="", generation=0,
    )  # fmt: skip


def _parts_of(rows: pa.Table, keys: Sequence[str], parts: int) -> np.ndarray:
    """The part of each row, by its key."""
    columns = [rows.column(key).to_pylist() for key in keys]
    texts = ("\0".join(map(str, key)) for key in zip(*columns, strict=True))
    return np.fromiter((zlib.crc32(text.encode("utf-8", "replace")) % parts for text in texts), np.int64, rows.num_rows)


def _store(path: Path, rows: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


def _stored(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as file:
        return pa.ipc.open_file(file).read_all()
