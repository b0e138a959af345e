"""Fractions from JSON, with all digits."""

from __future__ import annotations

_EXACT = 16
"""Characters of a text without exponent that has at most fifteen digits, which a double represents exactly."""


class Written(float):
    """A fraction whose digits a double may not represent, as the nearest double.

    Attributes:
        text: the digits as delivered.
    """

    text: str


def fraction(text: str) -> float:
    """The value of a JSON fraction; `Written` unless the double represents it exactly."""
    if len(text) <= _EXACT and "e" not in text and "E" not in text:
        return float(text)
    value = float(text)
    if repr(value) == text:
        return value
    found = Written(value)
    found.text = text
    return found


def digits(value: float) -> str:
    """The digits of a fraction as delivered, where they are known."""
    return value.text if isinstance(value, Written) else repr(value)
