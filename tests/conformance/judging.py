"""Compares the table of a reader with the right one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from tests.conformance.delivery import Delivery, Either, Outcome, Uncertain
from tests.conformance.history import Column, Key, Kind, Row

Mark = Literal["PASS", "LOUD", "REFUSED", "WRONG"]
NO_CODE = "ERROR"
"""What a reader without codes says; any doubt allows it."""
MARKS: tuple[Mark, ...] = ("PASS", "LOUD", "REFUSED", "WRONG")


@dataclass(frozen=True)
class Verdict:
    """Attributes:
    mark: `PASS`: the right table. `LOUD`: another one where the files don't tell the right one, and the reader said so.
        `REFUSED`: not loaded, with an error or rows put aside, where the files tell the right table. `WRONG`: another
        table, and nothing that says so.
    text: rows that differ, and what was said.
        differences: sorts of these, without keys.
    """

    mark: Mark
    text: str = ""
    differences: frozenset[str] = frozenset()


def judge(delivery: Delivery, outcome: Outcome) -> Verdict:
    """The mark of an outcome."""
    found, doubled = _by_key(delivery, outcome)
    wrong = {key: text for key in {*delivery.right, *found} if (text := _difference(delivery, found, key))}
    wrong |= {key: f"{count} rows" for key, count in doubled.items()}
    said = {*outcome.said, *([outcome.refused] if outcome.refused else [])}
    left = {key: text for key, text in wrong.items() if not _is_allowed(delivery.uncertain, key, said)}
    text = f"{_shown(left or wrong)}; said {', '.join(sorted(said)) or 'nothing'}"
    if not wrong and not outcome.refused:
        return Verdict("PASS")
    if not left and (wrong or _is_allowed(delivery.uncertain, None, said)):
        return Verdict("LOUD", text)
    sorts = frozenset(part.split(" for ")[0] for row in left.values() for part in row.split(", "))
    if outcome.refused or (outcome.rows is None and said) or len(left) <= outcome.put_aside:
        return Verdict("REFUSED", text, sorts)
    return Verdict("WRONG", text, sorts)


def _by_key(delivery: Delivery, outcome: Outcome) -> tuple[dict[Key, Row], dict[Key, int]]:
    kinds = {column.name: column.kind for column in delivery.columns}
    found: dict[Key, Row] = {}
    counts: dict[Key, int] = {}
    for row in outcome.rows or ():
        key = tuple(canonical(kinds[name], row.get(name)) for name in delivery.keys)
        found[key] = row
        counts[key] = counts.get(key, 0) + 1
    return found, {key: count for key, count in counts.items() if count > 1}


def _difference(delivery: Delivery, found: Mapping[Key, Row], key: Key) -> str:
    """What is wrong with a row; empty: nothing."""
    right, maybe, row = delivery.right.get(key), delivery.maybe.get(key), found.get(key)
    if right is None:
        wanted = maybe
        if row is None or wanted is None:
            return "" if row is None else "should not be there"
        right = wanted
    if row is None:
        return "" if maybe is not None and maybe is right else "missing"
    cells = [text for column in delivery.columns if (text := _cell(column, right.get(column.name), row))]
    return ", ".join(cells)


def _cell(column: Column, right: Any, row: Row) -> str:
    values = right.values if isinstance(right, Either) else (right,)
    same = column.name if column.name in row else next((n for n in row if n.lower() == column.name.lower()), "")
    got = canonical(column.kind, row.get(same))
    wanted = [canonical(column.kind, value) for value in values]
    return "" if got in wanted else f"{column.name}: {got!r:.60} for {' or '.join(f'{w!r:.60}' for w in wanted)}"


def _is_allowed(uncertain: tuple[Uncertain, ...], key: Key | None, said: set[str]) -> bool:
    concerning = [doubt for doubt in uncertain if doubt.keys is None or key is None or key in doubt.keys]
    return any(doubt.codes & said for doubt in concerning) or bool(concerning and NO_CODE in said)


def _shown(wrong: Mapping[Key, str]) -> str:
    few = list(wrong.items())[:4]
    return "; ".join(f"{key}: {text}" for key, text in few) + (f" and {len(wrong) - 4} more" if len(wrong) > 4 else "")


def canonical(kind: Kind, value: Any) -> Any:
    """A value in one form, whichever type a reader gives it; as it is where it is no value of the kind."""
    try:
        return value if value is None else _FORMS[kind](value)
    except (ValueError, TypeError, InvalidOperation, OverflowError):
        return value


def _whole(value: Any) -> Any:
    number = int(value) if not isinstance(value, float | Decimal) else value
    return int(number) if number == int(number) else value


def _number(value: Any) -> Any:
    return value if isinstance(value, float) else Decimal(str(value)).normalize() + 0


def _boolean(value: Any) -> Any:
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    return value if isinstance(value, bool) else known.get(str(value).lower(), value)


def _moment(value: Any) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _day(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.date() if value.time() == time(0) else value
    return value if isinstance(value, date) else date.fromisoformat(str(value).strip().removesuffix("Z"))


_CLOCK = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z?")


def _time(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    match = _CLOCK.fullmatch(str(value)) if isinstance(value, str | time) else None
    if match is None:
        return value
    sign, hours, minutes, seconds, digits = match.groups()
    micros = int((digits or "0").ljust(6, "0")[:6])
    found = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=micros)
    return -found if sign else found


_FORMS: Mapping[Kind, Callable[[Any], Any]] = {
    "int4": _whole, "int8": _whole, "decimal": _number, "float8": float, "text": lambda value: value,
    "numeric": _number, "timestamp3": _moment, "time3": _time,
    "bool": _boolean, "timestamp": _moment, "timestamptz": _moment, "date": _day, "time": _time, "longtime": _time,
    "bytes": lambda value: bytes(value) if isinstance(value, bytes | bytearray) else value,
}  # fmt: skip
