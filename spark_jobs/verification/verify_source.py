"""The replica against the source database: counts and hashes by range of the key, then the keys that differ.

A source changes while earlier changes are still being delivered. So a key that differs is *unsettled* at first: it is
remembered with the hashes of both rows and the source's time. It is *different* once a later comparison finds the same
two rows although the replica has ingested a commit of a later time, or enough time has passed for one to arrive.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.spec import JobOptions
from spark_jobs.engines.port import TableContext
from spark_jobs.plan.batch import TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.table.runtime import iso
from spark_jobs.verification.source_columns import Columns
from spark_jobs.verification.source_database import Range, SourceTable
from spark_jobs.verification.source_differences import SeenDifferences, read_differences, write_differences

ROWS_PER_RANGE, MOST_RANGES = 10_000, 1000
_SETTLE_SECONDS = 3600
_MOST_REMEMBERED = 100_000
Hashes = tuple[int | None, int | None]
"""Of a row in the source and in the replica; null where it has none."""


@dataclass(frozen=True, kw_only=True)
class SourceVerdict:
    """Attributes:
    rows, source_rows: of the replica (soft-deleted rows left out) and of the source.
    ranges, ranges_different: of the first key column.
    compared: columns; `not_compared`: column to why not.
    different, unsettled: keys.
    keys: some of them as JSON, with their state: `missing` in the replica, `extra`, `different`, and whether it is
        settled.
    looked_at: the source's time.
    """

    rows: int
    source_rows: int
    ranges: int
    ranges_different: int
    compared: tuple[str, ...]
    not_compared: Mapping[str, str]
    different: int
    unsettled: int
    keys: tuple[dict[str, Any], ...]
    looked_at: str


def verify_source(
    context: TableContext, table_schema: TableSchema, state: TableState, table: SourceTable, options: JobOptions,
    now: datetime,
) -> SourceVerdict:  # fmt: skip
    """Compare, and remember what is unsettled.

    Args:
        options: `limit`: keys that are named at most; `settle_seconds`: how long a change may take to arrive; null: the
            table's freshness, or an hour.
        now: our clock.

    Raises:
        FatalError: `SOURCE_KEYS_NOT_COMPARABLE`.
    """
    columns = Columns.of(table, table_schema)
    return _Comparing(context, table_schema, state, table, columns, options, now).verdict()


@dataclass(frozen=True)
class _Comparing:
    context: TableContext
    table_schema: TableSchema
    state: TableState
    table: SourceTable
    columns: Columns
    options: JobOptions
    now: datetime

    def verdict(self) -> SourceVerdict:
        # The replica is read before the source, so that what differs is newer there.
        ranges = ranges_of(*self._extent())
        counts, sums = [0] * len(ranges), [0] * len(ranges)
        for row in self._lake(self.columns.lake):
            at = range_of(ranges, row[0])
            counts[at], sums[at] = counts[at] + 1, sums[at] + self.columns.digest(row)
        looked_at, wrong, source_rows = self.table.now(), [], 0
        for number, within in enumerate(ranges):
            rows, total = self._of_source(within)
            source_rows += rows
            if (rows, total) != (counts[number], sums[number]):
                wrong.append(number)
        found = self._differing(ranges, wrong)
        settled = self._settled(found, looked_at)
        return SourceVerdict(
            rows=sum(counts), source_rows=source_rows, ranges=len(ranges), ranges_different=len(wrong),
            compared=self.columns.lake, not_compared=self.columns.left_out, different=len(settled),
            unsettled=len(found) - len(settled), keys=self._named(found, settled), looked_at=iso(looked_at),
        )  # fmt: skip

    def _lake(self, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        return self.context.engine.live_rows(self.context, columns)

    def _extent(self) -> tuple[int, Any, Any]:
        """Rows of the replica, and least and greatest value of the first key column where it is a whole number."""
        count, low, high = 0, None, None
        for (value,) in self._lake(self.columns.lake[:1]):
            count += 1
            if isinstance(value, int):
                low = value if low is None else min(low, value)
                high = value if high is None else max(high, value)
        return count, low, high

    def _of_source(self, within: Range) -> tuple[int, int]:
        """Rows of a range, and the sum of their hashes."""
        rows, total = 0, 0
        for row in self.table.rows(self.columns.source, self.columns.source[0], within):
            rows, total = rows + 1, total + self.columns.digest(row)
        return rows, total

    def _differing(self, ranges: Sequence[Range], wrong: Sequence[int]) -> dict[tuple[str, ...], Hashes]:
        """Keys of the ranges that differ, with the hashes of both rows."""
        chosen = set(wrong)
        here: dict[tuple[str, ...], int] = {}
        for row in self._lake(self.columns.lake) if wrong else ():
            if range_of(ranges, row[0]) in chosen:
                here[self.columns.key(row)] = self.columns.digest(row)
        found: dict[tuple[str, ...], Hashes] = {}
        for number in wrong:
            for row in self.table.rows(self.columns.source, self.columns.source[0], ranges[number]):
                key, theirs = self.columns.key(row), self.columns.digest(row)
                mine = here.pop(key, None)
                if mine != theirs:
                    found[key] = (theirs, mine)
        found |= {key: (None, mine) for key, mine in here.items()}
        return found

    def _settled(self, found: Mapping[tuple[str, ...], Hashes], looked_at: datetime) -> set[tuple[str, ...]]:
        """Keys that differ though their change would have arrived; all are remembered for the next poll."""
        storage, root = self.context.storage, self.context.layout.state
        before = read_differences(storage, root)
        now: dict[str, SeenDifferences] = {}
        settled: set[tuple[str, ...]] = set()
        for key, hashes in found.items():
            seen = SeenDifferences(rows=_plain(hashes), source_time=iso(looked_at), at=iso(self.now))
            earlier = before.get(_mark(key))
            if earlier is not None and earlier.rows == seen.rows:
                seen = earlier
            if self._has_settled(seen):
                settled.add(key)
            if len(now) < _MOST_REMEMBERED:
                now[_mark(key)] = seen
        if before or now:
            write_differences(storage, root, now)
        return settled

    def _has_settled(self, seen: SeenDifferences) -> bool:
        """Whether the replica has passed the source's time of that comparison, or had the time to."""
        newest = self.state.max_commit_ts
        caught_up = newest is not None and datetime.fromisoformat(newest) > datetime.fromisoformat(seen.source_time)
        return caught_up or self.now - datetime.fromisoformat(seen.at) >= self._wait()

    def _wait(self) -> timedelta:
        own = self.context.spec.freshness
        usual = seconds(own) if own is not None else _SETTLE_SECONDS
        return timedelta(seconds=usual if self.options.settle_seconds is None else self.options.settle_seconds)

    def _named(
        self, found: Mapping[tuple[str, ...], Hashes], settled: set[tuple[str, ...]]
    ) -> tuple[dict[str, Any], ...]:
        """Settled ones first."""
        chosen = sorted(found, key=lambda key: (key not in settled, key))[: self.options.limit]
        return tuple(
            {
                "key": json.dumps(dict(zip(self.columns.lake, key, strict=False)), ensure_ascii=False),
                "state": _state(found[key]),
                "settled": key in settled,
            }
            for key in chosen
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


def _state(hashes: Hashes) -> str:
    source, mine = hashes
    return "missing" if mine is None else "extra" if source is None else "different"


def _mark(key: Sequence[str]) -> str:
    return hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()


def _plain(hashes: Hashes) -> tuple[str, ...]:
    return tuple("" if h is None else f"{h:016x}" for h in hashes)
