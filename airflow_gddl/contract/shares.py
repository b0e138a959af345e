"""Shares, numbers from 0 to 1, as metadata write them."""

from __future__ import annotations

import re

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")


def is_share(value: float) -> bool:
    """Whether it is a number from 0 to 1; NaN is none."""
    return 0 <= value <= 1


def share_remedy(value: object) -> str:
    """Remedy for a value that is no number; suggests one where it is a percentage."""
    percent = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    example = f"{float(percent[1]) / 100:g}" if percent else "0.34"
    return f"write a number from 0 to 1, e.g. {example}"
