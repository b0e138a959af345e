"""The replica against the source database; and what of findings is remembered until it has settled."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from operator import ne
from typing import Any

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.codes import OPTION_INVALID, SOURCE_NOT_COMPARABLE
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.names import delivered_name, is_kept, landed_name, mask_method, renamed, rows_for
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import DecimalType, SqlType
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import iso
from spark_jobs.ledger.commit_files import read_small
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.windows import STEPS, Grid, Window, judged, missing_from, proven_until, time_column
from spark_jobs.source_tables import Range, SourceTable, SourceType
from spark_jobs.tables.engine import Engine

DIFFERENCES, WINDOW_DIFFERENCES = "source-looks.json", "window-looks.json"


@dataclass(frozen=True, kw_only=True)
class SeenDifferences:
    """A difference since it was first seen.

    Attributes:
        rows: hashes of the row in the source and in the replica as text; empty where it has none.
        source_time: the source's clock at the time; `at` ours. ISO 8601 UTC.
        window: start of the row's, ISO 8601 UTC; empty: the comparison was not by windows.
    """

    rows: tuple[str, ...]
    source_time: str
    at: str
    window: str = ""


@dataclass(frozen=True, kw_only=True)
class DifferenceRecords:
    """Differences of earlier comparisons: hash of a key to its difference."""

    unsettled: Mapping[str, SeenDifferences] = field(default_factory=dict)


def read_differences(storage: Storage, root: str, name: str = DIFFERENCES) -> Mapping[str, SeenDifferences]:
    """Those of the table whose state folder is `root`; if the document is lost, one more comparison is needed.

    Args:
        name: of the document: comparisons by windows have their own.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    records = read_small(storage, join(root, name), DifferenceRecords, "delete it, and compare once more")
    return {} if records is None else records.unsettled


Text = Callable[[Any], str]
_WHOLE = ("tinyint", "smallint", "int", "bigint")


def comparison(source: SourceType, lake: SqlType) -> Text | None:
    """How values of both sides become one text; None when these types don't compare."""
    name = "decimal" if isinstance(lake, DecimalType) else str(lake)
    if source.kind == "whole" and name in _WHOLE:
        return _whole
    if source.kind in ("whole", "decimal") and isinstance(lake, DecimalType):
        scale = 0 if source.kind == "whole" else source.scale or 0  # values without one compare as they are
        return _decimal if scale <= lake.scale else None
    if source.kind == "decimal" and source.scale == 0 and name in _WHOLE:
        return _whole
    return _SAME.get((source.kind, name))


def _whole(value: Any) -> str:
    return str(int(value))


def _decimal(value: Any) -> str:
    text = format(Decimal(value), "f")  # all digits, where `normalize` would round to 28 of them
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _number(value: Any) -> str:
    try:
        return _decimal(Decimal(value))
    except ArithmeticError:  # a text of the lake that is no number equals none
        return f"not a number: {value}"


def _json(value: str) -> str:
    """One text for equal documents: keys in order, numbers by their value, each key once, as `jsonb` keeps them."""
    try:
        parsed = json.loads(value, parse_float=Decimal, parse_int=Decimal, parse_constant=str)
    except ValueError:
        return f"not JSON: {value}"
    return json.dumps(_with_plain_numbers(parsed), sort_keys=True, ensure_ascii=False)


def _with_plain_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_plain_numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_plain_numbers(one) for one in value]
    return {"": [_decimal(value)]} if isinstance(value, Decimal) else value


def _double(value: Any) -> str:
    number = float(value)
    if math.isnan(number):
        return "nan"
    return repr(number + 0.0)  # -0.0 equals 0.0


def _single(value: Any) -> str:
    return _double(struct.unpack("f", struct.pack("f", float(value)))[0])


def _moment(value: datetime | str) -> str:
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:  # infinity, or a year that Python's class lacks
        return str(value)
    naive = parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo is not None else parsed
    return naive.isoformat(timespec="microseconds")


_SAME: dict[tuple[str, str], Text] = {
    ("double", "double"): _double,
    ("single", "float"): _single,
    ("boolean", "boolean"): lambda value: str(bool(value)),
    ("text", "string"): str,
    ("label", "string"): str,
    ("date", "date"): str,
    ("naive", "timestamp_ntz"): _moment,
    ("aware", "timestamp"): _moment,
    ("binary", "binary"): lambda value: bytes(value).hex(),
    ("decimal", "string"): _number,
    ("UUID", "string"): lambda value: str(value).lower(),
    ("JSON", "string"): _json,
    ("JSONB", "string"): _json,
}


def digest(values: Sequence[Any], how: Sequence[Text]) -> int:
    """64 bits of a row; rows that compare as equal have the same."""
    hasher = hashlib.blake2b(digest_size=8)
    for value, text in zip(values, how, strict=True):
        if value is None:
            hasher.update(b"-")
        else:
            data = text(value).encode(errors="surrogatepass")
            hasher.update(b"%d:" % len(data) + data)
    return int.from_bytes(hasher.digest())


def _require_all_rows(spec: TableSpec) -> None:
    """Refuse a table with a row filter: the source has its other rows, too."""
    if spec.where is not None:
        what = f"the table holds the rows where {spec.where}, and the source has others, too"
        remedy = "leave verify_connection out for this table; `gddl verify` compares it with its changes"
        raise FatalError(SOURCE_NOT_COMPARABLE, what, where=spec.table, remedy=remedy)


ABSENT = "not in the source"
"""Why a column of the lake alone, as of the CDC service, is not compared."""


@dataclass(frozen=True)
class Columns:
    """What is compared: names in the lake and in the source, keys first, and how."""

    lake: tuple[str, ...]
    source: tuple[str, ...]
    how: tuple[Text, ...]
    keys: int
    left_out: Mapping[str, str]

    @classmethod
    def of(cls, table: SourceTable, table_schema: TableSchema) -> Columns:
        """
        Raises:
            FatalError: `SOURCE_NOT_COMPARABLE`.
        """
        spec = table_schema.spec
        _require_all_rows(spec)
        rows = rows_for(table.types, spec)
        types = {landed_name(renamed(name, rows[name])).lower(): (name, kind) for name, kind in table.types.items()
                 if rows[name] is spec or is_kept(name, rows[name])}  # fmt: skip
        chosen: dict[str, tuple[str, Text]] = {}
        left_out: dict[str, str] = {}
        for column in sorted(table_schema.data, key=lambda c: c.name not in table_schema.keys):
            source_column = types.pop(column.name.lower(), None)
            if mask_method(delivered_name(column.name), spec) is not None:
                left_out[column.name] = "masked"
            elif source_column is None:
                left_out[column.name] = ABSENT
            elif (how := comparison(source_column[1], column.type)) is None:
                left_out[column.name] = f"{source_column[1].kind} in the source, {column.type} in the lake"
            else:
                chosen[column.name] = (source_column[0], how)
        left_out |= {name: "not in the lake" for name, _ in types.values()}
        if unfit := [f"{key}: {left_out[key]}" for key in table_schema.keys if key not in chosen]:
            raise FatalError(
                SOURCE_NOT_COMPARABLE,
                f"rows can't be matched by their key ({'; '.join(unfit)})",
                where=spec.table,
                remedy="leave verify_connection out for this table",
            )
        order = [*table_schema.keys, *(name for name in chosen if name not in table_schema.keys)]
        pairs = [chosen[name] for name in order]
        return cls(
            tuple(order), tuple(p[0] for p in pairs), tuple(p[1] for p in pairs), len(table_schema.keys), left_out
        )

    @property
    def shared(self) -> tuple[int, int]:
        """How many columns were compared, of those that both sides should have."""
        beyond = sum(why == ABSENT for why in self.left_out.values())
        return len(self.lake), len(self.lake) + len(self.left_out) - beyond

    def key(self, row: Sequence[Any]) -> tuple[str, ...]:
        return tuple(how(value) for value, how in zip(row[: self.keys], self.how, strict=False))

    def digest(self, row: Sequence[Any]) -> int:
        return digest(row, self.how)


ROWS_PER_RANGE, MOST_RANGES = 10_000, 1000
_SETTLE_SECONDS = 3600
_MOST_REMEMBERED = 100_000
Hashes = tuple[int | None, int | None]
"""Of a row in the source and in the replica; null where it has none."""


@dataclass(frozen=True, kw_only=True)
class ComparedWithSource:
    """Attributes:
    keys: some of those that differ as JSON, with their state: `missing` in the replica, `extra`, `different`, and
        whether it is settled.
    looked_at: the source's time; without a source, ours.
    compared: columns; `not_compared`: column to why not; empty without a source.
    columns: how many were compared, of how many that both sides should have.
    """

    keys: tuple[dict[str, Any], ...] = ()
    looked_at: str
    compared: tuple[str, ...] = ()
    not_compared: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[int, int] = (0, 0)


@dataclass(frozen=True, kw_only=True)
class SourceVerdict(ComparedWithSource):
    """Attributes:
    rows, source_rows: of the replica (soft-deleted rows left out) and of the source.
    ranges, ranges_different: of the first key column.
    different, unsettled: keys.
    """

    rows: int
    source_rows: int
    ranges: int
    ranges_different: int
    different: int
    unsettled: int


Key = tuple[str, ...]
"""Of a row, as `Columns.key` writes it."""
_Row = tuple[Any, ...]


@dataclass(frozen=True)
class _Groups:
    """Groups of rows whose sums are compared first: ranges of the first key column, or windows of time.

    Attributes:
        number: of the group that a row is in; None: it is in none.
        mine: rows of the replica that may be in one.
        theirs: rows of the source in the groups of these numbers, and maybe others.
    """

    count: int
    number: Callable[[_Row], int | None]
    mine: Iterable[_Row]
    theirs: Callable[[Iterable[int]], Iterable[_Row]]


Sums = Sequence[tuple[int, int]]
"""Of each group: its rows, and the sum of their hashes."""


@dataclass(frozen=True, kw_only=True)
class SourceDifferences:
    """Attributes:
    mine, theirs: of the replica and of the source.
    keys: those that differ, with the hashes of both rows.
    groups: number of the group of each of these keys, and of others.
    looked_at: the source's time.
    """

    mine: Sums
    theirs: Sums
    keys: Mapping[Key, Hashes]
    groups: Mapping[Key, int]
    looked_at: datetime

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self.mine)

    @property
    def source_rows(self) -> int:
        return sum(rows for rows, _ in self.theirs)


def state_of(hashes: Hashes) -> str:
    """What a key that differs is in the replica: `missing`, `extra` or `different`."""
    source, mine = hashes
    return "missing" if mine is None else "extra" if source is None else "different"


@dataclass(frozen=True, kw_only=True)
class WindowVerdict(ComparedWithSource):
    """See `Window`; moments are ISO 8601 UTC.

    Attributes:
        column: of the rows, in the lake, that tells their time; empty: none, so that only files are counted.
        since: start of the first window.
        proven_until: until when nothing is missing of what changed since; None: nothing is known.
        missing_from: start of the first window that is wrong.
    """

    column: str
    since: str
    windows: tuple[Window, ...]
    proven_until: str | None = None
    missing_from: str | None = None


_MOST_WINDOWS = 10_000


def grid_of(options: Verify, until: datetime) -> Grid:
    """The windows that a verification was asked for, until a moment.

    Raises:
        FatalError: `OPTION_INVALID`.
    """
    if (options.since_seconds or 0) > _MOST_WINDOWS * STEPS[options.window].total_seconds():
        what = f"more than {_MOST_WINDOWS:,} windows of a {options.window}"
        raise FatalError(OPTION_INVALID, what, remedy="name a shorter time, longer windows, or compare whole tables")
    since = until - timedelta(seconds=options.since_seconds or 0)
    return Grid.of(since, until, STEPS[options.window])


@dataclass(frozen=True)
class SourceComparison:
    """The replica against its table in the source.

    Attributes:
        options: `limit`: keys that are named at most; `settle_seconds`: how long a change may take to arrive; None: the
            table's freshness, or an hour.
        now: our clock.
    """

    context: Engine
    state: TableState
    table: SourceTable
    columns: Columns
    options: Verify
    now: datetime

    def verdict(self) -> SourceVerdict:
        """Compare all rows, and remember what is unsettled."""
        found = self.differences()
        settled = self._settled(found)
        return SourceVerdict(
            rows=found.rows, source_rows=found.source_rows, ranges=len(found.mine),
            ranges_different=sum(map(ne, found.mine, found.theirs)),
            different=len(settled), unsettled=len(found.keys) - len(settled), **self._compared(found, settled),
        )  # fmt: skip

    def differences(self, groups: _Groups | None = None, looked_at: datetime | None = None) -> SourceDifferences:
        """All keys whose rows in the replica and in the source differ; nothing is remembered of them.

        Args:
            groups: None: ranges of the first key column.
            looked_at: the source's time if it was asked before.
        """
        groups = groups or self._ranges()
        # The replica is read before the source, so that what differs is newer there.
        mine = self._sums(groups.mine, groups)
        looked_at = looked_at or self.table.now()
        theirs = self._sums(groups.theirs(range(groups.count)), groups)
        keys, numbers = self._differing(groups, {n for n in range(groups.count) if mine[n] != theirs[n]})
        return SourceDifferences(mine=mine, theirs=theirs, keys=keys, groups=numbers, looked_at=looked_at)

    def _ranges(self) -> _Groups:
        ranges, columns = ranges_of(*self._extent()), self.columns.source
        return _Groups(
            len(ranges),
            lambda row: range_of(ranges, row[0]),
            self.context.stored.live_rows(self.columns.lake),
            lambda numbers: chain.from_iterable(self.table.rows(columns, columns[0], ranges[n]) for n in numbers),
        )

    def _extent(self) -> tuple[int, Any, Any]:
        """Rows of the replica, and least and greatest value of the first key column where it is a whole number."""
        count, low, high = 0, None, None
        for (value,) in self.context.stored.live_rows(self.columns.lake[:1]):
            count += 1
            if isinstance(value, int):
                low = value if low is None else min(low, value)
                high = value if high is None else max(high, value)
        return count, low, high

    def _sums(self, rows: Iterable[_Row], groups: _Groups) -> Sums:
        counts, sums = [0] * groups.count, [0] * groups.count
        for row in rows:
            if (number := groups.number(row)) is not None:
                counts[number], sums[number] = counts[number] + 1, sums[number] + self.columns.digest(row)
        return list(zip(counts, sums, strict=True))

    def _differing(self, groups: _Groups, wrong: Collection[int]) -> tuple[dict[Key, Hashes], dict[Key, int]]:
        """Keys of the groups that differ with the hashes of both rows, and the group of each."""
        differing: dict[Key, Hashes] = {}
        group_of: dict[Key, int] = {}
        for row in groups.theirs(sorted(wrong)) if wrong else ():
            if (number := groups.number(row)) is not None and number in wrong:
                key = self.columns.key(row)
                differing[key], group_of[key] = (self.columns.digest(row), None), number
        for row in self.context.stored.live_rows(self.columns.lake) if wrong else ():
            key, number = self.columns.key(row), groups.number(row)
            if key in differing:  # whatever its time is in the lake: an update may be missing of a row of any age
                differing[key] = (differing[key][0], self.columns.digest(row))
            elif number is not None and number in wrong:
                differing[key], group_of[key] = (None, self.columns.digest(row)), number
        return {key: hashes for key, hashes in differing.items() if hashes[0] != hashes[1]}, group_of

    def _settled(self, found: SourceDifferences, starts: Sequence[str] = ()) -> set[Key]:
        """Keys that differ though their change would have arrived; all are remembered for the next poll, as are those
        of windows at which this one has not looked.

        Args:
            starts: of the windows, if the groups are windows: these have a document of their own.
        """
        storage, root = self.context.storage, self.context.layout.state
        name = WINDOW_DIFFERENCES if starts else DIFFERENCES
        before = read_differences(storage, root, name)
        now: dict[str, SeenDifferences] = {}
        settled: set[Key] = set()
        for key, hashes in found.keys.items():
            window = starts[found.groups[key]] if starts else ""
            seen = SeenDifferences(
                rows=_plain(hashes), source_time=iso(found.looked_at), at=iso(self.now), window=window
            )
            mark = mark_of(key)
            earlier = before.get(mark)
            if earlier is not None and earlier.rows == seen.rows:
                seen = earlier
            if self._has_settled(seen):
                settled.add(key)
            if len(now) < _MOST_REMEMBERED:
                now[mark] = seen
        since = starts[0] if starts else ""
        older = {mark: seen for mark, seen in before.items() if mark not in now and "" < seen.window < since}
        now |= dict(list(older.items())[: max(0, _MOST_REMEMBERED - len(now))])
        if before or now:
            storage.write(join(root, name), codec.to_json(DifferenceRecords(unsettled=now)).encode())
        return settled

    def _has_settled(self, seen: SeenDifferences) -> bool:
        """Whether the replica has passed the source's time of that comparison, or had the time to."""
        newest = self.state.max_commit_ts
        caught_up = newest is not None and datetime.fromisoformat(newest) > datetime.fromisoformat(seen.source_time)
        waited = self.now - datetime.fromisoformat(seen.at)
        return caught_up or waited >= self._settle_time

    @property
    def _settle_time(self) -> timedelta:
        """How long a change may take to arrive."""
        freshness, asked = self.context.spec.freshness, self.options.settle_seconds
        usual = _SETTLE_SECONDS if freshness is None else seconds(freshness)
        return timedelta(seconds=usual if asked is None else asked)

    def _compared(self, found: SourceDifferences, settled: set[Key]) -> dict[str, Any]:
        """Fields of `ComparedWithSource`; of the keys settled ones first."""
        chosen = sorted(found.keys, key=lambda key: (key not in settled, key))[: self.options.limit]
        keys = tuple(
            {
                "key": json.dumps(dict(zip(self.columns.lake, key, strict=False)), ensure_ascii=False),
                "state": state_of(found.keys[key]),
                "settled": key in settled,
            }
            for key in chosen
        )
        columns = self.columns
        return {
            "keys": keys, "looked_at": iso(found.looked_at), "compared": columns.lake,
            "not_compared": columns.left_out, "columns": columns.shared,
        }  # fmt: skip

    def in_windows(self) -> WindowVerdict | None:
        """Compare rows that were changed lately, window by window; None: no column of both sides tells when that was.

        A row that differs is settled as in `verdict`; a window counts as wrong when one of its rows has.
        """
        timed = [name for name, how in zip(self.columns.lake, self.columns.how, strict=True) if how is _moment]
        column = time_column(timed, self.options.window_column)
        if column is None:
            return None
        looked_at, at = self.table.now(), self.columns.lake.index(column)
        grid, name = grid_of(self.options, looked_at), self.columns.source[at]
        since = grid.start.replace(tzinfo=UTC) if self.table.types[name].kind == "aware" else grid.start
        groups = _Groups(
            grid.count,
            lambda row: grid.number(row[at]),
            self.context.stored.live_rows(self.columns.lake, (column, grid.bounds(0)[0])),
            lambda _: self.table.rows_since(self.columns.source, name, since),
        )
        found, windows = self.differences(groups, looked_at), grid.windows()
        settled = self._settled(found, [window.start for window in windows])
        states = [Counter[str]() for _ in windows]
        for key, hashes in found.keys.items():
            states[found.groups[key]][state_of(hashes) if key in settled else "unsettled"] += 1
        for number, window in enumerate(windows):
            counts: dict[str, Any] = {**states[number], "source_rows": found.theirs[number][0]}
            closed = grid.bounds(number)[1] + self._settle_time <= looked_at
            windows[number] = judged(replace(window, rows=found.mine[number][0], **counts), closed=closed)
        return WindowVerdict(
            column=column,
            since=windows[0].start,
            windows=tuple(windows),
            proven_until=proven_until(windows),
            missing_from=missing_from(windows),
            **self._compared(found, settled),
        )


def ranges_of(count: int, low: Any, high: Any) -> list[Range]:
    """Ranges of a key column that is a whole number, of about `ROWS_PER_RANGE` rows; else one, with everything."""
    if not isinstance(low, int) or isinstance(low, bool) or not isinstance(high, int) or count <= ROWS_PER_RANGE:
        return [(None, None)]
    number = min(MOST_RANGES, -(-count // ROWS_PER_RANGE), high - low + 1)
    ends = [low + (high - low + 1) * i // number for i in range(1, number)]
    return list(zip([None, *ends], [*ends, None], strict=True))


def range_of(ranges: Sequence[Range], value: Any) -> int:
    """Number of the range that a value of the first key column is in."""
    return bisect_right(ranges, value, hi=len(ranges) - 1, key=lambda within: within[1] or 0)


def mark_of(key: Sequence[str]) -> str:
    """What is remembered of a key: 128 bits."""
    return hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()


def _plain(hashes: Hashes) -> tuple[str, ...]:
    return tuple("" if h is None else f"{h:016x}" for h in hashes)
