"""Messages of several tables that say the same: one is shown, with the names of the other tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MANY = 5
"""Messages that differ only in names, paths and numbers are shown one by one up to this number."""
NAMED = 3
"""Tables that `the_same_in` names."""
_WORD = re.compile(r"[^\s()\[\]'\",;]+")
_NUMBER = re.compile(r"(?<!\w)\d[\d,.:]*(?!\w)")


@dataclass(frozen=True)
class Message:
    """A message about a table."""

    table: str
    code: str
    text: str

    @property
    def pattern(self) -> str:
        """The text without what differs between tables: the table's name, paths, numbers."""
        own = re.compile(rf"(?<!\w)(?:{re.escape(self.table)}|{re.escape(self.table.rpartition(':')[2])})(?!\w)")
        words = _WORD.sub(lambda found: "/" if "/" in found[0] else found[0], own.sub("TABLE", self.text))
        return _NUMBER.sub("#", words)


@dataclass(frozen=True)
class Group:
    """Messages of several tables that are alike.

    Attributes:
        code, text: of the first message.
        tables: whose message is this text, to the letter.
        others: whose messages differ from it only in names, paths and numbers.
    """

    code: str
    text: str
    tables: tuple[str, ...]
    others: tuple[str, ...] = ()


def grouped(messages: Iterable[Message]) -> list[Group]:
    """Messages in order, equal ones together; of more than `MANY` that are alike, only the first text."""
    by_text: dict[tuple[str, str], list[Message]] = {}
    for message in messages:
        by_text.setdefault((message.code, message.text), []).append(message)
    by_pattern: dict[tuple[str, str], list[list[Message]]] = {}
    for equal in by_text.values():
        by_pattern.setdefault((equal[0].code, equal[0].pattern), []).append(equal)
    found: list[Group] = []
    for alike in by_pattern.values():
        if len(alike) > MANY:
            others = (message.table for equal in alike[1:] for message in equal)
            found.append(_group(alike[0], tuple(sorted({*others}))))
        else:
            found += [_group(equal) for equal in alike]
    return found


def _group(equal: Sequence[Message], others: tuple[str, ...] = ()) -> Group:
    return Group(equal[0].code, equal[0].text, tuple(dict.fromkeys(message.table for message in equal)), others)


def the_same_in(tables: Sequence[str], things: str) -> str:
    """The sentence after a message that so many more tables have; `things` is what they are, in the plural."""
    more = f" and {len(tables) - NAMED} others" if len(tables) > NAMED else ""
    return f"The same in {len(tables)} more {things}: {', '.join(tables[:NAMED])}{more}."
