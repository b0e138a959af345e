"""Names of landing files and folders, common to all dialects: kinds, times, and paths by a template."""

from __future__ import annotations

import functools
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

FileKind = Literal["load", "change"]
FileFormat = Literal["parquet", "csv", "json"]
Names = tuple[FileKind, FileFormat, tuple[str, ...]]
"""Kind and format of a data file, and what sorts files of its kind in the order their writer made them."""

LISTED_IN_PART = 1_000
"""Files of a table above which sensor and job list only a part of its folder: a page of S3, some 20 ms of a run."""
LARGE_FOLDER = 500_000
"""Objects from which on a run warns of its listing: 500 requests of S3 and, with the ledger's rows, 0.9 GiB."""
FULL_LISTING_EVERY = timedelta(days=1)
LOOKBACK = "7d"
"""Default of a row's `lookback`: how far behind the newest change file a listing in part reaches."""


def is_listing_due(listed_at: str | None, now: datetime) -> bool:
    """Whether a full listing is due.

    Args:
        listed_at: time of the last one, ISO 8601. One in the future, after a clock was set back, is due too.
    """
    return listed_at is None or not timedelta(0) <= now - datetime.fromisoformat(listed_at) < FULL_LISTING_EVERY


_TEMPORARY = ("~", ".tmp", ".temp", ".crc", ".part", ".partial", ".filepart", ".swp", "._copying_", "_$folder$")


def is_temporary(relative_path: str) -> bool:
    """Whether a file is hidden or unfinished, and so ignored without a warning."""
    rooted = f"/{relative_path}"
    return "/." in rooted or "/_" in rooted or rooted.lower().endswith(_TEMPORARY)


TIMED = r"(?P<day>\d{8})-(?P<time>\d{6,})(?:[._-].*?)?"
_TIMED = re.compile(rf"{TIMED}\.[A-Za-z]+(?:\.gz)?")
TIME_DIGITS = 17


def change_time(path: str) -> str | None:
    """The time in a change file's name as digits, `YYYYMMDDHHMMSSfff`, which compare as times; None for other files."""
    match = _TIMED.fullmatch(path.rpartition("/")[2])
    return None if match is None else time_digits(match)


def timed_order(path: str) -> str | None:
    """Sort key of change files with a time, in the order of their changes; None for other files."""
    time = change_time(path)
    return None if time is None else f"{time}/{path}"


def repeated_hour(digits: str, zone: str | None) -> str | None:
    """The hour of a time, if a clock in this zone goes through a part of it twice; None: it does not.

    Args:
        digits: as of `change_time`.
        zone: of the IANA database; None: not known. Clocks go back on the last Sunday of October, or the first one of
            November or April, before four.
    """
    return _repeated_hour(digits[:_HOUR_DIGITS], zone)


_HOUR_DIGITS = len("YYYYMMDDHH")
_SUNDAY, _WEEK, _BEFORE_HOUR = 6, timedelta(days=7), 4


@functools.lru_cache(maxsize=4096)
def _repeated_hour(hour: str, zone: str | None) -> str | None:
    start = moment(hour.ljust(TIME_DIGITS, "0"))
    if start is None:
        return None
    if zone is None:
        is_last, is_first = (start + _WEEK).month != start.month, (start - _WEEK).month != start.month
        is_day = is_last if start.month == 10 else is_first and start.month in (4, 11)
        return hour if is_day and start.weekday() == _SUNDAY and start.hour < _BEFORE_HOUR else None
    known = zoneinfo.ZoneInfo(zone)
    for time in (start, start + timedelta(minutes=30)):
        first, second = (time.replace(tzinfo=known, fold=fold).utcoffset() or timedelta() for fold in (0, 1))
        if first > second:
            return hour
    return None


def moment(digits: str) -> datetime | None:
    """Parse `change_time` digits to a time without zone; None when they are not a valid time."""
    try:
        whole = datetime.strptime(digits[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007  names carry no zone
        return whole + timedelta(milliseconds=int(digits[14:TIME_DIGITS]))
    except (ValueError, OverflowError):
        return None


def digits_of(time: datetime) -> str:
    """The inverse of `moment`."""
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def time_digits(match: re.Match[str]) -> str:
    """Digits of the time in a file name that `TIMED` has matched."""
    return (match["day"] + match["time"]).ljust(TIME_DIGITS, "0")


RESYNCED = "gddl-resync"
"""End of the names of change files with rows that a resync has read from the source, or deletes of keys that a job has
found missing there."""
_RESYNCED = re.compile(rf"\d{{8}}-\d{{9}}-{RESYNCED}\.parquet")


def is_resynced(path: str) -> bool:
    """Whether a job has written a change file of what it has read of the source, see `RESYNCED`."""
    return _RESYNCED.fullmatch(path.rpartition("/")[2]) is not None


FIRST_OF_LOAD = "LOAD00000000.parquet"
"""Name of the file without rows with which a load by `gddl load` begins."""
OF_SNAPSHOT = "gddl-snapshot"
"""Part of the names of change files with the differences of a snapshot; its version follows."""
_OF_SNAPSHOT = re.compile(rf"\d{{8}}-\d{{9}}-{OF_SNAPSHOT}-\d+\.parquet")


def is_of_snapshot(path: str) -> bool:
    """Whether a change file was written by the capture of a snapshot, which has named and masked its columns."""
    return _OF_SNAPSHOT.fullmatch(path.rpartition("/")[2]) is not None


_EXTENSION = r"\.(?P<format>parquet|csv)(?:\.gz)?"
_SUFFIX = r"(?:[._-].*?)?"
_LOAD = re.compile(
    rf"(?:SEGMENT_?(?P<segment>\d+)_)?LOAD(?:_(?P<part>\d+)_)?(?P<counter>[0-9A-F]+){_SUFFIX}{_EXTENSION}",
    re.IGNORECASE,
)
_CHANGE = re.compile(rf"{TIMED}{_EXTENSION}", re.IGNORECASE)


def classify(relative_path: str) -> Names | None:
    """Kind, format and order of a file by its path below the landing folder; None if it is not a data file.

    Loads are ordered by folder, segment and counter, changes by the time in the name, then by path.
    """
    if is_temporary(relative_path):
        return None
    folder, _, name = relative_path.rpartition("/")
    if match := _CHANGE.fullmatch(name):
        return "change", _format(match), (time_digits(match), relative_path)
    if match := _LOAD.fullmatch(name):
        segment = match["segment"] or match["part"] or ""
        return "load", _format(match), (folder, segment.zfill(10), match["counter"].upper().zfill(16), relative_path)
    return None


def _format(match: re.Match[str]) -> FileFormat:
    return "csv" if match["format"].lower() == "csv" else "parquet"


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
        """Parse a format of folders of time, such as `'dt='yyyy-MM-dd`.

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
        """Digits as `change_time` gives, when the folder's time begins; null outside folders of time.

        A file of a folder further up (a day's, where the format goes to hours) has the time when that one begins.
        """
        match = self._pattern.match(relative)
        return None if match is None else self._digits(match)

    def whole_time(self, relative: str) -> str | None:
        """Time of a file's folders as digits; None unless the path has all folders of the format."""
        match = self._pattern.match(relative)
        depth = self.text.strip("/").count("/") + 1
        return None if match is None or match[0].count("/") < depth else self._digits(match)

    @staticmethod
    def _digits(match: re.Match[str]) -> str | None:
        groups = match.groupdict()
        digits = groups["year"] + "".join(groups.get(part) or f"{least:02d}" for part, least in _LEAST.items())
        return digits.ljust(TIME_DIGITS, "0") if _is_date(digits[:8]) else None

    def floor(self, time: datetime) -> datetime:
        """Start of the folder that contains this time."""
        coarser = {part: least for part, least in _LEAST.items() if part not in self.tokens}
        return time.replace(**coarser, second=0, microsecond=0)  # type: ignore[arg-type]  # names of whole numbers

    def folder(self, time: datetime) -> str:
        """The folder that contains this time, below a table's."""
        return "".join(_rendered(token, time) for token in self.tokens)

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
        head, *deeper = "".join(texts).split("/")
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


def _plain(token: str) -> str:
    return token[1:]


def _rendered(token: str, time: datetime) -> str:
    if token not in _PARTS:
        return _plain(token)
    return f"{getattr(time, token):02d}"  # years have four digits by themselves


@functools.lru_cache(maxsize=4096)
def _is_date(digits: str) -> bool:
    return moment(digits + "0" * (TIME_DIGITS - 8)) is not None
