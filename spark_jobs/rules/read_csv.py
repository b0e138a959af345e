"""CSV as the CDC service writes it: every value text or null, broken lines kept with their place."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.csv as pcsv

from airflow_gddl.contract.dms import DmsOptions
from spark_jobs.dialects.probe import first_record

_MARK = codecs.BOM_UTF8


def read_csv(data: bytes, names: Sequence[str], form: DmsOptions) -> tuple[pa.Table, pa.Array | None]:
    """Rows, and the text of lines with more or fewer fields than names (null elsewhere; None: there are none).

    An empty field is null, a quoted empty one is empty text; the text of null is plain text where it is quoted.
    An empty line is a row of null in a table of one column, and nothing in others.
    Bytes that are not UTF-8 come as they are (`valid_text` finds them). A byte-order mark is no part of the text.
    """
    data = data.removeprefix(_MARK)
    if _is_text(data):
        return _read(data, len(names), form)
    # Arrow's reader wants UTF-8 for lines that it can't take: each byte goes through it as one character.
    bytewise = replace(form, csv_null=form.csv_null.encode().decode("latin-1"))
    table, lines = _read(data.decode("latin-1").encode(), len(names), bytewise)
    columns = [_as_text(_map(column, pa.binary(), _bytes)) for column in table.columns]
    lines = None if lines is None else _map(lines, pa.string(), lambda v: _bytes(v).decode(errors="replace"))
    return pa.table(columns, names=table.column_names), lines


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _map(values: pa.Array, kind: pa.DataType, change: Callable[[str], object]) -> pa.Array:
    return pa.array([None if v is None else change(v) for v in values.to_pylist()], kind)


def _as_text(values: pa.Array) -> pa.Array:
    """The same bytes as text, be they UTF-8 or not."""
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers())


def _read(data: bytes, width: int, form: DmsOptions) -> tuple[pa.Table, pa.Array | None]:
    broken: list[tuple[int, str]] = []

    def note(row: pcsv.InvalidRow) -> str:
        broken.append((row.number, row.text))
        return "skip"

    names = list(map(str, range(width)))
    _require_closed_quotes(data, form)
    data = _without_header(data, form) if form.csv_header else data
    if not (data if width == 1 else data.strip(b"\r\n")):
        return pa.table({name: pa.array([], pa.string()) for name in names}), None
    if not data.endswith((b"\n", b"\r")):
        data += b"\n"  # at the end of the data Arrow takes an empty field after a quoted one as quoted
    read = pcsv.ReadOptions(column_names=names, use_threads=False, block_size=max(1 << 20, len(data) + 1))
    parse = pcsv.ParseOptions(
        delimiter=form.csv_delimiter,
        newlines_in_values=True,
        ignore_empty_lines=width > 1,
        invalid_row_handler=note,
    )
    convert = pcsv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=["", form.csv_null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    table = pcsv.read_csv(pa.BufferReader(data), read_options=read, parse_options=parse, convert_options=convert)
    return (table, None) if not broken else _with_broken(table.columns, broken, form)


def _without_header(data: bytes, form: DmsOptions) -> bytes:
    """The lines after the first record that is not empty, whose names may have line breaks."""
    length = 0

    def lines() -> Iterator[str]:
        nonlocal length
        for line in io.TextIOWrapper(io.BytesIO(data), "latin-1", newline=""):
            length += len(line)
            yield line

    first_record(lines(), form)
    return data[length:]


def _require_closed_quotes(data: bytes, form: DmsOptions) -> None:
    """Refuse a file that ends inside quotes: all that follows the last of them would be one field.

    Raises:
        ValueError: it does.
    """
    if data.count(b'"') % 2 == 0:
        return
    csv.field_size_limit(max(csv.field_size_limit(), len(data)))
    try:
        for _ in csv.reader(io.StringIO(data.decode("latin-1"), newline=""), delimiter=form.csv_delimiter, strict=True):
            pass
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise ValueError("the file ends inside quotes") from error


def _with_broken(
    columns: Sequence[pa.ChunkedArray], broken: Sequence[tuple[int, str]], form: DmsOptions
) -> tuple[pa.Table, pa.Array]:
    """Put the broken lines back in their places, with as many fields as they have."""
    good = iter(zip(*(c.to_pylist() for c in columns), strict=True))
    rows: list[Sequence[str | None]] = []
    lines: list[str | None] = []
    for number, text in broken:
        before = list(itertools.islice(good, number - 1 - len(rows)))
        rows += [*before, _fields(text, len(columns), form)]
        lines += [*[None] * len(before), text]
    rows += good
    lines += [None] * (len(rows) - len(lines))
    arrays = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(columns))]
    return pa.table(arrays, names=list(map(str, range(len(columns))))), pa.array(lines, pa.string())


def _fields(text: str, width: int, form: DmsOptions) -> list[str | None]:
    found = next(csv.reader([text], delimiter=form.csv_delimiter), [])
    values: list[str | None] = [None if v in ("", form.csv_null) else v for v in found[:width]]
    return values + [None] * (width - len(values))
