"""CSV as the CDC service writes it and Spark reads it: every value text or null, broken lines kept with their place."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from spark_jobs.dialects.probed import CsvForm


def read_csv(data: bytes, names: Sequence[str], form: CsvForm, *, header: bool) -> tuple[pa.Table, pa.Array | None]:
    """Rows, and the text of lines with more or fewer fields than names (null elsewhere; None: there are none).

    An empty field is null, a quoted empty one is empty text; the text that stands for null does so quoted too.
    """
    data = data if _is_text(data) else data.decode("utf-8", errors="replace").encode()
    broken: list[tuple[int, str]] = []

    def note(row: pcsv.InvalidRow) -> str:
        broken.append((row.number, row.text))
        return "skip"

    skipped = 1 if header else 0
    read = pcsv.ReadOptions(column_names=list(map(str, range(len(names)))), use_threads=False, skip_rows=skipped,
                            block_size=max(1 << 20, len(data) + 1))  # fmt: skip
    parse = pcsv.ParseOptions(delimiter=form.csv_delimiter, newlines_in_values=True, invalid_row_handler=note)
    convert = pcsv.ConvertOptions(
        column_types={str(i): pa.string() for i in range(len(names))},
        null_values=["", form.csv_null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    if not data.strip():
        table = pa.table({str(i): pa.array([], pa.string()) for i in range(len(names))})
    else:
        table = pcsv.read_csv(pa.BufferReader(data), read_options=read, parse_options=parse, convert_options=convert)
    columns = [_without(column, form.csv_null) for column in table.columns]
    if not broken:
        return pa.table(columns, names=list(map(str, range(len(names))))), None
    return _with_broken(columns, broken, form, skipped)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _without(column: pa.ChunkedArray, null: str) -> pa.ChunkedArray:
    found = pc.equal(column, null)
    if null and pc.any(found).as_py():
        return pc.if_else(pc.fill_null(found, False), pa.scalar(None, pa.string()), column)
    return column


def _with_broken(
    columns: Sequence[pa.ChunkedArray], broken: Sequence[tuple[int, str]], form: CsvForm, skipped: int
) -> tuple[pa.Table, pa.Array]:
    """Put the broken lines back in their places, with as many fields as they have."""
    good = iter(zip(*(c.to_pylist() for c in columns), strict=True))
    rows: list[Sequence[str | None]] = []
    lines: list[str | None] = []
    for number, text in broken:
        before = list(itertools.islice(good, number - 1 - skipped - len(rows)))
        rows += [*before, _fields(text, len(columns), form)]
        lines += [*[None] * len(before), text]
    rows += good
    lines += [None] * (len(rows) - len(lines))
    arrays = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(columns))]
    return pa.table(arrays, names=list(map(str, range(len(columns))))), pa.array(lines, pa.string())


def _fields(text: str, width: int, form: CsvForm) -> list[str | None]:
    found = next(csv.reader([text], delimiter=form.csv_delimiter), [])
    values: list[str | None] = [None if v in ("", form.csv_null) else v for v in found[:width]]
    return values + [None] * (width - len(values))
