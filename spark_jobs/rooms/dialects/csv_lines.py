"""Lines of CSV as AWS DMS ends them: by `CsvRowDelimiter`, so that another line break is part of a field."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from airflow_gddl.contract.extensions import DmsOptions

USUAL = "\n"
"""The usual `csv_row_delimiter`; files whose every row ends in a carriage return and this are read, too."""
_CHARACTERS = [chr(code) for code in (*range(1, 9), *range(14, 32), *range(0xE000, 0xE100))]
"""What may stand for a line break inside a field: control characters, then those without a meaning."""
_CR, _LF = "\udc0d", "\udc0a"
"""The same in text of which only a record is looked at: bytes that are not UTF-8 are no such surrogates."""
_CHUNK = 1 << 20


def reader(lines: Iterable[str], form: DmsOptions, **more: Any) -> Iterator[list[str]]:
    """Records of lines that end as Python's reader knows them."""
    more |= {} if form.csv_quotes is not False else {"quoting": csv.QUOTE_NONE}
    return csv.reader(lines, delimiter=form.csv_delimiter, **more)


def records(lines: Iterable[str], form: DmsOptions) -> Iterator[list[str]]:
    """Fields of each line of CSV that is not empty, and of those that its quotes take in."""
    for fields in filter(None, reader(lines, form)):
        yield [field.replace(_CR, "\r").replace(_LF, "\n") for field in fields]


def lines_of(text: TextIO, form: DmsOptions) -> Iterator[str]:
    """Lines for `records`, of a text that is read without a change of its line breaks."""
    end, rest = form.csv_row_delimiter, ""
    while chunk := text.read(_CHUNK):
        *whole, rest = (rest + chunk).split(end)
        yield from (_line(line, usual=end == USUAL) for line in whole)
    if rest:
        yield _line(rest, usual=end == USUAL).removesuffix(USUAL)


def _line(line: str, *, usual: bool) -> str:
    body = line.removesuffix("\r") if usual else line.replace("\n", _LF)
    ending = "\r\n" if usual and line.endswith("\r") else USUAL
    return body.replace("\r", _CR) + ending


def with_usual_ends(data: bytes, form: DmsOptions) -> tuple[bytes, Mapping[str, str]]:
    """Data whose rows end as Arrow knows it, and nothing else as they do.

    Returns:
        The data; and characters of its fields to what they stand for, to be replaced in this order.
    """
    end = form.csv_row_delimiter
    if end == USUAL and b"\r" not in data:
        return data, {}
    unused = _unused(data, form)
    for_cr = next(unused)
    if end == USUAL:
        alone = rb"\r(?!\n)" if _ends_in_both(data, form) else rb"\r"
        return re.sub(alone, for_cr.encode(), data), {for_cr: "\r"}
    for_lf, for_end = next(unused), next(unused)
    for old, new in ((end, for_end), ("\r", for_cr), ("\n", for_lf), (for_end, USUAL)):
        data = data.replace(old.encode(), new.encode())
    return data, {USUAL: end, for_cr: "\r", for_lf: "\n"}


def _unused(data: bytes, form: DmsOptions) -> Iterator[str]:
    taken = form.csv_delimiter + form.csv_row_delimiter
    return (one for one in _CHARACTERS if one.encode() not in data and one not in taken)


def unused_character(data: bytes, form: DmsOptions) -> str:
    """A character that the data does not have, and that is none of a delimiter."""
    return next(_unused(data, form))


def restored(text: str, breaks: Mapping[str, str]) -> str:
    """Text with the line breaks that it had before `with_usual_ends`."""
    for old, new in breaks.items():
        text = text.replace(old, new)
    return text


def _ends_in_both(data: bytes, form: DmsOptions) -> bool:
    """Whether each line feed outside quotes has a carriage return before it."""
    outside = b'"'.join(data.split(b'"')[::2]) if form.csv_quotes is not False else data
    return outside.count(b"\n") == outside.count(b"\r\n")
