"""Fractions out of JSON, with all their digits."""

from __future__ import annotations

_EXACT = 16
"""Characters of a text without exponent that has fifteen digits at most: a double gives them all back."""


class Written(float):
    """A fraction whose digits a double may not hold, beside the nearest double.

    Attributes:
        text: the digits as they came.
    """

    text: str


def fraction(text: str) -> float:
    """What JSON's text of a fraction stands for; `Written` unless the double says the same."""
    if len(text) <= _EXACT and "e" not in text and "E" not in text:
        return float(text)
    value = float(text)
    if repr(value) == text:
        return value
    found = Written(value)
    found.text = text
    return found


def digits(value: float) -> str:
    """A fraction as it came, as far as anybody knows."""
    return value.text if isinstance(value, Written) else repr(value)
