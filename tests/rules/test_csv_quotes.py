"""CSV as AWS DMS writes it under `Rfc4180` true and false, read by rows that name the setting, name it wrongly, or not.

The writer is of this file, after the documentation of the endpoint's settings: under true a field with a quotation
mark, delimiter or line break is enclosed and its quotation marks are repeated; under false texts are copied.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.errors import QuarantinableError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.probe import probe
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.file_rows import read_file
from tests.harness.examples import at_random

Row = tuple[str | None, ...]
_NAMES = ("id", "a", "b")


def written(rows: list[Row], *, rfc4180: bool, null: str) -> str:
    """Lines of changes with the operation first."""
    return "".join(",".join(_field(value, rfc4180=rfc4180, null=null) for value in ("I", *row)) + "\n" for row in rows)


def _field(value: str | None, *, rfc4180: bool, null: str) -> str:
    if value is None:
        return null
    encloses = rfc4180 and any(sign in value for sign in ',"\n\r')
    return '"' + value.replace('"', '""') + '"' if encloses else value


def read(text: str, form: DmsOptions) -> tuple[list[Row], list[str]] | str:
    """Good rows, and lines that are none; or why the file can't be read."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "20240101-000000000.csv"
        path.write_bytes(text.encode())
        file = PlannedFile(path=str(path), kind="change", format="csv", size=len(text.encode()), etag="", modified="",
                           fingerprint="", generation=1)  # fmt: skip
        try:
            found = read_file(Storage(), probe(Storage(), file, form))
        except QuarantinableError as error:
            return error.what
    if isinstance(found, Unreadable):
        return found.reason
    lines = [None] * found.rows if found.malformed is None else found.malformed.to_pylist()
    columns = [column.to_pylist() for column in found.columns[1 : 1 + len(_NAMES)]]
    rows = [row for row, line in zip(zip(*columns, strict=True), lines, strict=True) if line is None]
    return rows, [line for line in lines if line is not None]


def form(null: str = "NULL", *, quotes: bool | None) -> DmsOptions:
    return DmsOptions(csv_columns=_NAMES, csv_null=null, csv_quotes=quotes, csv_no_sup=None)


_TEXTS = st.one_of(
    st.text('ab" ', max_size=5), st.text('ab",\n1I', max_size=8),
    st.sampled_from(['"a"', '5" disk', '"', '""', '"a', 'a"', '"a" b', '"a,b"', 'a\n"b"', "", "NULL"]),
)  # fmt: skip


def _rows(values: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[Row]]:
    numbered = st.lists(st.tuples(values, values), min_size=1, max_size=5)
    return numbered.map(lambda pairs: [(str(number), *pair) for number, pair in enumerate(pairs)])


@settings(max_examples=at_random(300))
@given(_rows(st.none() | _TEXTS), st.sampled_from(["NULL", "", "-"]))
@example([("0", "", None)], "NULL")
@example([("0", None, "NULL")], "")
def test_a_file_by_rfc_4180_is_read_as_it_was_written(rows: list[Row], null: str) -> None:
    """But for a text that stands for null, and that no setting tells from it."""
    expected = [tuple(None if value == null else value for value in row) for row in rows]
    text = written(rows, rfc4180=True, null=null)
    assert read(text, form(null, quotes=True)) == (expected, [])
    found = read(text, form(null, quotes=None))
    assert found == (expected, []) or (isinstance(found, str) and "are one row, or a row each" in found)


@settings(max_examples=at_random(300))
@given(_rows(_TEXTS.map(lambda text: text.replace(",", "").replace("\n", ""))), st.sampled_from(["-", ""]))
@example([("0", '"a"', "x"), ("1", "b", "y")], "-")
@example([("0", 'x"', "y"), ("1", '"b', "y")], "-")
@example([("0", '"a', "x"), ("1", 'b"c', "y"), ("2", "d", "z")], "-")
@example([("0", "a", '"x'), ("1", "b", 'y"'), ("2", "c", "z")], "-")
def test_texts_that_are_copied_as_they_are_are_never_read_otherwise_in_silence(rows: list[Row], null: str) -> None:
    """Where the row says so they are right; where it says nothing each row is right or named, or the file is.

    But for a text of two quotation marks alone, which is the empty text as others write it.
    """
    expected = [tuple(None if value == null else value for value in row) for row in rows]
    text = written(rows, rfc4180=False, null=null)
    assert read(text, form(null, quotes=False)) == (expected, [])
    found = read(text, form(null, quotes=None))
    event("refused" if isinstance(found, str) else "read")
    if isinstance(found, str):
        assert '"' in text
        return
    good, lines = found
    taken = [tuple("" if value == '""' else value for value in row) for row in expected]
    assert [row for row in taken if row in good] == good
    assert sorted([row[0] for row in good] + [line.split(",")[1] for line in lines]) == [row[0] for row in expected]


@pytest.mark.parametrize("quotes", [None, True])
@pytest.mark.parametrize(("text", "good", "bad"), [
    ('I,0,5" disk,x\nI,1,b,y\n', ["1"], ['I,0,5" disk,x']),
    ('I,0,"a"b,x\nI,1,b,y\n', ["1"], ['I,0,"a"b,x']),
    ('I,0,b,y\nI,1,b,"a"b\n', ["0"], ['I,1,b,"a"b']),
    ('I,0,"a,x\nI,1,b"c,y\nI,2,d,z\n', ["2"], ['I,0,"a,x', 'I,1,b"c,y']),
])  # fmt: skip
def test_a_quotation_mark_that_rfc_4180_does_not_allow_makes_its_lines_no_rows(
    quotes: bool | None, text: str, good: list[str], bad: list[str]
) -> None:
    found = read(text, form(quotes=quotes))
    assert not isinstance(found, str), found
    assert ([row[0] for row in found[0]], found[1]) == (good, bad)


@pytest.mark.parametrize(("text", "why"), [
    ('I,0,"a"b"c,x\nI,1,b,y\n', "not known where its row ends"),
    ('I,0,"a,x\nI,1,b,y\n', "ends inside quotes"),
    ('I,0,"a""\n', "ends inside quotes"),
])  # fmt: skip
def test_a_file_whose_rows_have_no_known_end_is_refused(text: str, why: str) -> None:
    assert why in str(read(text, form(quotes=True)))


@pytest.mark.parametrize(("text", "why"), [
    ('I,0,"a",x\n', "line 1 has 'a' in quotation marks, which it does not need"),
    ('I,0,b,x\nI,1,a,"x\nI,2,b,y"\n', "lines 2 to 3 are one row, or a row each"),
    ('I,0,"say ""a""",x\nI,1,5" disk,x\n', "line 2 has a quotation mark inside a field, and others are enclosed"),
])  # fmt: skip
def test_a_row_that_does_not_name_the_setting_is_asked_for_it(text: str, why: str) -> None:
    found = read(text, form(quotes=None))
    assert why in str(found)
    assert "options.csv_quotes" in str(found)
    assert not isinstance(read(text, form(quotes=True)), str)
    assert not isinstance(read(text, form(quotes=False)), str)


def test_a_header_whose_names_are_all_enclosed_shows_a_writer_that_encloses_without_need() -> None:
    """As pyarrow, pandas with `QUOTE_NONNUMERIC` and Spark with `quoteAll` write it."""
    text = '"Op","seq","id","v"\n"I",0,"a","x"\n'
    header = DmsOptions(csv_header=True)
    assert read(text, header) == read(text, replace(header, csv_quotes=True))
    assert "options.csv_quotes" in str(read(text.replace('"v"', "v"), header))


def test_the_reader_is_as_fast_with_quotation_marks_in_each_line() -> None:
    """Time grows with the size of the file, also where one field has many lines."""
    value = '{"a": "b"}\n' * 20_000
    rows: list[Row] = [(str(number), '{"a": "b, c"}', "x") for number in range(20_000)]
    rows += [("m", value, "x")]
    found = read(written(rows, rfc4180=True, null="NULL"), form(quotes=None))
    assert not isinstance(found, str)
    assert len(found[0]) == len(rows)
