"""Reads landed files as raw columns: one `RawGroup` for each group of files with equal columns."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.codes import FILE_TOO_LARGE
from airflow_gddl.contract.errors import QuarantinableError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.sql_types import parse_type, unsupported_part
from airflow_gddl.stores.readers import GZIP_MAGIC, Inflating
from spark_jobs.rooms.dialects.probe import reading
from spark_jobs.rooms.dialects.protocol import InputOpener, Probed, RowRange, Unreadable
from spark_jobs.rules.arrays import (
    TextOverflowError,
    all_false,
    arrow_type,
    count_past_micros,
    flat,
    is_text,
    past_micros,
    recast,
    with_leaves,
)
from spark_jobs.rules.convert import Mask
from spark_jobs.rules.csv_rows import read_csv, require_last_end, with_carried
from spark_jobs.rules.positions import FILE_BITS

_BUFFER = 16 * 1024**2
"""Bytes that are read at a time of a column of which one needs a slice."""


def with_valid_text(columns: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    """Columns with null where their text is not UTF-8; and of columns that have such rows, the original text (null
    elsewhere).
    """
    valid, invalid = {}, {}
    for name, values in columns.items():
        where = invalid_rows(values)
        if where is None:
            valid[name] = values
            continue
        nothing = pa.scalar(None, values.type)
        valid[name] = pc.if_else(where, nothing, values)
        invalid[name] = pc.if_else(where, values, nothing)
    return valid, invalid


def invalid_rows(values: pa.Array) -> Mask:
    """Rows with text, also inside a complex value, that is not UTF-8."""
    if not _has_text(values.type) or _is_valid(values):
        return None
    mask = all_false(len(values))
    parts = [(0, len(values))]
    while parts:
        start, count = parts.pop()
        if _is_valid(pa.concat_arrays([values.slice(start, count)])):
            continue
        if count == 1:
            mask[start] = True
        else:
            half = count // 2
            parts += [(start, half), (start + half, count - half)]
    return mask


def _is_valid(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_text(kind: pa.DataType) -> bool:
    if is_text(kind):
        return True
    if pt.is_map(kind):
        return _has_text(kind.key_type) or _has_text(kind.item_type)
    if pt.is_struct(kind):
        return any(_has_text(field.type) for field in kind)
    return (pt.is_list(kind) or pt.is_large_list(kind)) and _has_text(kind.value_type)


@dataclass(frozen=True, kw_only=True)
class RawGroup:
    """Rows of files with one signature, a column at a time.

    Attributes:
        columns: the files' columns under their own names, in the Arrow types of their SQL types.
        rows: how many.
        source, position, generation: ledger path, place in the batch, generation of each row.
        malformed: the line as it came where it has more or fewer fields than columns; None: no line has.
        files: their files; empty for rows from the quarantine.
        past: column of times to the nanoseconds past the microsecond, from 0 to 999; without an entry there are none.
        reduced: times inside complex values that were cut to microseconds.
        empty_texts: empty fields of CSV files that have no null, which may stand for null there.
        already_masked: rows from the quarantine, and of prepared files, were masked before they were written.
        invalid: column to what it holds where that is text, but not UTF-8, and `columns` has null.
    """

    columns: Mapping[str, pa.Array]
    rows: int
    source: pa.Array
    position: pa.Array
    generation: pa.Array
    malformed: pa.Array | None = None
    files: tuple[Probed, ...] = ()
    past: Mapping[str, pa.Array] = field(default_factory=dict)
    reduced: int = 0
    empty_texts: int = 0
    already_masked: bool = False
    invalid: Mapping[str, pa.Array] = field(default_factory=dict)

    @property
    def csv_lists(self) -> tuple[pa.Array, ...]:
        """Lists of the columns that updates of CSV carry, see `Probed.csv_carried`; none: they carry all."""
        names = dict.fromkeys(file.csv_carried for file in self.files)
        return tuple(self.columns[name] for name in names if name is not None)

    @property
    def translated(self) -> bool:
        """The dialect made the rows; what `malformed` holds is all there is of a row."""
        return any(file.translated for file in self.files)

    @property
    def replayed(self) -> bool:
        """The rows are records of the quarantine."""
        return self.already_masked and not self.prepared

    @property
    def prepared(self) -> bool:
        """The rows are of files whose columns have the names of the row already, see `Probed.prepared`."""
        return any(file.prepared for file in self.files)


@dataclass(frozen=True)
class FileRows:
    """A file's columns in its order, or those of a part of it.

    Attributes:
        malformed: lines that are no rows (null elsewhere).
        first: number in the file of the first row.
        past, reduced, empty_texts: as in `RawGroup`.
    """

    columns: tuple[pa.Array, ...]
    rows: int
    malformed: pa.Array | None = None
    first: int = 0
    past: Mapping[str, pa.Array] = field(default_factory=dict)
    reduced: int = 0
    empty_texts: int = 0


def read_file(storage: InputOpener, probed: Probed, part: range | None = None) -> FileRows | Unreadable:
    """A file, or why it can't be read.

    Args:
        part: of `Probed.ranges`; None: all of the file.

    Raises:
        GddlError, MemoryError: what is no fault of the file, see `reading`.
    """
    file = probed.file
    try:
        with reading(file):
            return _rows(storage, probed, part)
    except QuarantinableError as error:
        return Unreadable(file, error.code, error.what)
    except TextOverflowError as error:
        if part is None and len(probed.ranges) > 1:
            raise
        too_large = f"{error}: deliver it with smaller row groups, or in smaller files"
        return Unreadable(file, FILE_TOO_LARGE, too_large)


def _rows(storage: InputOpener, probed: Probed, part: range | None) -> FileRows:
    if probed.table is not None:
        return _columns(probed.table, probed)
    with storage.open_input(probed.file.path) as stream:
        if probed.csv is not None:
            return _csv(_content(stream, probed), probed, probed.csv)
        return _parquet(io.BytesIO(_content(stream, probed)) if probed.wrapped else stream, probed, part)


def _content(stream: BinaryIO, probed: Probed) -> bytes:
    """All bytes, inflated."""
    zipped = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    stream.seek(0)
    file = probed.file
    return Inflating(stream, probed.inflated_bytes, file.path).readall() if zipped else stream.read()


def _parquet(stream: Any, probed: Probed, part: range | None) -> FileRows:
    buffer = _BUFFER if any(one.is_slice for one in probed.ranges) else 0  # else a column is read in one request
    file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", buffer_size=buffer)
    if part is None or not probed.ranges:
        groups = list(range(file.num_row_groups))
        table = file.read_row_groups(groups, use_threads=False)
        return _columns(table, probed, _int96(file, stream, lambda fine, names: fine.read_row_groups(groups, names)))
    ranges = probed.ranges[part.start : part.stop]
    rows = _columns(
        read_ranges(file, ranges), probed, _int96(file, stream, lambda fine, names: read_ranges(fine, ranges, names))
    )
    return replace(rows, first=sum(before.rows for before in probed.ranges[: part.start]))


def read_ranges(file: pq.ParquetFile, ranges: Sequence[RowRange], names: Sequence[str] | None = None) -> pa.Table:
    """Rows of some ranges of a file, in memory at the same time.

    Args:
        names: columns; None: all.
    """
    tables = []
    for number, parts in groupby(ranges, lambda part: part.group):
        known = list(parts)
        if known[0].is_slice:
            tables.append(_slice(file, number, known[0].start, known[-1].start + known[-1].rows, names))
        else:
            tables.append(file.read_row_group(number, names, use_threads=False))
    return pa.concat_tables(tables)


def _slice(file: pq.ParquetFile, group: int, start: int, stop: int, names: Sequence[str] | None) -> pa.Table:
    """Rows of a row group from `start` to before `stop`. Rows before are decoded, too, and dropped."""
    batches, first = [], 0
    for batch in file.iter_batches(stop - start, row_groups=[group], columns=names, use_threads=False):
        low, high = max(start - first, 0), min(stop - first, batch.num_rows)
        if low < high:
            batches.append(batch.slice(low, high - low))
        first += batch.num_rows
        if first >= stop:
            break
    return pa.Table.from_batches(batches)


def _int96(file: pq.ParquetFile, stream: Any, read: Callable[[pq.ParquetFile, list[str]], pa.Table]) -> pa.Table | None:
    """Columns that have INT96 timestamps, in nanoseconds: reading microseconds cuts digits without a word.

    Of times outside the years 1677 to 2262 they have the lowest 64 bits. None: there is no such column.
    """
    if not any(file.schema.column(number).physical_type == "INT96" for number in range(len(file.schema))):
        return None
    fine = pq.ParquetFile(stream, coerce_int96_timestamp_unit="ns")
    both = zip(file.schema_arrow, fine.schema_arrow, strict=True)
    return read(fine, [f.name for c, f in both if c.type != f.type])


def _columns(table: pa.Table, probed: Probed, int96: pa.Table | None = None) -> FileRows:
    columns, past, reduced = [], {}, 0
    for (name, kind), values in zip(probed.columns, map(flat, table.columns), strict=True):
        fine = flat(int96.column(name)) if int96 is not None and name in int96.column_names else None
        if not pt.is_timestamp(values.type):
            reduced += count_past_micros(values, fine)
        elif count_past_micros(values, fine):
            past[name] = past_micros(values, fine)
        known = parse_type(kind)
        columns.append(described(values) if unsupported_part(known) else recast(values, arrow_type(known)))
    return FileRows(tuple(columns), table.num_rows, probed.malformed, past=past, reduced=reduced)


def described(values: pa.Array) -> pa.Array:
    """Values of a type that no table holds, as text: for records and rescued values.

    Dates and times are as Arrow writes them, durations whole numbers of their unit: Python's classes hold neither all
    years nor nanoseconds, and pandas' write them differently.
    """
    with suppress(pa.ArrowNotImplementedError):  # Arrow casts no unions
        values = values.cast(with_leaves(values.type, _written))
    return pa.array([None if v is None else str(v) for v in values.to_pylist()], pa.string())


def _written(kind: pa.DataType) -> pa.DataType:
    if pt.is_duration(kind):
        return pa.int64()
    return pa.string() if pt.is_temporal(kind) else kind


def _csv(text: bytes, probed: Probed, form: DmsOptions) -> FileRows:
    names = [name for name, _ in probed.columns]
    if not probed.is_whole:
        require_last_end(text, form)
    found = read_csv(text, [name for name in names if name != probed.csv_carried], form, probed.file.kind)
    table, empty = found.table, _empty_texts(found.table)
    if probed.csv_carried is not None:
        table = with_carried(table.rename_columns(names[:-1]), form, probed.csv_carried, found.older)
    return FileRows(tuple(flat(c) for c in table.columns), table.num_rows, found.malformed, empty_texts=empty)


def _empty_texts(table: pa.Table) -> int:
    """See `RawGroup.empty_texts`."""
    if any(column.null_count for column in table.columns):
        return 0
    return sum(pc.sum(pc.equal(pc.binary_length(column), 0)).as_py() or 0 for column in table.columns)


def grouped(files: Sequence[Probed], rows_by_path: Mapping[str, FileRows], ordinals: Mapping[str, int]) -> RawGroup:
    """The rows of one group, file by file.

    Args:
        rows_by_path: by ledger path.
        ordinals: ledger path to place of the file in the batch.
    """
    parts = [rows_by_path[f.file.path] for f in files]
    first = files[0]
    counts = [p.rows for p in parts]
    positions = [
        pa.array(np.arange(p.first, p.first + p.rows, dtype=np.int64) + (ordinals[f.file.path] << FILE_BITS))
        for f, p in zip(files, parts, strict=True)
    ]
    lines = [p.malformed if p.malformed is not None else pa.nulls(p.rows, pa.string()) for p in parts]
    columns = {n: _joined([p.columns[i] for p in parts]) for i, (n, _) in enumerate(first.columns)}
    valid, invalid = with_valid_text(columns)
    return RawGroup(
        columns=valid,
        invalid=invalid,
        rows=sum(counts),
        source=_joined([pa.repeat(f.file.path, n) for f, n in zip(files, counts, strict=True)]),
        position=_joined(positions),
        generation=_joined(
            [pa.repeat(pa.scalar(f.file.generation, pa.int32()), n) for f, n in zip(files, counts, strict=True)]
        ),
        malformed=_joined(lines) if any(p.malformed is not None for p in parts) else None,
        files=tuple(files),
        past={
            name: _joined([part.past.get(name, pa.nulls(part.rows, pa.int64())) for part in parts])
            for name in dict.fromkeys(name for part in parts for name in part.past)
        },
        reduced=sum(p.reduced for p in parts),
        empty_texts=sum(p.empty_texts for p in parts),
        already_masked=first.prepared,
    )


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
