"""Landed files as raw columns: one `RawGroup` for each group of files that look alike."""

from __future__ import annotations

import functools
import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.errors import QuarantinableError
from spark_jobs.dialects.probe import reading
from spark_jobs.dialects.probed import CsvForm, Probed, Unreadable
from spark_jobs.engines.errors_table import ROW_BITS
from spark_jobs.plan.types import parse_type
from spark_jobs.rules.arrays import flat, recast
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.read_csv import read_csv
from spark_jobs.storage.objects import Storage


@dataclass(frozen=True, kw_only=True)
class RawGroup:
    """Rows of files with one signature, a column at a time.

    Attributes:
        columns: the files' columns under their own names, in the Arrow types of their SQL types.
        rows: how many.
        source, position, generation: ledger path, place in the batch, generation of each row.
        malformed: the line as it came where it has more or fewer fields than columns; null: no line has.
        files: where they come from; empty for rows from the quarantine.
        nanos: timestamps that come as whole nanoseconds.
        already_masked: rows from the quarantine were masked before they were written there.
    """

    columns: Mapping[str, pa.Array]
    rows: int
    source: pa.Array
    position: pa.Array
    generation: pa.Array
    malformed: pa.Array | None = None
    files: tuple[Probed, ...] = ()
    nanos: tuple[str, ...] = ()
    already_masked: bool = False


@dataclass(frozen=True)
class FileRows:
    """A file's columns in its order, and lines that are no rows (null elsewhere)."""

    columns: tuple[pa.Array, ...]
    rows: int
    malformed: pa.Array | None = None


def read_file(storage: Storage, probed: Probed) -> FileRows | Unreadable:
    """All of a file, or why it can't be read.

    Raises:
        GddlError, MemoryError: what is no fault of the file, see `reading`.
    """
    file = probed.file
    try:
        with reading(file):
            return _rows(storage, probed)
    except QuarantinableError as error:
        return Unreadable(file, error.code, error.what)


def _rows(storage: Storage, probed: Probed) -> FileRows:
    if probed.table is not None:
        return _columns(probed.table, probed)
    with storage.open_input(probed.file.path) as stream:
        if probed.csv is not None:
            return _csv(stream.read(), probed, probed.csv)
        return _parquet(io.BytesIO(gzip.decompress(stream.read())) if probed.wrapped else stream, probed)


def _parquet(stream: Any, probed: Probed) -> FileRows:
    return _columns(pq.ParquetFile(stream).read(use_threads=False), probed)


def _columns(table: pa.Table, probed: Probed) -> FileRows:
    columns = [
        nanoseconds(table.column(i)) if name in probed.nanos else recast(plain(flat(table.column(i))), _arrow(kind))
        for i, (name, kind) in enumerate(probed.columns)
    ]
    return FileRows(tuple(columns), table.num_rows, probed.malformed)


@functools.lru_cache(maxsize=1024)
def _arrow(kind: str) -> pa.DataType:
    return arrow_type(parse_type(kind))


def nanoseconds(values: pa.ChunkedArray) -> pa.Array:
    return flat(values).cast(pa.int64())


def plain(values: pa.Array) -> pa.Array:
    """Without the forms that only differ in memory: views, fixed and large widths, unsigned numbers past 64 bits."""
    kind = values.type
    if pt.is_string_view(kind) or pt.is_large_string(kind):
        return values.cast(pa.string())
    if pt.is_binary_view(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    if pt.is_uint64(kind):
        return values.cast(pa.decimal128(20, 0))
    return values


def _csv(data: bytes, probed: Probed, form: CsvForm) -> FileRows:
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    table, malformed = read_csv(text, [n for n, _ in probed.columns], form, header=probed.header)
    return FileRows(tuple(flat(c) for c in table.columns), table.num_rows, malformed)


def grouped(files: Sequence[Probed], found: Mapping[str, FileRows], ordinals: Mapping[str, int]) -> RawGroup:
    """The rows of one group, file by file.

    Args:
        found: by ledger path.
        ordinals: ledger path to place of the file in the batch.
    """
    parts = [found[f.file.path] for f in files]
    first = files[0]
    counts = [p.rows for p in parts]
    positions = [
        pc.add(pa.array(range(n), pa.int64()), ordinals[f.file.path] << ROW_BITS)
        for f, n in zip(files, counts, strict=True)
    ]
    lines = [p.malformed if p.malformed is not None else pa.nulls(p.rows, pa.string()) for p in parts]
    return RawGroup(
        columns={n: _joined([p.columns[i] for p in parts]) for i, (n, _) in enumerate(first.columns)},
        rows=sum(counts),
        source=_joined([pa.repeat(f.file.path, n) for f, n in zip(files, counts, strict=True)]),
        position=_joined(positions),
        generation=_joined(
            [pa.repeat(pa.scalar(f.file.generation, pa.int32()), n) for f, n in zip(files, counts, strict=True)]
        ),
        malformed=_joined(lines) if any(p.malformed is not None for p in parts) else None,
        files=tuple(files),
        nanos=first.nanos,
    )


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
