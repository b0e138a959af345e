"""Reads columns, types and row counts of a landed file from its footer or first line, or why it can't be read."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.codes import FILE_EMPTY, FILE_UNREADABLE, FILE_VANISHED
from airflow_gddl.contract.errors import GddlError, QuarantinableError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.stores.readers import GZIP_MAGIC, Inflating, chunks_of, too_large
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.contents import content_of
from spark_jobs.rooms.dialects.csv_forms import CsvForms
from spark_jobs.rooms.dialects.csv_lines import lines_of, records
from spark_jobs.rooms.dialects.protocol import (
    INFLATED_BYTES,
    Dialect,
    InputOpener,
    Probed,
    RowRange,
    Unreadable,
    column_type,
    decoded_bytes,
)

_THREADS = 8
STATED = b"gddl_type"
"""Metadata of a column of text in a parquet file that jobs write: the SQL type that its values have but for misfits."""
CARRIED = "_dms_carried"
"""Column that is added to CSV in which updates lack columns: the names of those that each carries."""
csv.field_size_limit(2**31 - 1)  # Python's default of 131,072 characters is too small for large text columns


def probe_all(
    storage: InputOpener,
    files: Iterable[PlannedFile],
    dialect: Dialect,
    keep: Callable[[Probed], Probed] = lambda probed: probed,
) -> tuple[tuple[Probed, ...], tuple[Unreadable, ...]]:
    """Probe every file; a bad file never stops the others.

    Args:
        keep: called with each readable file at once, so that not all translated rows are in memory.
    """

    def one(file: PlannedFile) -> Probed | Unreadable:
        opener = _Opener(storage, file)
        try:
            with reading(file):
                probed = dialect.probe(opener, file)
                return keep(replace(probed, inflated_bytes=dialect.inflated_bytes, content=opener.content))
        except QuarantinableError as error:
            return Unreadable(file, error.code, error.what)

    files = list(files)
    if len(files) == 1:  # threads would only slow down the usual batch of a small table
        outcomes = [one(files[0])]
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            outcomes = list(pool.map(one, files))
    return tuple(p for p in outcomes if isinstance(p, Probed)), tuple(u for u in outcomes if isinstance(u, Unreadable))


@dataclass
class _Opener:
    """Opens a file of a batch.

    Attributes:
        content: see `content_of`.
    """

    storage: InputOpener
    file: PlannedFile
    content: str = ""

    def open_input(self, path: str) -> BinaryIO:
        stream = self.storage.open_input(path)
        self.content = content_of(stream, self.file)
        stream.seek(0)
        return stream


@contextmanager
def reading(file: PlannedFile) -> Iterator[None]:
    """Translates errors that a file's content raises into a `QuarantinableError` of this file.

    Faults of the store (`GddlError` of `Storage`), lack of memory and missing packages say
    nothing about the file and are raised unchanged.

    Raises:
        QuarantinableError: `FILE_EMPTY`, `FILE_UNREADABLE`, `FILE_VANISHED`.
        GddlError, MemoryError, ImportError: as raised inside.
    """
    if file.size == 0 and not is_text(file):
        raise QuarantinableError(FILE_EMPTY, "the file has no bytes", where=file.path)
    try:
        yield
    except (GddlError, MemoryError, ImportError):
        raise
    except FileNotFoundError as error:
        raise QuarantinableError(FILE_VANISHED, "the file was removed after its listing", where=file.path) from error
    except Exception as error:
        raise QuarantinableError(FILE_UNREADABLE, f"{type(error).__name__}: {error}"[:500], where=file.path) from error


def is_text(file: PlannedFile) -> bool:
    """Whether a file is one of lines, CSV or JSON, so that no bytes are no rows."""
    return file.format != "parquet" and ".avro" not in file.path.rpartition("/")[2].lower()


def without_rows(file: PlannedFile, columns: Iterable[str]) -> Probed:
    """A file of no lines, with columns of no type, so that it is not refused as another table's."""
    return Probed.of_table(file, pa.table({name: pa.nulls(0) for name in columns}))


def probe(storage: InputOpener, file: PlannedFile, options: DmsOptions, inflated_bytes: int = INFLATED_BYTES) -> Probed:
    """Read one parquet file's footer, or one CSV file's first line.

    Raises:
        QuarantinableError: as `reading`.
    """
    with reading(file), storage.open_input(file.path) as stream:
        zipped = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        stream.seek(0)
        inflating = Inflating(stream, inflated_bytes, file.path) if zipped else None
        if file.format == "csv":
            return _probe_csv(file, stream if inflating is None else io.BufferedReader(inflating), options)
        whole = stream if inflating is None else io.BytesIO(inflating.readall())
        return _probe_parquet(file, whole, inflated_bytes, wrapped=zipped)


def _probe_parquet(file: PlannedFile, stream: BinaryIO, inflated_bytes: int, *, wrapped: bool) -> Probed:
    footer = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    schema, meta = footer.schema_arrow, footer.metadata
    if not len(schema):
        raise QuarantinableError(FILE_EMPTY, "the file has no columns", where=file.path)
    _require_once(schema.names, file)
    require_bounded(stream, file, inflated_bytes, meta)
    return Probed(
        file=file,
        columns=tuple((field.name, column_type(field.type)) for field in schema),
        rows=meta.num_rows,
        stated=tuple((f.name, f.metadata[STATED].decode()) for f in schema if STATED in (f.metadata or {})),
        wrapped=wrapped,
        ranges=() if wrapped else tuple(ranges_of(meta)),
    )


_LARGE = 256 * 1024**2
"""Bytes in memory of rows that are read by themselves; an array holds eight times as much text."""


def ranges_of(meta: pq.FileMetaData, large: int = _LARGE) -> Iterator[RowRange]:
    """All rows of a parquet file: row groups, and of a group that is large in memory slices of as many rows each.

    Args:
        large: bytes in memory above which a row group is not read as a whole.
    """
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        rows, size = group.num_rows, group.total_byte_size
        step = -(-rows // max(1, min(rows, -(-size // large))))
        for start in range(0, rows, step or 1):
            count = min(step, rows - start)
            yield RowRange(number, start, count, size * count // rows, is_slice=count < rows)


_WIDEST = 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""Bytes of a value in memory, by physical type; of texts their offsets. A decimal of fixed length has 16."""


def require_bounded(stream: BinaryIO, file: PlannedFile, inflated_bytes: int, footer: pq.FileMetaData) -> None:
    """Refuse a parquet file that becomes too large in memory: repeated values take next to no place in it.

    Args:
        stream: the file, inflated where it is in a gzip stream.
        inflated_bytes: bound of the tier.

    Raises:
        QuarantinableError: `FILE_TOO_LARGE`.
    """
    most = decoded_bytes(inflated_bytes, max(file.size, stream.seek(0, io.SEEK_END)))
    leaves = [footer.schema.column(i) for i in range(footer.num_columns)]
    if _is_small(footer, leaves, most):
        return
    chunks = [
        (number, leaf, chunk)
        for number, group in enumerate(chunks_of(stream, len(leaves)))
        for leaf, chunk in zip(leaves, group, strict=True)
    ]
    size = sum(c.values * _WIDTHS.get(leaf.physical_type, _WIDEST) + c.inflated for _, leaf, c in chunks)
    texts = [entry for entry in chunks if entry[1].physical_type == "BYTE_ARRAY" and entry[2].has_dictionary]
    if size <= most < size + sum(c.values * c.inflated for _, _, c in texts):
        source = pq.ParquetFile(
            stream,
            metadata=footer,
            coerce_int96_timestamp_unit="us",
            read_dictionary=list({leaf.path for _, leaf, _ in texts}),
        )
        size += sum(c.values * _longest(source, number, leaf.path) for number, leaf, c in texts)
        if size > most:
            size = sum(_text_bytes(source, number, leaf.path, most) for number, leaf, _ in texts)
    if size > most:
        what = f"its {footer.num_rows:,} rows take {size:,} bytes in memory or more, of which {most:,} are allowed"
        raise too_large(what, file.path)


def _is_small(footer: pq.FileMetaData, leaves: Sequence[pq.ColumnSchema], most: int) -> bool:
    """Whether a file is within bounds whatever its dictionaries hold. False where values repeat within a row."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    rows, size = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    return (
        not any(leaf.max_repetition_level for leaf in leaves) and rows * (len(leaves) * _WIDEST + size) + size <= most
    )


def _longest(source: pq.ParquetFile, group: int, column: str) -> int:
    """Bytes of the longest text of a column that is stored once; the first row comes with all of them."""
    first = next(source.iter_batches(1, row_groups=[group], columns=[column], use_threads=False), None)
    lengths = [pc.max(pc.binary_length(t.dictionary)).as_py() for c in first or () for t in _texts(c)]
    return max((length or 0 for length in lengths), default=0)


def _text_bytes(source: pq.ParquetFile, group: int, column: str, most: int) -> int:
    """Bytes of a column's texts, counted up to `most`; only the places of their values are read."""
    total = 0
    for batch in source.iter_batches(row_groups=[group], columns=[column], use_threads=False):
        for text in (text for values in batch for text in _texts(values)):
            total += pc.sum(pc.binary_length(text.dictionary).take(text.indices).cast(pa.int64())).as_py() or 0
        if total > most:
            break
    return total


def _texts(values: pa.Array) -> Iterator[pa.DictionaryArray]:
    """Arrays of texts in a column."""
    if pt.is_dictionary(values.type):
        yield values
    elif pt.is_struct(values.type):
        for inner in values.flatten():
            yield from _texts(inner)
    elif pt.is_map(values.type):
        yield from _texts(values.keys)
        yield from _texts(values.items)
    elif pt.is_nested(values.type):
        yield from _texts(values.flatten())


def _probe_csv(file: PlannedFile, stream: BinaryIO, options: DmsOptions) -> Probed:
    # Rows are not read yet: text that is not UTF-8 is an error of its row.
    lines = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    search = _Search(lines_of(lines, options), options.csv_no_sup if file.kind == "change" else None)
    try:
        found = records(search, options)
        first = next(found, None)
        if first is None and not options.csv_header and len(options.csv_columns) == 1:
            first = [""] if search.lines else None  # rows of null
        if first is None:
            raise QuarantinableError(FILE_EMPTY, "the file has no lines", where=file.path)
        if options.csv_header:
            names, is_older = _header(first, file), False
        else:
            _require_no_names(first, file, options)
            names, is_older = _named(chain([first], found), len(first), file, options)
        lacks = search.finds()
    finally:
        lines.detach()  # the caller closes the stream
    lists = lacks or (is_older and file.kind == "change")
    columns = tuple((name, "string") for name in (*names, *([CARRIED] if lists else [])))
    return Probed(file=file, columns=columns, csv=options, csv_carried=CARRIED if lists else None)


@dataclass
class _Search:
    """Lines, and whether a word is in them.

    Attributes:
        word: None: it is in none.
        lines: how many were read.
    """

    source: Iterator[str]
    word: str | None
    lines: int = 0
    _found: bool = False

    def __iter__(self) -> Iterator[str]:
        for line in self.source:
            self.lines += 1
            self._found |= self.word is not None and self.word in line
            yield line

    def finds(self) -> bool:
        """Reads on until the word is found."""
        if self.word is None or self._found:
            return self._found
        return any(self._found for _ in self)


def _header(names: list[str], file: PlannedFile) -> list[str]:
    if any("\udc80" <= char <= "\udcff" for name in names for char in name):  # bytes that are no text
        raise QuarantinableError(FILE_UNREADABLE, "the header is not UTF-8", where=file.path)
    _require_once(names, file)
    return names


def _require_once(names: Sequence[str], file: PlannedFile) -> None:
    """Refuse a file with two columns of one name to the letter: only one of their values would be in a row.

    Raises:
        QuarantinableError: `FILE_UNREADABLE`.
    """
    if len(set(names)) < len(names):
        twice = [name for name, count in Counter(names).items() if count > 1]
        what = f"the file has columns of the same name: {', '.join(map(repr, twice[:5]))}"
        raise QuarantinableError(FILE_UNREADABLE, what, where=file.path)


def _require_no_names(first: Sequence[str], file: PlannedFile, options: DmsOptions) -> None:
    """Refuse a file whose first line has the names of its columns, which would be a row of a full load.

    A column of a table that has no other may have its name as a value.

    Raises:
        QuarantinableError: `FILE_UNREADABLE`.
    """
    written = [field.strip().lower() for field in first]
    for columns in CsvForms.of(options).columns:
        names = [name.lower() for name in columns]
        if len(written) > 1 and written in (names, [options.op_column.lower(), *names]):
            what = "the first line holds the names of the columns: set options.csv_header: true"
            raise QuarantinableError(FILE_UNREADABLE, what, where=file.path)


def _named(lines: Iterable[list[str]], width: int, file: PlannedFile, options: DmsOptions) -> tuple[list[str], bool]:
    """The columns, and whether the first line that has a form lacks some that were added later.

    Args:
        width: of the first line.
    """
    forms = CsvForms.of(options)
    found = forms.of_lines(lines, file.kind)
    if found is None:
        what = f"{width} fields in the first line, {len(forms.newest)} names in options.csv_columns"
        way_out = "; columns that were added later, which older lines lack, are named in options.csv_added, too"
        raise QuarantinableError(FILE_UNREADABLE, what + way_out, where=file.path)
    form, has_operation = found
    names = [*([options.op_column] if has_operation else []), *forms.newest]
    return names, form < len(forms.columns) - 1
