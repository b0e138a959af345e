"""CSV files against a reader of one character at a time, which knows what was quoted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.errors import QuarantinableError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.probe import CARRIED, probe
from spark_jobs.rooms.dialects.protocol import Unreadable, dialect_of
from spark_jobs.rules.file_rows import FileRows, read_file
from tests.harness.examples import at_random

Field = tuple[str, bool]
"""Text, and whether it was quoted."""


def records(text: str, form: DmsOptions) -> Iterator[list[Field]]:
    """The records of a text whose quotes are closed; a line without a character is a record of one empty field."""
    at, delimiter = 0, form.csv_delimiter
    end = "\r\n" if form.csv_row_delimiter == "\n" and _ends_in_both(text, form) else form.csv_row_delimiter
    while at < len(text):
        record, more = [], True
        while more:
            field, at = _field(text, at, (delimiter, end), quotes=form.csv_quotes is not False)
            record.append(field)
            more = text[at : at + 1] == delimiter
            at += more
        at += len(end)
        yield record


def _ends_in_both(text: str, form: DmsOptions) -> bool:
    """Whether each line feed that is not inside quotes comes after a carriage return, and there is one."""
    inside, feeds = False, []
    for at, char in enumerate(text):
        inside ^= char == '"' and form.csv_quotes is not False
        feeds += [text[at - 1 : at] == "\r"] if char == "\n" and not inside else []
    return all(feeds) and "\r" in text and bool(feeds)


def _field(text: str, at: int, ends: tuple[str, str], *, quotes: bool) -> tuple[Field, int]:
    found, quoted = "", quotes and text[at : at + 1] == '"'
    at += quoted
    inside = quoted
    while at < len(text) and (inside or not text.startswith(ends, at)):
        if inside and text[at : at + 2] == '""':
            found, at = found + '"', at + 2
        elif inside and text[at] == '"':
            inside, at = False, at + 1
        else:
            found, at = found + text[at], at + 1
    return (found, quoted), at


def rows(text: str, form: DmsOptions) -> list[list[str | None] | None] | None:
    """Values of rows; None for a line with more or fewer fields than columns. None: the file can't be read."""
    found = list(records(text, form))
    first = next((record for record in found if record != [("", False)]), [])
    if not first and (not found or form.csv_header or len(form.csv_columns) != 1):
        return None
    width = len(first) or 1
    if form.csv_header:
        found = found[found.index(first) + 1 :]
    elif not 0 <= width - len(form.csv_columns) <= 1:
        return None
    found = [record for record in found if width == 1 or record != [("", False)]]
    return [[_value(f, form) for f in record] if len(record) == width else None for record in found]


def _value(field: Field, form: DmsOptions) -> str | None:
    text, quoted = field
    return None if not quoted and text == form.csv_null else text


_TEXT = st.text("ab \"',;\n\rNULé\x01\x1e", max_size=6)
_FIELD = st.one_of(st.sampled_from(["", "NULL", "a"]), _TEXT)


def _written(field: str, quoted: bool, form: DmsOptions) -> str:
    """Quoted where it has to be, in a file without quotes without the characters that can't be."""
    ends = (form.csv_delimiter, *form.csv_row_delimiter)
    if form.csv_quotes is False:
        return "".join(char for char in field if char not in ends)
    needs = any(char in field for char in ('"', *ends))
    return '"' + field.replace('"', '""') + '"' if quoted or needs else field


@st.composite
def files(draw: st.DrawFn) -> tuple[str, DmsOptions]:
    delimiter, width, header = draw(st.sampled_from(",;\t\x01")), draw(st.integers(1, 4)), draw(st.booleans())
    names = [f"c{n}" for n in range(width)]
    row_end, quotes = draw(st.sampled_from(["\n", "\n", "\r", "\r\n", "\x1e", "|~"])), draw(st.booleans())
    form = DmsOptions(csv_delimiter=delimiter, csv_header=header, csv_columns=() if header else tuple(names),
                      csv_row_delimiter=row_end, csv_quotes=quotes,
                      csv_null=draw(st.sampled_from(["NULL", ""])))  # fmt: skip
    widths = st.one_of(st.just(width), st.just(width), st.just(width), st.integers(1, 5))
    headings = [name + draw(st.sampled_from(["", "\n", "\r\nx"])) for name in names]
    lines = [[_written(name, draw(st.booleans()), form) for name in headings]] if header else []
    for count in draw(st.lists(widths, max_size=6)):
        lines += [[_written(draw(_FIELD), draw(st.booleans()), form) for _ in range(count)]]
    end = draw(st.sampled_from(["\n", "\r\n"])) if row_end == "\n" else row_end
    return "".join(delimiter.join(line) + end for line in lines), form


def tried(folder: Path, data: bytes, form: DmsOptions) -> FileRows | Unreadable:
    path = folder / "20240101-000000000.csv"
    path.write_bytes(data)
    file = PlannedFile(path=str(path), kind="change", format="csv", size=len(data), etag="", modified="",
                       fingerprint="", generation=1)  # fmt: skip
    try:
        return read_file(Storage(), probe(Storage(), file, form))
    except QuarantinableError as error:
        return Unreadable(file, error.code, error.what)


def read(folder: Path, data: bytes, form: DmsOptions) -> FileRows:
    found = tried(folder, data, form)
    assert isinstance(found, FileRows), found
    return found


@settings(max_examples=at_random(300))
@given(files())
@example(('a\rb\n"c\nd"\n', DmsOptions(csv_columns=("a",), csv_delimiter=r"\x01", csv_quotes=True)))
@example(("a\rb\x1ec\x1e", DmsOptions(csv_columns=("a",), csv_delimiter=r"\x01", csv_row_delimiter=r"\x1e")))
@example(('"a",\n', DmsOptions(csv_columns=("a", "b"), csv_quotes=True)))
@example(("a\n\nb\n", DmsOptions(csv_columns=("a",))))
@example(("\n", DmsOptions(csv_columns=("a",))))
@example(('"a\nb",c\n1,2\n', DmsOptions(csv_header=True, csv_quotes=True)))
@example(("a,,NULL\n", DmsOptions(csv_columns=("a", "b", "c"), csv_null="")))
@example(("a\rb,c\nd\r,\re\n", DmsOptions(csv_columns=("a", "b"), csv_quotes=True)))
@example(("a\rb,c\r\nd,e\r\n", DmsOptions(csv_columns=("a", "b"), csv_quotes=True)))
@example(('a,"b\r\nc"\nd,"e\r"\n', DmsOptions(csv_columns=("a", "b"), csv_quotes=True)))
@example(('5" disk,"b\n"c,d\n', DmsOptions(csv_columns=("a", "b"), csv_quotes=False)))
def test_csv_is_read_as_by_one_character_at_a_time(given_file: tuple[str, DmsOptions]) -> None:
    text, form = given_file
    wanted = rows(text, form)
    assume(wanted is not None)
    assert wanted is not None
    with TemporaryDirectory() as folder:
        for data in (text.encode(), text.encode("utf-8-sig"), text.encode("latin-1")):
            found = read(Path(folder), data, form)
            lines = found.malformed.to_pylist() if found.malformed is not None else [None] * found.rows
            assert [line is not None for line in lines] == [row is None for row in wanted]
            good = [tuple(map(_text_of, row)) for row, line in zip(_rows(found), lines, strict=True) if line is None]
            assert good == [tuple(row) for row in wanted if row is not None]


@settings(max_examples=at_random(60))
@given(files())
@example(("a,25\nb,2599\n", DmsOptions(csv_columns=("a", "b"))))
@example(('a,"6"" pipe"\n', DmsOptions(csv_columns=("a", "b"), csv_quotes=True)))
@example(("id,name\n1,x\n", DmsOptions(csv_header=True)))
@example(("a|~b~|~", DmsOptions(csv_columns=("a",), csv_row_delimiter="|~")))
def test_a_file_that_is_cut_has_no_row_of_a_part(given_file: tuple[str, DmsOptions]) -> None:
    """Its last line counts where it has its end; else the file is refused."""
    text, form = given_file
    with TemporaryDirectory() as folder:
        whole = tried(Path(folder), text.encode(), form)
        assume(isinstance(whole, FileRows))
        assert isinstance(whole, FileRows)
        values = _rows(whole)
        for size in range(1, len(text)):
            found = tried(Path(folder), text[:size].encode(), form)
            if isinstance(found, FileRows):
                assert text[:size].endswith(form.csv_row_delimiter)
                assert _rows(found) == values[: found.rows]


def _rows(found: FileRows) -> list[tuple[bytes | None, ...]]:
    columns = [pa.Array.from_buffers(pa.binary(), len(c), c.buffers()).to_pylist() for c in found.columns]
    return list(zip(*columns, strict=True))


def _text_of(value: bytes | None) -> str | None:
    """Text of a file in UTF-8, or in Latin-1."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def test_a_line_that_is_no_row_keeps_its_line_breaks(tmp_path: Path) -> None:
    found = read(tmp_path, b"a\rb,c,d\ne,f\n", DmsOptions(csv_columns=("a", "b"), csv_quotes=True))
    assert found.malformed is not None
    assert found.malformed.to_pylist() == ["a\rb,c,d", None]


_LATE_WORD = b"Op,id,v,cols\nU,1,a,v\nU,2,NOT_SUPPLIED,v\nU,3,b,v\n"


@pytest.mark.parametrize(("own", "name", "carried"), [
    (None, "20240101-000000000.csv", CARRIED), (None, "LOAD00000001.csv", None),
    ("cols", "20240101-000000000.csv", None),
])  # fmt: skip
def test_word_for_a_column_that_is_not_logged_may_come_late(
    own: str | None, name: str, carried: str | None, tmp_path: Path
) -> None:
    """Where the row names a list of its own, and in a load, the word is a text like any other."""
    (tmp_path / name).write_bytes(_LATE_WORD)
    kind = "load" if name.startswith("LOAD") else "change"
    file = PlannedFile(path=str(tmp_path / name), kind=kind, format="csv", size=len(_LATE_WORD), etag="", modified="",
                       fingerprint="", generation=1)  # fmt: skip
    spec = TableSpec(table="s.t", keys=("id",), columns_to_update=own, options={"csv_header": True})
    assert dialect_of(spec).probe(Storage(), file).csv_carried == carried
