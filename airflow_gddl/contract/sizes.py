"""Parses amounts of memory in metadata: `512m`, `4g`, or bytes."""

from __future__ import annotations

import re

_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4}
MEMORY = re.compile(r"[1-9][0-9]{0,5}[kmgtKMGT]")
"""Form of amounts in tiers."""


def remedy(value: object) -> str:
    """Remedy for a value that is not an amount of memory; suggests units where only the unit is missing."""
    number = str(value)
    if MEMORY.fullmatch(f"{number}g"):
        return f"write the unit: {number}g, {number}m, {number}k or {number}t"
    return "write a number and k, m, g or t, e.g. 4g"


def size_bytes(text: str) -> int:
    """
    Raises:
        ValueError: not an amount of memory.
    """
    unit = text[-1:].lower()
    return int(text[:-1]) * 1024 ** _UNITS[unit] if unit in _UNITS else int(text)
