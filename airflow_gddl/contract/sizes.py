"""Amounts of memory as metadata writes them: `512m`, `4g`, or bytes."""

from __future__ import annotations

_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4}


def size_bytes(text: str) -> int:
    """
    Raises:
        ValueError: not an amount of memory.
    """
    unit = text[-1:].lower()
    return int(text[:-1]) * 1024 ** _UNITS[unit] if unit in _UNITS else int(text)
