"""Settings of a DMS endpoint that CSV files show, and that the row's options don't say."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_gddl.contract.csv_quotes import OpenQuotesError, Writer, quoted_records
from airflow_gddl.contract.extensions import DmsOptions

SAMPLED_BYTES = 1 << 20
_WORD = re.compile(r"(?=.*[A-Za-z])[^\s]{3,64}")
"""What an endpoint may have as `CsvNoSupValue`: no number and no blank."""


def csv_settings(text: str, options: DmsOptions) -> Mapping[str, str]:
    """Options that a change file contradicts, each with what it has.

    Args:
        text: the beginning of the file, up to `SAMPLED_BYTES`.
    """
    contradictions = dict[str, str]()
    end = options.csv_row_delimiter
    if text and end not in text:
        contradictions["csv_row_delimiter"] = f"the file has no {end!r}, and ends in {text[-1]!r}"
        return contradictions
    lines = text.split(end)[:-1]
    if options.csv_quotes is not False and (why := _not_rfc4180(lines, options)) is not None:
        contradictions["csv_quotes"] = why
    if (word := _not_supplied(lines, options)) is not None:
        contradictions["csv_no_sup"] = f"updates have {word!r} in several columns of a row, and no other row has it"
    if options.csv_null and (line := _only_empty(lines, options)) is not None:
        contradictions["csv_null"] = f"line {line} has empty fields, and no field is {options.csv_null!r}"
    if options.csv_columns and not options.csv_header and (width := _other_width(lines, options)) is not None:
        contradictions["csv_columns"] = (
            f"lines have {width} fields, for {len(options.csv_columns)} names and the operation; columns that were "
            "added later belong in csv_added, too"
        )
    return contradictions


def _not_rfc4180(lines: Sequence[str], options: DmsOptions) -> str | None:
    """What shows that the writer does not follow RFC 4180; None: nothing does."""
    data = "\n".join(line.replace("\r", " ").replace("\n", " ") for line in lines).encode()
    writer = Writer.of(options)
    encloses = options.csv_header and bool(lines) and writer.encloses_names(lines[0].encode())
    try:
        for record in quoted_records(data, options.csv_delimiter):
            if record.is_broken:
                return f"line {record.line} has a quotation mark that RFC 4180 does not allow"
            if options.csv_quotes is None and not encloses and (why := writer.contradicts(data, record)) is not None:
                return why
    except OpenQuotesError:
        return None  # the sample may end there
    return None


def _only_empty(lines: Sequence[str], options: DmsOptions) -> int | None:
    """The first line with an empty field, from 1, where no field is null; None: there is none."""
    first = None
    for number, record in enumerate(_records(lines, options), 1):
        if options.csv_null in record:
            return None
        first = number if first is None and "" in record[1:] else first
    return first


def _other_width(lines: Sequence[str], options: DmsOptions) -> int | None:
    """The number of fields of the first line that has another one than the row says; None: none has."""
    names, older = len(options.csv_columns), len(options.csv_added)
    known = {names - fewer + operation for fewer in range(older + 1) for operation in (0, 1)}
    return next((len(record) for record in _records(lines, options) if len(record) not in known), None)


def _not_supplied(lines: Iterable[str], options: DmsOptions) -> str | None:
    """A word that stands in several columns of updates, and nowhere else."""
    several, elsewhere = Counter[str](), set[str]()
    for record in _records(lines, options):
        words = Counter(field for field in record[1:] if _WORD.fullmatch(field))
        if record[0].strip().upper() in ("U", "D"):
            several.update(word for word, count in words.items() if count > 1)
        else:
            elsewhere |= words.keys()
    known = {options.csv_null, options.csv_no_sup} | elsewhere
    return next((word for word, _ in several.most_common() if word not in known), None)


def _records(lines: Iterable[str], options: DmsOptions) -> Iterator[list[str]]:
    plain = (line.replace("\r", " ").replace("\n", " ") for line in lines)
    quoting = {} if options.csv_quotes is not False else {"quoting": csv.QUOTE_NONE}
    try:
        yield from filter(None, csv.reader(plain, delimiter=options.csv_delimiter, **quoting))  # type: ignore[arg-type]  # of its constants
    except csv.Error:
        return
