"""Rows as plain values and as lines of text, so that a difference reads well."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tests.oracle.casting import naive_utc
from tests.scenarios.model import Expected, ExpectedError, Row

META = "_gddl"
WHERE_NAMED = ("__start_generation", "__end_generation", "__valid_from", "__valid_to")
"""Columns of the history that are compared where an expected row names them."""


def plain(value: Any) -> Any:
    """As YAML writes it.

    Times in UTC and decimals with a fraction as text, whole decimals as numbers, bytes as text.
    """
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, datetime):
        return naive_utc(value).isoformat(sep=" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else format(value, "f")
    return value.decode() if isinstance(value, (bytes, bytearray)) else value


def lines(rows: Iterable[Row], meta: Iterable[str] = (), unchecked: Iterable[str] = ()) -> list[str]:
    """Sorted, a line a row: its columns that are not null and the chosen fields of `_gddl`."""
    fields, out = tuple(meta), {*unchecked, META}
    found = []
    for row in rows:
        shown = {name: plain(value) for name, value in row.items() if value is not None and name not in out}
        if fields:
            shown[META] = {name: plain((row.get(META) or {}).get(name)) for name in fields}
        found.append(json.dumps(shown, ensure_ascii=False, sort_keys=True))
    return sorted(found)


def meta_fields(rows: Sequence[Row]) -> tuple[str, ...]:
    """The fields of `_gddl` that the expected rows name; all rows must name the same."""
    named = {tuple(sorted(row.get(META) or ())) for row in rows}
    assert len(named) <= 1, f"rows name different fields of {META}: {sorted(named)}"
    return next(iter(named), ())


def assert_rows(what: str, wanted: Sequence[Row], actual: Sequence[Row], expected: Expected) -> None:
    meta = meta_fields(wanted)
    unchecked = {*expected.unchecked, *(name for name in WHERE_NAMED if not any(name in row for row in wanted))}
    want = lines(wanted, meta, unchecked)
    have = lines(actual, meta, unchecked)
    missing = [f"  missing {line}" for line in _less(want, have)]
    extra = [f"  extra   {line}" for line in _less(have, want)]
    assert missing + extra == [], "\n".join([f"{what} differs:", *missing, *extra])


def _less(these: Sequence[str], those: Sequence[str]) -> list[str]:
    """Multiset difference."""
    return sorted((Counter(these) - Counter(those)).elements())


def assert_errors(wanted: Sequence[ExpectedError], actual: Sequence[Row]) -> None:
    left = [dict(row) for row in actual]
    for error in wanted:
        found = next((row for row in left if _is(error, row)), None)
        assert found is not None, f"no error like {error} in\n  " + "\n  ".join(map(str, left))
        left.remove(found)
    assert not left, "unexpected errors:\n  " + "\n  ".join(map(str, left))


def _is(error: ExpectedError, row: Row) -> bool:
    text = json.dumps(plain(row), ensure_ascii=False)
    return (
        error.code == row["code"]
        and error.column in (None, row["column"])
        and error.position in (None, row["position"])
        and (error.file is None or row["source_file"].endswith(error.file))
        and all(part in text for part in error.has)
        and not any(part in text for part in error.lacks)
    )


def part_of(wanted: Any, actual: Any) -> bool:
    """Whether all that is wanted is there; mappings may hold more."""
    if isinstance(wanted, Mapping):
        return isinstance(actual, Mapping) and all(part_of(v, actual.get(k)) for k, v in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return isinstance(actual, (list, tuple)) and list(wanted) == list(actual)
    return bool(wanted == actual)
