"""Settings of a DMS endpoint that CSV files show, and that the row's options don't say."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

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
    if options.csv_quotes and (line := _badly_quoted(lines, options)) is not None:
        contradictions["csv_quotes"] = f"line {line} has a quotation mark inside a field that is not quoted"
    if (word := _not_supplied(lines, options)) is not None:
        contradictions["csv_no_sup"] = f"updates have {word!r} in several columns of a row, and no other row has it"
    return contradictions


def _badly_quoted(lines: Iterable[str], options: DmsOptions) -> int | None:
    """The first line with such a field, from 1; null: none has."""
    other = f'[^"{re.escape(options.csv_delimiter)}]'
    inside = re.compile(rf'(?:^|{re.escape(options.csv_delimiter)}){other}+"')
    return next((at for at, line in enumerate(lines, 1) if line.count('"') % 2 and inside.search(line)), None)


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
    quoting = {} if options.csv_quotes else {"quoting": csv.QUOTE_NONE}
    try:
        yield from filter(None, csv.reader(plain, delimiter=options.csv_delimiter, **quoting))  # type: ignore[arg-type]  # of its constants
    except csv.Error:
        return
