"""Sequences as the ledger keeps them: JSON text, comparable without an engine; and forms of text that have an order.

Text compares by code point, which is the order of numbers only where they are equally long, and that of times only in
one zone. Such forms are made comparable when a change is decoded (`rules.texts`), and kept so in
`_gddl.sequence`: log sequence numbers as PostgreSQL writes them (`0/9FFFFFF`), hexadecimal and decimal digits (`ff`,
`0x1A`, `42`), decimal numbers (`9.5`), times (as instants). Other text must be equally long, and of one form whose
order as text is known: groups of digits between marks (`log-0042`, `0000002a:00000190:0003`), ULIDs, UUIDs that begin
with a time. Texts of one column have one form, or forms that compare (`fit_together`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from airflow_gddl.contract.codes import SEQUENCE_FORM, SEQUENCE_WIDTH
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec

Widths: TypeAlias = Mapping[str, tuple[int, int]]
"""Sequence column to the least and greatest length of its text; columns of other types are left out."""

Forms: TypeAlias = Mapping[str, tuple[str, str]]
"""Form of a column's texts to one of them and the file that it is in."""
_EXAMPLES = 3

# For upper case; written so that RE2 (Arrow) and Java (Spark) read them alike.
LSN = r"\A([0-9A-F]{1,8})/([0-9A-F]{1,8})\z"
HEXADECIMAL = r"\A(?:0X)?[0-9A-F]+\z"
PREFIX = r"\A0X"
DECIMAL = r"\A([0-9]+)\.([0-9]+)\z"
DIGITS_ALONE = r"\A[0-9]+\z"
POWER = r"\A(?:0|[1-9][0-9]*)E[0-9]+\z"
"""A power of ten, or hexadecimal digits: only other texts of the column tell."""
TIME = (
    r"\A(?P<day>[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01]))"
    r"(?:[T ](?P<clock>(?:[01][0-9]|2[0-3]):[0-5][0-9])(?::(?P<second>[0-5][0-9])(?:[.](?P<fraction>[0-9]{1,9}))?)?"
    r"(?P<zone> ?(?:Z|UTC|GMT|(?P<sign>[+-])(?P<hours>0[0-9]|1[0-7])(?::?(?P<minutes>[0-5][0-9]))?)?))?\z"
)
MONTH = (
    r"\A(?:0?[1-9]|[12][0-9]|3[01])/(?:0?[1-9]|[12][0-9]|3[01]|(?:19|20)[0-9]{2})\z"
    r"|\A(?:0?[1-9]|1[0-2])[.](?:19|20)[0-9]{2}\z"
)
"""Day, month or month and year; or a log sequence number or a decimal number: only other texts of the column tell."""
_DAY = r"(?:19|20)[0-9]{2}-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12][0-9]|3[01])"
_MONTHS = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
OTHER_DATES = (
    r"\A[0-9]{1,2}[-/._](?:[0-9]{1,2}|[A-Z]{3,})[-/._](?:[0-9]{2}|[0-9]{4})(?:[^0-9]|\z)"
    r"|\A(?:0?[1-9]|1[0-2])[-_](?:19|20)[0-9]{2}\z"
    rf"|\A(?:{_MONTHS})[A-Z]*[-/._ ][0-9]{{1,2}}[-/._]"
    rf"|\A{_DAY}[^0-9]?[0-9]{{2}}.*-(?:0[0-9]|1[0-8])(?::?[0-5][0-9])?\z"
    rf"|\A{_DAY}-(?:0[0-9]|1[0-8]):[0-5][0-9]\z"
    r"|\A(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]+)?)?\z"
    r"|\A(?:Q|W|KW|CW|WK|M|H|S)[0-9]{1,2}[-/._](?:19|20)[0-9]{2}\z"
)
"""Dates whose day, month, week or quarter comes first, dates and times in a form of groups that may state a zone, and
times without a date."""
DIGIT_GROUPS = r"\A(?:[^0-9]*[A-Za-z][^0-9]*)?[0-9]+(?:[.:;|#/_-][0-9]+)*\z"
EXPONENT = r"\A[0-9]+(?:[.][0-9]*)?E[+-]?[0-9]+\z"
HEX_GROUPS = r"\A(?:0X)?[0-9A-F]+(?:[.:;|#/_-](?:0X)?[0-9A-F]+)+\z"
UUID = r"\A[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}\z"
UUID_BY_TIME = r"\A[0-9A-F]{8}-[0-9A-F]{4}-[67]"
ULID = r"\A[0-7][0-9A-HJKMNP-TV-Z]{25}\z"
LSN_DIGITS, DIGITS = 8, 20
"""Digits to which each half of a log sequence number is filled up, and other numbers, unless they have more."""
EPOCH = r"\Alog[0-9]{4}:"
"""Prefix of a position in a log that was reset."""
_EPOCH = re.compile(EPOCH)
LONGEST_TRANSACTION = timedelta(minutes=1)
PLACE = r"^((?:log[0-9]{4}:)?[0-9]{10}\.[0-9]{20}|[^.]*).*$"
"""A position in a log, its first group the place: MySQL's log file and position in it, of other logs the commit."""
COMMIT_AND_PLACE = r"^(?P<log>(?:log[0-9]{4}:)?)(?P<commit>[0-9]{20})\.(?P<is_change>[01])\.(?P<own>[0-9]{20})$"
"""A position in PostgreSQL's log: `EPOCH` or nothing, the last commit before the change, 0 for rows that were read and
1 for changes, and its own place; the two places are equal where no commit is known."""
_IN_FILE = re.compile(r"(?:log[0-9]{4}:)?[0-9]{10}\.[0-9]{20}")
_POSITION = re.compile(PLACE)
_LOWEST = "-Infinity"
_NOT_FINITE = (_LOWEST, "Infinity", "NaN")
"""Floating-point numbers that are text in JSON; the last two are above all other numbers, in this order."""
_FRACTION = re.compile(r"\A([0-9]+)\.[0-9]+\Z")


def sort_key(text: str) -> tuple[tuple[int, Any], ...]:
    """A tuple that compares as the sequence does: text by code point, numbers as numbers, columns left to right.

    Infinity and NaN are text in JSON. They have their place in the order of Delta and Spark: NaN is greatest.

    Returns:
        a pair for each column: its place among the kinds of values, and the value.
    """
    return tuple((0 if value == _LOWEST else 2 if isinstance(value, str) else 1, value) for value in _values(text))


def log_began_of(spec: TableSpec) -> tuple[str, ...]:
    """The row's `log_began`, as `TableState` keeps it."""
    return tuple(map(str, spec.options.get("log_began") or ()))


def have_one_type(first: str, second: str) -> bool:
    """Whether two sequences compare: both text, or both numbers, in each column."""
    pairs = zip(_values(first), _values(second), strict=False)
    return all(isinstance(a, str) == isinstance(b, str) or a in _NOT_FINITE or b in _NOT_FINITE for a, b in pairs)


def _values(text: str) -> tuple[Any, ...]:
    value = json.loads(text, parse_float=Decimal)
    return tuple(value.values()) if isinstance(value, dict) else (value,)


def greater(first: str | None, second: str | None) -> str | None:
    """The greater of two sequences; null is lowest."""
    if first is None or second is None:
        return first if second is None else second
    return max(first, second, key=sort_key)


def is_after(first: str, second: str | None) -> bool:
    return second is None or sort_key(first) > sort_key(second)


def fit_together(forms: Collection[str]) -> bool:
    """Whether texts of these forms (`texts.forms`) compare, as they are kept."""
    groups = [form.split(" ", 2)[1:] for form in forms if form.startswith("groups ")]
    if len(groups) == len(forms):
        return len({shape for _, shape in groups}) == 1 and len({kind for kind, _ in groups} - {"digits"}) < 2
    kinds = set(forms) - {"power"} if "hex" in forms else set(forms)
    kinds -= {"month"} if kinds & {"lsn", "decimal"} else set()
    known = len(kinds) == 1 and not kinds & {"", "power", "month"}
    return known or kinds in ({"digits", "hex"}, {"digits", "decimal"})


def require_one_form(column: str, forms: Forms, known: Collection[str], remedy: str) -> None:
    """Refuse text whose order is not known: a newer change could be lost in silence.

    Args:
        forms: forms of the batch's texts.
        known: those of earlier batches.

    Raises:
        FatalError: `SEQUENCE_FORM`.
    """
    if not forms or fit_together({*forms, *known}):
        return
    shown = ", ".join(f"{text!r} in {file}" for text, file in list(forms.values())[:_EXAMPLES])
    before = f"; of earlier changes: {', '.join(form or 'unknown' for form in sorted(known))}" if known else ""
    raise FatalError(
        SEQUENCE_FORM,
        f"{column}: sequences are text of forms ({', '.join(form or 'unknown' for form in forms)}{before}) in which "
        f"the order of values is not known, e.g. {shown}; nothing was written",
        remedy=remedy,
    )


def widths_of(sequence: str | None, columns: Sequence[str]) -> dict[str, int]:
    """Column to the length of its text; as `texts_of`."""
    texts = texts_of(sequence, columns)
    return {name: len(_FRACTION.sub(r"\1", _EPOCH.sub("", text))) for name, text in texts.items()}


def texts_of(sequence: str | None, columns: Sequence[str]) -> dict[str, str]:
    """Column to its text in a sequence; columns of other types are left out.

    Args:
        sequence: JSON text; None: none.
        columns: those of the sequence.
    """
    value = json.loads(sequence) if sequence else None
    parts = value if isinstance(value, dict) else dict.fromkeys(columns[:1], value)
    return {name: text for name, text in parts.items() if isinstance(text, str)}


def require_one_width(widths: Widths, known: Mapping[str, int], examples: Mapping[str, str], remedy: str) -> None:
    """Refuse text of differing width: as text `9` comes after `10`, and a newer row would be lost in silence.

    Args:
        widths: of the batch's texts.
        known: of what was ingested so far.
        examples: sequences for the message, JSON text, to the file that they are in; empty: ingested earlier.

    Raises:
        FatalError: `SEQUENCE_WIDTH`.
    """
    for column, batch_widths in widths.items():
        lengths = {*batch_widths, *((known[column],) if column in known else ())}
        if len(lengths) > 1:
            texts = sorted(examples, key=len)
            ends = {text: examples[text] for text in (*texts[:1], *texts[-1:])}
            shown = ", ".join(f"{text} in {file}" if file else text for text, file in ends.items())
            raise FatalError(
                SEQUENCE_WIDTH,
                f"{column}: sequences are text of {min(lengths)} to {max(lengths)} characters, which have no order "
                f"as text (e.g. {shown}); nothing was written",
                remedy=remedy,
            )


def log_place(sequence: str | None) -> str | None:
    """Where in a log a position is, as text that compares: in a log file, or LSN or SCN of the commit, with its epoch.

    Args:
        sequence: JSON text, its first column a position of a `Dialect.log_positions`.
    """
    value = json.loads(sequence) if sequence else None
    first = next(iter(value.values())) if isinstance(value, dict) else value
    return place_in_log(first) if isinstance(first, str) else None


def place_in_log(position: str) -> str:
    """The place of a position, see `log_place`."""
    return _POSITION.sub(r"\1", position)


def longest_transaction(place: str) -> timedelta:
    """How much later than a place in a log a change before it may have been committed.

    MySQL's events have the time at which their statement began, and come in the order of its log: none has a later time
    than all those behind it. In other logs a transaction may be as long as this.
    """
    return timedelta(0) if is_in_file(place) else LONGEST_TRANSACTION


def is_in_file(place: str) -> bool:
    """Whether a place is a position in a log file, as MySQL's are."""
    return _IN_FILE.fullmatch(place) is not None
