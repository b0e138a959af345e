"""Quotation marks in CSV: which lines break RFC 4180, and what shows that the writer does not follow it.

Under `Rfc4180: true` AWS DMS encloses a field in quotation marks where it has one, a delimiter or a line break, and
repeats those inside. Under `false` it copies texts as they are, so that each row delimiter ends a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_gddl.contract.extensions import DmsOptions

QUOTE = b'"'
_OPERATIONS = (b"I", b"U", b"D")
_CLOSED = re.compile(rb'"[^"]*(?:""[^"]*)*"')


class OpenQuotesError(ValueError):
    """The data ends inside quotation marks."""


@dataclass(frozen=True)
class QuotedRecord:
    """A record with quotation marks, of one or several lines.

    Attributes:
        start, end: where it is in the data, without the line feed.
        line: number of its first line, from 1.
        fields: how many it has.
        quoted: contents of its enclosed fields, as they are written.
        is_broken: it has a quotation mark where RFC 4180 allows none.
        is_open: it is broken in an enclosed field, and its quotation marks don't pair, so that its end is not known.
    """

    start: int
    end: int
    line: int
    fields: int
    quoted: tuple[bytes, ...] = ()
    is_broken: bool = False
    is_open: bool = False


def quoted_records(data: bytes, delimiter: str) -> Iterator[QuotedRecord]:
    """The records of data that have quotation marks; lines end in a line feed, which a carriage return may precede.

    Args:
        delimiter: of fields, one ASCII character.

    Raises:
        OpenQuotesError: it ends inside quotation marks.
    """
    at, line, counted = 0, 1, 0
    while (mark := data.find(QUOTE, at)) >= 0:
        start = max(at, data.rfind(b"\n", at, mark) + 1)
        line, counted = line + data.count(b"\n", counted, start), start
        record = _Record(data, delimiter, start, line)
        yield record.read()
        at = record.end + 1


@dataclass
class _Record:
    """Reads one record, from its first byte on."""

    data: bytes
    delimiter: str
    start: int
    line: int
    end: int = 0
    _quoted: list[bytes] = field(default_factory=list)

    def read(self) -> QuotedRecord:
        at, fields, broken = self.start, 0, False
        more = True
        while more:
            fields += 1
            enclosed = self.data[at : at + 1] == QUOTE
            at = self._after_enclosed(at) if enclosed else self._after(_of_fields(self.delimiter)[0], at)
            rest = self._after(_of_fields(self.delimiter)[1], at)
            if rest > at:
                broken = True
                if enclosed:
                    return self._broken_off(at)
            at = rest
            more = self.data[at : at + 1] == self.delimiter.encode()
            at += more
        self.end = at
        return QuotedRecord(self.start, at, self.line, fields, tuple(self._quoted), broken)

    def _after_enclosed(self, at: int) -> int:
        found = _CLOSED.match(self.data, at)
        if found is None or self.data[found.end() : found.end() + 1] == QUOTE:
            raise OpenQuotesError("the file ends inside quotes")
        self._quoted.append(self.data[at + 1 : found.end() - 1])
        return found.end() + self.data.startswith(b"\r\n", found.end())

    def _after(self, form: re.Pattern[bytes], at: int) -> int:
        return form.match(self.data, at).end()  # type: ignore[union-attr]  # it matches nothing, too

    def _broken_off(self, at: int) -> QuotedRecord:
        """Text behind a closing mark: the record ends with the line, whatever follows."""
        end = self.data.find(b"\n", at)
        self.end = len(self.data) if end < 0 else end
        is_open = self.data.count(QUOTE, self.start, self.end) % 2 == 1
        return QuotedRecord(self.start, self.end, self.line, 0, tuple(self._quoted), True, is_open)


@lru_cache(maxsize=16)
def _of_fields(delimiter: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """A field without quotation marks, and with them."""
    sign = re.escape(delimiter.encode())
    return re.compile(rb'[^"\n' + sign + rb"]*"), re.compile(rb"[^\n" + sign + rb"]*")


@dataclass(frozen=True)
class Writer:
    """What tells whether a file was written under `Rfc4180: true`.

    Attributes:
        delimiter: of fields.
        plain: texts that a writer may enclose without need: that of null, of a column that is not logged.
        breaks: characters that stand for line breaks inside fields.
    """

    delimiter: str
    plain: frozenset[bytes]
    breaks: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, options: DmsOptions, breaks: Iterable[str] = ()) -> Writer:
        """The writer of a table's files, by its options; `breaks`: as the attribute, as text."""
        plain = frozenset(text.encode() for text in ("", options.csv_null, options.csv_no_sup or ""))
        return cls(options.csv_delimiter, plain, tuple(character.encode() for character in breaks))

    def encloses_names(self, header: bytes) -> bool:
        """Whether each name of a header is in quotation marks, as by a writer that encloses fields without need."""
        records = [record for record in quoted_records(header, self.delimiter) if not record.is_broken]
        return bool(records) and all(len(record.quoted) == record.fields for record in records)

    def contradicts(self, data: bytes, record: QuotedRecord) -> str | None:
        """Why a record is one that this writer does not write; None: nothing shows it."""
        if record.is_broken:
            return None
        needless = next((text for text in record.quoted if not self._needs_marks(text)), None)
        if needless is not None:
            return f"line {record.line} has {_shown(needless)} in quotation marks, which it does not need"
        lines = data[record.start : record.end].split(b"\n")
        if len(lines) > 1 and self._are_rows(lines, record.fields):
            return f"lines {record.line} to {record.line + len(lines) - 1} are one row, or a row each"
        return None

    def _are_rows(self, lines: list[bytes], fields: int) -> bool:
        """Whether each line has as many fields as the record, and an operation first where that has one."""
        sign = self.delimiter.encode()
        have_operations = [line.split(sign, 1)[0].strip().upper() in _OPERATIONS for line in lines]
        widths = {line.count(sign) + 1 for line in lines}
        return widths == {fields} and (all(have_operations) or not have_operations[0])

    def _needs_marks(self, text: bytes) -> bool:
        signs = (QUOTE, self.delimiter.encode(), b"\n", b"\r", *self.breaks)
        return text in self.plain or text.strip() != text or any(sign in text for sign in signs)


def _shown(text: bytes) -> str:
    shown = text.decode(errors="replace")
    return repr(shown if len(shown) <= 40 else f"{shown[:40]}…")
