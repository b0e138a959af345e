"""Sequences as the ledger keeps them: JSON text, comparable without an engine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from airflow_gddl.contract.errors import FatalError


def sort_key(text: str) -> tuple[Any, ...]:
    """A tuple that compares as the sequence does: text by code point, numbers as numbers, columns left to right."""
    value = json.loads(text, parse_float=Decimal)
    return tuple(value.values()) if isinstance(value, dict) else (value,)


def greater(first: str | None, second: str | None) -> str | None:
    """The greater of two sequences; null is lowest."""
    if first is None or second is None:
        return first if second is None else second
    return max(first, second, key=sort_key)


def is_after(first: str, second: str | None) -> bool:
    return second is None or sort_key(first) > sort_key(second)


def require_one_width(widths: tuple[int, int] | None, known: str | None, table: str) -> None:
    """Refuse digit strings of differing width: as text `9` comes after `10`, and a newer row would be lost in silence.

    Args:
        widths: least and greatest length of the batch's digit strings; null when it has none.
        known: greatest sequence ingested so far, JSON text.

    Raises:
        FatalError: `SEQUENCE_WIDTH`.
    """
    if widths is None:
        return
    lengths = {*widths}
    stored = json.loads(known) if known else None
    if isinstance(stored, str) and stored.isdigit():
        lengths.add(len(stored))
    if len(lengths) > 1:
        raise FatalError(
            "SEQUENCE_WIDTH",
            f"{table}: sequences are digit strings of {min(lengths)} to {max(lengths)} digits, "
            "which don't compare as text",
            remedy="deliver them with a fixed width or as a number, or declare `options.types` (e.g. decimal(38,0)) "
            "for the column and run a full refresh",
        )


def require_one_length(sequences: Iterable[str], table: str) -> None:
    """Refuse places in the logs of different kinds of sources: one would be before or after the other by chance.

    Args:
        sequences: least and greatest ones of what is at hand and of what was ingested, JSON text.

    Raises:
        FatalError: `SEQUENCE_WIDTH`.
    """
    examples = {len(text): text for text in map(json.loads, sequences) if isinstance(text, str)}
    if len(examples) > 1:
        raise FatalError(
            "SEQUENCE_WIDTH",
            f"{table}: places in different kinds of logs don't compare: {', '.join(examples.values())}",
            remedy="take files of another connector out of the landing folder; where the source itself has changed, "
            "set sequence_by to columns that both have (a time first) and run a full refresh",
        )
