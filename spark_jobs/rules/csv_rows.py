"""Rows of CSV as AWS DMS writes it, and lines that are no rows."""

from __future__ import annotations

import codecs
import io
import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from airflow_gddl.contract.csv_quotes import QUOTE, OpenQuotesError, QuotedRecord, Writer, quoted_records
from airflow_gddl.contract.extensions import DmsOptions
from spark_jobs.rooms.dialects.csv_forms import CsvForms, is_operation
from spark_jobs.rooms.dialects.csv_lines import reader, records, restored, unused_character, with_usual_ends
from spark_jobs.rooms.dialects.protocol import carried_list, match
from spark_jobs.rules.arrays import all_true, flat, is_true
from spark_jobs.rules.convert import each
from spark_jobs.rules.texts import BLANKS

_MARK = codecs.BOM_UTF8


_BACKSLASHES = (
    "where a backslash is before marks inside of fields, have its writer write them twice instead (Spark: option "
    "escape='\"') and write the file again"
)
_NO_OLDER: Mapping[str, np.ndarray] = MappingProxyType({})


@dataclass(frozen=True)
class CsvRows:
    """Rows of a CSV file, as text.

    Attributes:
        table: a row for each line, columns in order.
        malformed: text of lines that are no rows, as with more or fewer fields than names (null elsewhere; None: there
            are none).
        older: column that was added later to a mask of the lines from before.
    """

    table: pa.Table
    malformed: pa.Array | None = None
    older: Mapping[str, np.ndarray] = field(default_factory=dict)


def read_csv(data: bytes, names: Sequence[str], form: DmsOptions, kind: str) -> CsvRows:
    """
    An empty field is the empty text, unless that stands for null; the text of null is plain text where it is quoted.
    An empty line is a row in a table of one column, and nothing in others. Line breaks other than those of
    `csv_row_delimiter` are part of their field. A line with a quotation mark that RFC 4180 does not allow is no row.
    Bytes that are not UTF-8 come as they are. A byte-order mark is no part of the text.

    Args:
        names: all columns; without a header the operation first, where lines have one.
        kind: of the file, `load` or `change`.

    Raises:
        ValueError: as `_with_marks` and `_with_operations`.
    """
    data = data.removeprefix(_MARK)
    if _is_text(data):
        return _rows(data, names, form, kind)
    # Arrow's reader wants UTF-8 for lines that it can't take: each byte goes through it as one character.
    null, end = (text.encode().decode("latin-1") for text in (form.csv_null, form.csv_row_delimiter))
    bytewise = replace(form, csv_null=null, csv_row_delimiter=end)
    rows = _rows(data.decode("latin-1").encode(), names, bytewise, kind)
    columns = [_as_text(each(flat(column), _bytes, pa.binary())) for column in rows.table.columns]
    lines = rows.malformed and each(rows.malformed, lambda v: _bytes(v).decode(errors="replace"), pa.string())
    return CsvRows(pa.table(columns, names=rows.table.column_names), lines, rows.older)


def require_last_end(data: bytes, form: DmsOptions) -> None:
    """Refuse a file whose last line may be cut off, and lines behind it with it: DMS ends each line.

    Raises:
        ValueError: the last line has no end.
    """
    if data and not data.endswith(form.csv_row_delimiter.encode()):
        what = (
            f"its last line does not end in csv_row_delimiter ({form.csv_row_delimiter!r}), so that it may be cut off"
        )
        raise ValueError(f"{what}; deliver the whole file, with an end of its last line where its writer leaves it out")


def _rows(data: bytes, names: Sequence[str], form: DmsOptions, kind: str) -> CsvRows:
    table, lines = _read(data, len(names), form)
    if form.csv_header:
        return _without_headers(CsvRows(table, lines), names, form)
    forms = CsvForms.of(form)
    has_operation = len(names) > len(forms.newest)
    rows = CsvRows(table, lines)
    if lines is not None and len(forms.columns) > 1:
        rows = _with_older(rows, forms, form, has_operation=has_operation)
    if not forms.are_changes:
        return rows
    return _with_operations(rows, form, kind) if has_operation else _without_operations(rows, form, kind)


def _with_older(rows: CsvRows, forms: CsvForms, form: DmsOptions, *, has_operation: bool) -> CsvRows:
    """Lines of older forms as rows, with null in columns that were added later. None follows a line of a newer form."""
    lines = [] if rows.malformed is None else rows.malformed.to_pylist()
    number = np.array([len(forms.columns) - 1 if line is None else -1 for line in lines])
    at = [row for row, line in enumerate(lines) if line is not None and _is_sound(line, form)]
    data = "".join(lines[row] + form.csv_row_delimiter for row in at).encode()
    parts: list[tuple[int, pa.Table]] = []
    for older, columns in enumerate(forms.columns[:-1]):
        table, bad = _read(data, len(columns) + has_operation, form)
        if table.num_rows != len(at):
            continue
        for row, line in zip(at, bad.to_pylist() if bad is not None else [None] * len(at), strict=True):
            number[row] = older if line is None else number[row]
        parts.append((older, table))
    number[number < np.maximum.accumulate(number)] = -1
    arrays: list[pa.Array] = []
    masks: dict[str, np.ndarray] = {}
    names = [*([form.op_column] if has_operation else []), *forms.newest]
    for place, name in enumerate(names):
        values = rows.table.column(place).to_pylist()
        for older, table in parts:
            own_names = [*names[:has_operation], *forms.columns[older]]
            own = table.column(own_names.index(name)).to_pylist() if name in own_names else [None] * len(at)
            values = _placed(values, own, [row if number[row] == older else None for row in at])
        arrays.append(pa.array(values, pa.string()))
        lacking = [n for n, columns in enumerate(forms.columns) if name not in columns and name in forms.newest]
        masks |= {name: np.isin(number, lacking)} if lacking else {}
    malformed = [line if number[row] < 0 else None for row, line in enumerate(lines)]
    left = pa.array(malformed, pa.string()) if any(line is not None for line in malformed) else None
    return CsvRows(pa.table(arrays, names=rows.table.column_names), left, masks)


def _placed(values: list[str | None], own: Sequence[str | None], at: Sequence[int | None]) -> list[str | None]:
    for value, row in zip(own, at, strict=True):
        if row is not None:
            values[row] = value
    return values


def _is_sound(line: str, form: DmsOptions) -> bool:
    """Whether a line has no quotation mark that RFC 4180 does not allow."""
    if form.csv_quotes is False or '"' not in line:
        return True
    try:
        return not any(record.is_broken for record in quoted_records(line.encode(), form.csv_delimiter))
    except OpenQuotesError:
        return False


def _with_operations(rows: CsvRows, form: DmsOptions, kind: str) -> CsvRows:
    """Lines without any operation in the first field are no rows.

    Raises:
        ValueError: no line has one, so that the first field is a column.
    """
    table = rows.table
    good, first = _good(rows), _first_fields(rows)
    if first and not any(is_operation(value, kind) for value in first):
        what = "no line begins with an operation, and lines have a field more than options.csv_columns"
        raise ValueError(f"{what}: the first is {str(first[0])[:40]!r}; name all columns, in the order of the file")
    empty = good & np.asarray(pc.equal(pc.utf8_trim(pc.fill_null(table.column(0), ""), BLANKS), ""))
    return _without(rows, empty, form)


def _without_headers(rows: CsvRows, names: Sequence[str], form: DmsOptions) -> CsvRows:
    """Lines with the names of the columns are no rows: files with a header were put together to one."""
    are_names = _good(rows)
    for column, name in zip(rows.table.columns, names, strict=True):
        if len(names) == 1 or not are_names.any():
            return rows
        are_names = are_names & _is(column, name)
    return _without(rows, are_names, form)


def _without(rows: CsvRows, bad: np.ndarray, form: DmsOptions) -> CsvRows:
    """Rows of a mask as lines that are none."""
    if not bad.any():
        return rows
    lines = [None] * rows.table.num_rows if rows.malformed is None else rows.malformed.to_pylist()
    for row in np.flatnonzero(bad):
        lines[row] = form.csv_delimiter.join(
            form.csv_null if (v := c[row].as_py()) is None else v for c in rows.table.columns
        )
    return replace(rows, malformed=pa.array(lines, pa.string()))


def _without_operations(rows: CsvRows, form: DmsOptions, kind: str) -> CsvRows:
    """Rows of a file whose lines have no operation before the columns.

    Raises:
        ValueError: each line has an operation in the first field, so that this is none of the columns.
    """
    first = _first_fields(rows)
    if first and all(is_operation(value, kind) for value in first):
        names = len(form.csv_columns)
        what = f"each line begins with an operation, and has fewer fields after it than options.csv_columns ({names})"
        raise ValueError(f"{what}; columns that were added later, which older lines lack, belong in options.csv_added")
    return rows


def _first_fields(rows: CsvRows) -> list[str | None]:
    """First fields of lines that are rows."""
    first: list[str | None] = rows.table.column(0).filter(_good(rows)).to_pylist()
    return first


def _good(rows: CsvRows) -> np.ndarray:
    every = all_true(rows.table.num_rows)
    return every if rows.malformed is None else np.asarray(rows.malformed.is_null())


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _as_text(values: pa.Array) -> pa.Array:
    """Take bytes as text without copying them, whether or not they are UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers())


def _read(data: bytes, width: int, form: DmsOptions) -> tuple[pa.Table, pa.Array | None]:
    names = list(map(str, range(width)))
    data, breaks = with_usual_ends(data, form)
    data, marked = _with_marks(data, width, form, breaks)
    broken: list[tuple[int, str]] = []

    def note(row: pcsv.InvalidRow) -> str:
        broken.append((row.number, marked.text_of(row.text)))
        return "skip"

    if not (data if width == 1 else data.strip(b"\r\n")):
        return pa.table({name: pa.array([], pa.string()) for name in names}), None
    if not data.endswith((b"\n", b"\r")):
        data += b"\n"  # at the end of the data Arrow takes an empty field after a quoted one as quoted
    has_quotes = form.csv_quotes is not False
    read = pcsv.ReadOptions(column_names=names, use_threads=False, block_size=max(1 << 20, len(data) + 1))
    parse = pcsv.ParseOptions(
        delimiter=form.csv_delimiter,
        quote_char='"' if has_quotes else False,
        newlines_in_values=has_quotes,
        ignore_empty_lines=width > 1,
        invalid_row_handler=note,
    )
    convert = pcsv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[form.csv_null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    table = pcsv.read_csv(pa.BufferReader(data), read_options=read, parse_options=parse, convert_options=convert)
    rows, lines = (table, None) if not broken else _with_broken(table.columns, broken, form)
    return _with_breaks(rows, breaks), lines and each(lines, lambda text: restored(text, breaks), pa.string())


@dataclass(frozen=True)
class _Marked:
    """Lines that RFC 4180 does not allow, in order, of which the data has others that are no rows.

    Attributes:
        sign: what these others begin with, which nothing else has; empty: there are none.
    """

    sign: str = ""
    lines: deque[str] = field(default_factory=deque)

    def text_of(self, line: str) -> str:
        return self.lines.popleft() if self.sign and line.startswith(self.sign) else line


def _with_marks(data: bytes, width: int, form: DmsOptions, breaks: Mapping[str, str]) -> tuple[bytes, _Marked]:
    """Data in which each line with a quotation mark that RFC 4180 does not allow is one of too many fields.

    Raises:
        ValueError: it ends inside quotes, its records can't be told apart, or the row does not say whether it is
            written by RFC 4180, and it looks otherwise.
    """
    start = _after_header(data, form) if form.csv_header else 0
    header, data = data[:start], data[start:]
    if form.csv_quotes is False or QUOTE not in data:
        return data, _Marked()
    if form.csv_quotes is None and Writer.of(form).encloses_names(header):
        form = replace(form, csv_quotes=True)
    records = list(quoted_records(data, form.csv_delimiter))
    _require_rule(data, records, form, breaks)
    marked = _Marked(unused_character(data, form))
    instead = (marked.sign + form.csv_delimiter * (width + 1)).encode()
    parts, at = [], 0
    for record in (record for record in records if record.is_broken):
        lines = data[record.start : record.end].split(b"\n")
        marked.lines.extend(line.decode() for line in lines)
        parts += [data[at : record.start], b"\n".join([instead] * len(lines))]
        at = record.end
    return b"".join([*parts, data[at:]]), marked


def _require_rule(data: bytes, records: Sequence[QuotedRecord], form: DmsOptions, breaks: Mapping[str, str]) -> None:
    """Require that a file's quotation marks follow the rule of its writer.

    Raises:
        ValueError: see `_with_marks`.
    """
    if lost := next((record for record in records if record.is_open), None):
        what = (
            f"line {lost.line} has a quotation mark that RFC 4180 does not allow, so that it is not known where its row"
        )
        raise ValueError(f"{what} ends; if AWS DMS wrote it by Rfc4180=false, set options.csv_quotes: false; "
                         f"{_BACKSLASHES}")  # fmt: skip
    if form.csv_quotes:
        return
    writer = Writer.of(form, breaks)
    why = next(filter(None, (writer.contradicts(data, record) for record in records)), None)
    if why is None and (first := next((record for record in records if record.is_broken), None)):
        has_others = any(record.quoted and not record.is_broken for record in records)
        why = f"line {first.line} has a quotation mark inside a field, and others are enclosed" if has_others else None
    if why is not None:
        raise ValueError(f"{why}: name Rfc4180 of the endpoint in the metadata row, options.csv_quotes: false where it "
                         f"is false, else true; {_BACKSLASHES}")  # fmt: skip


def _with_breaks(table: pa.Table, breaks: Mapping[str, str]) -> pa.Table:
    columns = table.columns
    for old, new in breaks.items():
        columns = [pc.replace_substring(column, old, new) for column in columns]
    return pa.table(columns, names=table.column_names)


def _after_header(data: bytes, form: DmsOptions) -> int:
    """Where the lines after the first record begin that is not empty, whose names may have line breaks."""
    length = 0

    def lines() -> Iterator[str]:
        nonlocal length
        for line in io.TextIOWrapper(io.BytesIO(data), "latin-1", newline=""):
            length += len(line)
            yield line

    next(records(lines(), form), None)
    return length


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
    fields = next(reader([text], form), [])
    values: list[str | None] = [None if v == form.csv_null else v for v in fields[:width]]
    return values + [None] * (width - len(values))


def with_carried(
    table: pa.Table, form: DmsOptions, carried: str, older: Mapping[str, np.ndarray] = _NO_OLDER
) -> pa.Table:
    """Rows with a JSON array of the columns that each update carries, null for all, in the column `carried`.

    `csv_no_sup` in an update or delete stands for a column that the source has not logged; it is null then.

    Args:
        older: column to a mask of the lines from before it was added.
    """
    op_name = match(table.column_names, form.op_column)
    if op_name is None:
        return table.append_column(carried, pa.nulls(table.num_rows, pa.string()))
    op = pc.utf8_upper(pc.utf8_trim(pc.fill_null(table.column(op_name), ""), BLANKS))
    partial = np.asarray(pc.is_in(op, value_set=pa.array(["U", "D"])))
    names = [name for name in table.column_names if name != op_name]
    unnamed = {name: partial & _is(table.column(name), form.csv_no_sup or "") for name in names}
    columns = {name: pc.if_else(~unnamed[name], table.column(name), pa.scalar(None, pa.string()))
               if unnamed[name].any() else table.column(name) for name in names}  # fmt: skip
    lacks = {name: unnamed[name] | (partial & older[name] if name in older else False) for name in names}
    lists = [carried_list(names, lacks, row) for row in range(table.num_rows)]
    arrays = [columns.get(name, table.column(name)) for name in table.column_names]
    return pa.table([*arrays, pa.array(lists, pa.string())], names=[*table.column_names, carried])


def _is(values: pa.ChunkedArray, text: str) -> np.ndarray:
    return is_true(pc.equal(values, text))
