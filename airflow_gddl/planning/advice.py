"""Advice of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["limit", "advice"]
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One recommended change.

    Attributes:
        code: stable, see docs/codes.md.
        level: `limit`: a limit is exceeded; `advice`: a possible improvement.
        message: what was found, with its numbers.
        change: the field of a row, the setting or the option to change, and to what.
        tables: some of the tables it is about; empty: all.
        count: how many tables it is about; 0: all.
    """

    code: str
    level: Level
    message: str
    change: str
    tables: tuple[str, ...] = ()
    count: int = 0


def advice(*, code: str, level: Level, message: str, change: str, tables: Iterable[str] = ()) -> Advice:
    """
    Args:
        tables: all that it is about.
    """
    names = sorted(tables)
    return Advice(
        code=code, level=level, message=message, change=change, tables=tuple(names[:_SHOWN]), count=len(names)
    )
