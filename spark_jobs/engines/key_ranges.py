"""A rule over all rows of each key, for tables of any size: rows of data files go to ranges of keys.

A range's rows are in the memory of one process or task together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_rs.data_files import read_parts
from spark_jobs.engines.delta_rs.row_search import AT_FILE, AT_ROW
from spark_jobs.engines.delta_rs.tables import DataFile, Tables, TableSnapshot
from spark_jobs.engines.places import stream_of, stream_rows
from spark_jobs.rules.key_ranges import WEIGHT, cuts_of, range_of, sample_of

RANGE_BYTES = 16 * 1024**2
"""Of data files, whose rows are one range."""

RowRule = Callable[[pa.Table], pa.Table]
RangeRule = Callable[[Storage, Mapping[str, pa.Table]], bytes]
Part = tuple[str, int]
"""Name of a source, and number of its file."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows of a table's files for a rule.

    Attributes:
        schema: of the columns to read.
        prepare: what is made of the rows, each by itself, before they go to their range. It gets `AT_FILE` and
            `AT_ROW`, too: number of the file, and of the row in it.
    """

    table: str
    files: tuple[DataFile, ...]
    schema: pa.Schema
    prepare: RowRule

    @classmethod
    def of(cls, snapshot: TableSnapshot, prepare: RowRule, columns: Sequence[str] | None = None) -> Source:
        """
        Args:
            columns: to read; null: all.
        """
        kinds = snapshot.schema.arrow
        schema = kinds if columns is None else pa.schema([kinds.field(name) for name in columns])
        return cls(table=snapshot.path, files=snapshot.files, schema=schema, prepare=prepare)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def none(self) -> pa.Table:
        """No rows, as they are prepared."""
        return self._prepared(self.schema.empty_table(), 0, np.zeros(0, np.int64))

    def rows(self, storage: Storage, number: int) -> Iterator[pa.Table]:
        """Prepared rows of a file, in parts that fit into memory."""
        for rows, at in read_parts(storage, self.table, self.files[number], self.schema):
            yield self._prepared(rows, number, at)

    def keys(self, storage: Storage, number: int, keys: pa.Schema) -> Iterator[pa.Table]:
        """Key columns of the rows of a file: as stored where they need no change, since that takes less reading."""
        if any(key.name not in self.schema.names or self.schema.field(key.name).type != key.type for key in keys):
            yield from self.rows(storage, number)
            return
        stored = pa.schema([self.schema.field(name) for name in keys.names])
        for rows, _ in read_parts(storage, self.table, self.files[number], stored):
            yield rows

    def _prepared(self, rows: pa.Table, number: int, at: np.ndarray) -> pa.Table:
        rows = rows.append_column(AT_FILE, pa.repeat(pa.scalar(number, pa.int32()), len(at)))
        return self.prepare(rows.append_column(AT_ROW, pa.array(at, pa.int64())))


@dataclass(frozen=True, kw_only=True)
class _OnParts:
    sources: Mapping[str, Source]

    def file_of(self, part: Part) -> str:
        source = self.sources[part[0]]
        return join(source.table, source.files[part[1]].path)

    def rows_of(self, storage: Storage, part: Part) -> Iterator[pa.Table]:
        return self.sources[part[0]].rows(storage, part[1])

    def together(self, rows: Mapping[str, Sequence[pa.Table]]) -> dict[str, pa.Table]:
        return {name: pa.concat_tables([source.none, *rows.get(name, ())]) for name, source in self.sources.items()}


@dataclass(frozen=True, kw_only=True)
class _Sample(_OnParts):
    """Keys of a few rows of a file, see `key_ranges.sample_of`."""

    keys: pa.Schema

    def __call__(self, storage: Storage, part: Part) -> bytes:
        empty = self.keys.append(pa.field(WEIGHT, pa.float64())).empty_table()
        rows = self.sources[part[0]].keys(storage, part[1], self.keys)
        found = [sample_of(one, self.keys) for one in rows]
        return stream_of(pa.concat_tables([empty, *found]))


@dataclass(frozen=True, kw_only=True)
class _Ranges(_OnParts):
    """See `KeyWork`.

    Attributes:
        cuts: see `key_ranges.cuts_of`.
    """

    cuts: pa.Table
    rule: RangeRule

    def split(self, storage: Storage, part: Part) -> Iterator[tuple[int, str, pa.Table]]:
        for rows in self.rows_of(storage, part):
            if not self.cuts.num_rows:
                yield 0, part[0], rows
                continue
            at = range_of(rows, self.cuts)
            order = np.argsort(at, kind="stable")
            numbers, starts, counts = np.unique(at[order], return_index=True, return_counts=True)
            ordered = rows.take(pa.array(order))
            for number, start, count in zip(numbers.tolist(), starts, counts, strict=True):
                yield number, part[0], ordered.slice(start, count)

    def __call__(self, storage: Storage, rows: Mapping[str, Sequence[pa.Table]]) -> bytes:
        return self.rule(storage, self.together(rows))


@dataclass(frozen=True, kw_only=True)
class _File(_OnParts):
    """A rule over the rows of one file."""

    rule: RangeRule

    def __call__(self, storage: Storage, part: Part) -> bytes:
        return self.rule(storage, self.together({part[0]: list(self.rows_of(storage, part))}))


def by_key(tables: Tables, sources: Mapping[str, Source], keys: pa.Schema, rule: RangeRule) -> list[bytes]:
    """Apply a rule to the rows of each range of keys, where files of this size are worked on; the rule's reports.

    Args:
        sources: tables for the rule, by name.
        keys: columns of the prepared rows by which they belong together; empty: all rows do.
        rule: from rows by the name of their table. It is called at least once.
    """
    size = sum(source.size for source in sources.values())
    place = tables.place_for(size)
    parts = _parts(sources)
    cuts = keys.empty_table()
    if keys.names and tables.is_for_tasks(size):
        samples = place.run(_Sample(sources=sources, keys=keys), parts)
        ranges = max(place.slots, -(-size // RANGE_BYTES))
        cuts = cuts_of([stream_rows(data) for data in samples], keys, ranges)
    work = _Ranges(sources=sources, cuts=cuts, rule=rule)
    return place.run_by_key(work, parts, cuts.num_rows + 1) or [work(tables.storage, {})]


def by_row(tables: Tables, sources: Mapping[str, Source], rule: RangeRule) -> list[bytes]:
    """The same for a rule that holds for any part of the rows: of all together, or in tasks of each file."""
    large = tables.is_for_tasks(sum(source.size for source in sources.values()))
    return by_file(tables, sources, rule) if large else by_key(tables, sources, pa.schema([]), rule)


def by_file(tables: Tables, sources: Mapping[str, Source], rule: RangeRule) -> list[bytes]:
    """The same for the rows of each file, one after the other; the rule is not called where there are none."""
    place = tables.place_for(sum(source.size for source in sources.values()))
    return place.run(_File(sources=sources, rule=rule), _parts(sources))


def _parts(sources: Mapping[str, Source]) -> list[Part]:
    return [(name, number) for name, source in sources.items() for number in range(len(source.files))]
