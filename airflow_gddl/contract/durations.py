"""Parses durations (`45s`, `30m`, `2h`, `7d`) and moments."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
NO_WAIT = "0s"
_FORM = re.compile(r"(?P<n>[1-9][0-9]{0,6})(?P<unit>[smhd])")


def seconds(text: str) -> int:
    """Whole seconds of a duration.

    Raises:
        ValueError: for any other form.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 45s, 30m, 2h or 7d")
    return int(match["n"]) * _UNITS[match["unit"]]


def wait_seconds(text: str) -> int:
    """Like `seconds`, but also accepts `0s`."""
    return 0 if text == NO_WAIT else seconds(text)


def is_duration(text: str) -> bool:
    """Whether `seconds` accepts it."""
    return _FORM.fullmatch(text) is not None


def remedy(value: object) -> str:
    """Remedy for a value that is not a duration; suggests the value with a unit where only the unit is missing."""
    number = str(value)
    if is_duration(f"{number}s"):
        return f"write the unit: {number}s, {number}m, {number}h or {number}d"
    return "write e.g. 45s, 30m, 2h or 7d"


def moment_of(text: str) -> datetime:
    """Parse a moment such as `2026-01-31T12:00:00Z`; UTC without a zone.

    Raises:
        ValueError: for any other form.
    """
    moment = datetime.fromisoformat(str(text))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
