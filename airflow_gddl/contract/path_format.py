"""Time-partitioned folders of sinks, described by a `path.format` such as Confluent's; pure.

`'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH`: letters are parts of a time, quoted texts and other characters are literal.
Parts come from the year downwards, none left out, each in all its digits: names of folders then sort as their times do,
and a listing can begin at one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from airflow_gddl.contract.name_times import TIME_DIGITS, moment

_PARTS = {
    "year": r"(?P<year>19[7-9]\d|2\d{3})",
    "month": r"(?P<month>0[1-9]|1[0-2])",
    "day": r"(?P<day>0[1-9]|[12]\d|3[01])",
    "hour": r"(?P<hour>[01]\d|2[0-3])",
    "minute": r"(?P<minute>[0-5]\d)",
}
_FIRST_YEAR = "1970"
_LETTERS = {"YYYY": "year", "yyyy": "year", "MM": "month", "dd": "day", "HH": "hour", "mm": "minute"}
_LEAST = {"month": 1, "day": 1, "hour": 0, "minute": 0}
_TOKEN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>[^A-Za-z'])")


@dataclass(frozen=True)
class PathFormat:
    """Time format of the folders below a table's landing folder.

    Attributes:
        tokens: in order; the name of a part of a time, or `=` and a text.
    """

    text: str
    tokens: tuple[str, ...]

    @classmethod
    def parsed(cls, text: str) -> PathFormat:
        """
        Raises:
            ValueError: it is not a valid format; the message gives the reason, without the text.
        """
        tokens = tuple(_tokens(text.strip("/")))
        parts = [token for token in tokens if token in _PARTS]
        if parts != list(_PARTS)[: len(parts)] or not parts:
            raise ValueError("not year, month, day, hour, minute in this order, from the year on, each once")
        if "//" in text.strip("/"):
            raise ValueError("a folder in it has no name")
        return cls(text, tokens)

    @functools.cached_property
    def first(self) -> str:
        """Smallest possible prefix of a path in a time folder."""
        before = self.tokens[: self.tokens.index("year")]
        return "".join(_plain(token) for token in before) + _FIRST_YEAR

    def time(self, relative: str) -> str | None:
        """Digits as `name_times.change_time` gives, when the folder's time begins; null outside folders of time.

        A file of a folder further up (a day's, where the format goes to hours) has the time when that one begins.
        """
        match = self._pattern.match(relative)
        if match is None:
            return None
        found = match.groupdict()
        digits = found["year"] + "".join(found.get(part) or f"{least:02d}" for part, least in _LEAST.items())
        return digits.ljust(TIME_DIGITS, "0") if _is_date(digits[:8]) else None

    def floor(self, time: datetime) -> datetime:
        """Start of the folder that contains this time."""
        coarser = {part: least for part, least in _LEAST.items() if part not in self.tokens}
        return time.replace(**coarser, second=0, microsecond=0)  # type: ignore[arg-type]  # names of whole numbers

    def before(self, floor: datetime) -> str:
        """A name that sorts before all files of a time from `floor` on, and after those of earlier folders.

        Files of a folder further up sort before their own subfolders' perhaps: where those begin with it, so does this.
        """
        parts = [token for token in self.tokens if token in _PARTS]
        while len(parts) > 1 and getattr(floor, parts[-1]) == _LEAST[parts[-1]]:
            parts.pop()
        until = self.tokens.index(parts[-1]) + 1
        return "".join(_rendered(token, floor) for token in self.tokens[:until])

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        texts = [_PARTS.get(token) or re.escape(_plain(token)) for token in self.tokens]
        head, *deeper = _folders(texts)
        while "(?P<year>" not in head:
            head, deeper = f"{head}/{deeper[0]}", deeper[1:]
        below = ""
        for folder in reversed(deeper):
            below = f"(?:{folder}/{below})?"
        return re.compile(f"{head}/{below}")


def _tokens(text: str) -> Iterator[str]:
    """Join adjacent literals; a slash remains a separate literal."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError("a quote in it is not closed")
        at = match.end()
        if match["letters"] is None:
            yield from (f"={part}" for part in re.split("(/)", match["quoted"] or match["other"] or "") if part)
        elif match["letters"] in _LETTERS:
            yield _LETTERS[match["letters"]]
        else:
            raise ValueError(f"{match['letters']} is none of YYYY, MM, dd, HH, mm; a text is put in quotes ('year')")


def _folders(texts: list[str]) -> list[str]:
    folders = [""]
    for text in texts:
        if text == "/":
            folders.append("")
        else:
            folders[-1] += text
    return folders


def _plain(token: str) -> str:
    return token[1:]


def _rendered(token: str, time: datetime) -> str:
    if token not in _PARTS:
        return _plain(token)
    return f"{getattr(time, token):02d}"  # years have four digits by themselves


@functools.lru_cache(maxsize=4096)
def _is_date(digits: str) -> bool:
    return moment(digits + "0" * (TIME_DIGITS - 8)) is not None
