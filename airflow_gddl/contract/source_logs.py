"""Logs of sources by whose commits cuts are made (docs/as-of.md): what a place in each says, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.contract import postgresql_log

_EPOCH, _DIGITS = len("log0001:"), 20
LogName = Literal["postgresql", "sqlserver", "oracle"]
"""As Debezium names the connector that reads the log."""


@dataclass(frozen=True, kw_only=True)
class SourceLog:
    """A kind of log.

    Attributes:
        title: of the database, for people.
        form: a position as the database writes it.
        number, written: from that text to a number, and back.
        place, of_place: from the number to text that has the same order, and back.
        is_own: changes have the place of their own transaction's commit, else that of the commit before it.
        is_exact: the rows of a snapshot are those of its place, else they were read later.
    """

    title: str
    form: re.Pattern[str]
    number: Callable[[str], int]
    written: Callable[[int], str]
    place: Callable[[int], str]
    of_place: Callable[[str], int]
    is_own: bool
    is_exact: bool

    def shown(self, place: str) -> str:
        """A place as the database writes it, whatever number of logs came before."""
        return self.written(self.of_place(place.removeprefix(epoch_of(place))))

    def until(self, bound: str) -> str:
        """The last position whose commits are before a bound; a bound before every place is one, too."""
        if not self.is_own or not bound:
            return bound
        epoch = epoch_of(bound)
        return epoch + self.place(max(self.of_place(bound.removeprefix(epoch)) - 1, 0))


def epoch_of(place: str) -> str:
    """What is before the place in a log that was opened anew, or reset; empty in the first one."""
    return place[:_EPOCH] if place.startswith("log") else ""


def number_in(place: str) -> int:
    """How often the log was opened anew, or reset, before a place; see `place_in`."""
    return int(epoch_of(place).removeprefix("log").rstrip(":") or 0)


def _decimal(number: int) -> str:
    return str(number).zfill(_DIGITS)


def _groups(number: int) -> str:
    digits = f"{number:0{_DIGITS}x}"
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def _of_groups(text: str) -> int:
    return int(text.replace(":", ""), 16)


POSTGRESQL: LogName = "postgresql"
LOGS: Mapping[LogName, SourceLog] = {
    "postgresql": SourceLog(
        title="PostgreSQL", form=re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}"), number=postgresql_log.position_of,
        written=postgresql_log.lsn_of, place=_decimal, of_place=int, is_own=False, is_exact=True,
    ),
    "sqlserver": SourceLog(
        title="SQL Server", form=re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}"), number=_of_groups,
        written=_groups, place=_groups, of_place=_of_groups, is_own=True, is_exact=False,
    ),
    "oracle": SourceLog(
        title="Oracle", form=re.compile(r"[0-9]{1,20}"), number=int, written=str, place=_decimal, of_place=int,
        is_own=True, is_exact=True,
    ),
}  # fmt: skip


def place_in(number: int, position: int, log: LogName = POSTGRESQL) -> str:
    """A position in a log as a place.

    Args:
        number: how often the log that jobs read was opened anew, or the source's was reset, before.
    """
    place = LOGS[log].place(position)
    return f"log{number:04d}:{place}" if number else place


def log_of_text(text: str) -> tuple[LogName, int] | None:
    """The log that has positions of this form, and the number of this one; None: none has."""
    for name, log in LOGS.items():
        if log.form.fullmatch(text):
            return name, log.number(text)
    return None
