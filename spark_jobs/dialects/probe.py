"""Reads columns, types and row counts of a landed file from its footer or first line, or why it can't be read."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow.parquet as pq

from airflow_gddl.contract.dms import DmsOptions
from airflow_gddl.contract.errors import GddlError, QuarantinableError
from spark_jobs.dialects.arrow_types import column_type
from spark_jobs.dialects.base import Dialect, InputOpener
from spark_jobs.dialects.probed import Probed, Unreadable
from spark_jobs.plan.files import PlannedFile

_GZIP_MAGIC = b"\x1f\x8b"
_THREADS = 8
csv.field_size_limit(2**31 - 1)  # Python's default of 131,072 characters is too small for large text columns


def probe_all(
    storage: InputOpener,
    files: Iterable[PlannedFile],
    dialect: Dialect,
    keep: Callable[[Probed], Probed] = lambda found: found,
) -> tuple[tuple[Probed, ...], tuple[Unreadable, ...]]:
    """Probe every file; a bad file never stops the others.

    Args:
        keep: called with each readable file at once, so that not all translated rows are in memory.
    """

    def one(file: PlannedFile) -> Probed | Unreadable:
        try:
            with reading(file):
                return keep(dialect.probe(storage, file))
        except QuarantinableError as error:
            return Unreadable(file, error.code, error.what)

    files = list(files)
    if len(files) == 1:  # threads would only slow down the usual batch of a small table
        found = [one(files[0])]
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(one, files))
    return tuple(p for p in found if isinstance(p, Probed)), tuple(u for u in found if isinstance(u, Unreadable))


@contextmanager
def reading(file: PlannedFile) -> Iterator[None]:
    """Translates errors that a file's content raises into a `QuarantinableError` of this file.

    Faults of the store (`GddlError` of `Storage`), lack of memory and missing packages say
    nothing about the file and are raised unchanged.

    Raises:
        QuarantinableError: `FILE_EMPTY`, `FILE_UNREADABLE`, `FILE_VANISHED`.
        GddlError, MemoryError, ImportError: as raised inside.
    """
    if file.size == 0:
        raise QuarantinableError("FILE_EMPTY", "the file has no bytes", where=file.path)
    try:
        yield
    except (GddlError, MemoryError, ImportError):
        raise
    except FileNotFoundError as error:
        raise QuarantinableError("FILE_VANISHED", "the file was removed after its listing", where=file.path) from error
    except Exception as error:
        raise QuarantinableError(
            "FILE_UNREADABLE", f"{type(error).__name__}: {error}"[:500], where=file.path
        ) from error


def probe(storage: InputOpener, file: PlannedFile, options: DmsOptions) -> Probed:
    """Read one parquet file's footer, or one CSV file's first line.

    Raises:
        QuarantinableError: as `reading`.
    """
    with reading(file), storage.open_input(file.path) as stream:
        head = stream.read(2)
        stream.seek(0)
        zipped = head == _GZIP_MAGIC
        if file.format == "csv":
            return _probe_csv(file, gzip.open(stream) if zipped else stream, options)
        return _probe_parquet(file, io.BytesIO(gzip.decompress(stream.read())) if zipped else stream, zipped)


def _probe_parquet(file: PlannedFile, stream: BinaryIO, wrapped: bool) -> Probed:
    footer = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    schema, meta = footer.schema_arrow, footer.metadata
    if not len(schema):
        raise QuarantinableError("FILE_EMPTY", "the file has no columns", where=file.path)
    return Probed(
        file=file,
        columns=tuple((field.name, column_type(field.type)) for field in schema),
        rows=meta.num_rows,
        wrapped=wrapped,
        row_groups=() if wrapped else tuple(meta.row_group(i).num_rows for i in range(meta.num_row_groups)),
    )


def _probe_csv(file: PlannedFile, stream: BinaryIO | gzip.GzipFile, options: DmsOptions) -> Probed:
    # Rows are not read yet: text that is not UTF-8 is an error of its row.
    lines = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        first = first_record(lines, options)
        if first is None and not options.csv_header and len(options.csv_columns) == 1:
            lines.seek(0)
            first = [""] if lines.read(1) else None  # rows of null
    finally:
        lines.detach()  # the caller closes the stream
    if first is None:
        raise QuarantinableError("FILE_EMPTY", "the file has no lines", where=file.path)
    names = _header(first, file) if options.csv_header else _named(len(first), file, options)
    columns = tuple((name, "string") for name in names)
    return Probed(file=file, columns=columns, csv=options)


def first_record(lines: Iterable[str], options: DmsOptions) -> list[str] | None:
    """Fields of the first line of CSV that is not empty, and of those that its quotes take in; None: all are empty."""
    return next(filter(None, csv.reader(lines, delimiter=options.csv_delimiter)), None)


def _header(names: list[str], file: PlannedFile) -> list[str]:
    if any("\udc80" <= char <= "\udcff" for name in names for char in name):  # bytes that are no text
        raise QuarantinableError("FILE_UNREADABLE", "the header is not UTF-8", where=file.path)
    return names


def _named(width: int, file: PlannedFile, options: DmsOptions) -> list[str]:
    names = list(options.csv_columns)
    if width == len(names) + 1:
        return [options.op_column, *names]
    if width == len(names):
        return names
    raise QuarantinableError(
        "FILE_UNREADABLE",
        f"{width} fields in the first line, {len(names)} names in options.csv_columns",
        where=file.path,
    )
