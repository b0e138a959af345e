"""Rows of a table by key, by file and by ranges of keys: what tasks read, and hand to a rule."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import (
    WEIGHT,
    by_name,
    comparable,
    cuts_of,
    fields_of,
    flat,
    range_of,
    sample_of,
    shared_codes,
)
from spark_jobs.rules.order import for_both_keys, old_keys
from spark_jobs.rules.outcome import ACTION, AT, kept_of, replaced
from spark_jobs.rules.shards import of_shard
from spark_jobs.rules.stored_columns import change_schema
from spark_jobs.tables.data_files import bounds, is_falling, left_of, opened, read_groups, read_parts, read_rows
from spark_jobs.tables.deletion_vectors import rows_of
from spark_jobs.tables.delta_tables import DataFile, Tables, TableSnapshot

AT_FILE, AT_ROW = f"{GDDL}__file", f"{GDDL}__row"
PLACES = [AT_FILE, AT_ROW]
Keep = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""Mask of rows; None: not wanted. Sent to tasks."""


@dataclass(frozen=True, kw_only=True)
class KeyMatches:
    """Rows of a table that may have given keys.

    Attributes:
        rows: columns of the table.
        at: `PLACES` of each row: the number of its file in `files`, and of the row in the file.
        files: the files that were read.
        whole: all rows of these files; None: they were not read whole, and changed rows leave their files.
    """

    rows: pa.Table
    at: pa.Table
    files: tuple[DataFile, ...] = ()
    whole: Mapping[int, pa.Table] | None = None

    def places(self, outcome: pa.Table) -> pa.Table:
        """`at` of the rows that an outcome changes or deletes."""
        return self.at.take(outcome.column(AT).drop_null().combine_chunks())

    def deleted(self, outcome: pa.Table) -> list[tuple[DataFile, np.ndarray]]:
        """Files with the numbers of the rows that an outcome changes or deletes."""
        places = self.places(outcome)
        numbers, rows = (places.column(name).to_numpy() for name in PLACES)
        return [(self.files[number], np.sort(rows[numbers == number])) for number in np.unique(numbers)]

    def touched(self, outcome: pa.Table) -> pa.Table:
        """The stored rows that an outcome changes or deletes."""
        return self.rows.take(outcome.column(AT).drop_null().combine_chunks())

    def written(self, outcome: pa.Table, schema: pa.Schema) -> pa.Table:
        """Rows that an outcome inserts, or writes anew; see `outcome.kept_of`."""
        added = outcome.filter(pc.is_in(outcome.column(ACTION), pa.array(["insert", "update"])))
        return by_name(added, schema, kept_of(self.rows, added.column(AT).combine_chunks()))

    def rewritten(self, outcome: pa.Table, schema: pa.Schema) -> tuple[list[pa.Table], list[DataFile]]:
        """New contents of the files that hold a changed row, and these files.

        Args:
            outcome: see `outcome.decide`; columns that only the table has keep their value.
        """
        touched = outcome.filter(outcome.column(AT).is_valid())
        if not touched.num_rows or self.whole is None:
            return [], []
        places = self.at.take(touched.column(AT).combine_chunks())
        numbers = places.column(AT_FILE).to_numpy()
        added, removed = [], []
        for number in sorted(set(numbers.tolist())):
            mine = pa.array(np.flatnonzero(numbers == number))
            at = places.column(AT_ROW).take(mine).to_numpy()
            added.append(replaced(self.whole[number], at, touched.take(mine), schema))
            removed.append(self.files[number])
        return added, removed


def as_they_are(rows: pa.Table) -> pa.Table:
    """For a `Source` whose rows need no preparation."""
    return rows


def without_places(rows: pa.Table) -> pa.Table:
    """Rows without `PLACES`."""
    return rows.drop_columns(PLACES)


def changes_by_key(rows: pa.Table, schema: TableSchema, shard: str | None = None) -> pa.Table:
    """Stored changes as `order.for_both_keys` gives them; of a shard, its own."""
    return for_both_keys(of_shard(by_name(rows, change_schema(schema)), shard), schema)


def matches_of(rows: pa.Table) -> KeyMatches:
    """Prepared rows of a source with their places, for `Output.report_of`."""
    return KeyMatches(rows=without_places(rows), at=rows.select(PLACES))


@dataclass(frozen=True, kw_only=True)
class FindRows:
    """Finds rows of a data file, those that may have given keys; sent to tasks.

    Attributes:
        keys: a column for each of the key; None: rows of any key.
        schema: of the columns to return, those of the key among them.
        moved: of a change table with before images: changes that had one of the keys before are found, too; None: by
            the key columns alone.
        keep: applied to the rows found; None: all are kept.
        ties: see `read_rows`.
    """

    table: str
    keys: pa.Table | None
    schema: pa.Schema
    moved: TableSchema | None = None
    keep: Keep | None = None
    ties: bool = True

    @property
    def empty(self) -> pa.Table:
        """No rows, in the columns that are returned."""
        return self.schema.append(pa.field(AT_FILE, pa.int32())).append(pa.field(AT_ROW, pa.int64())).empty_table()

    def __call__(self, storage: Storage, part: tuple[int, DataFile]) -> pa.Table:
        """The chosen rows of a file with `AT_FILE` and `AT_ROW`: number of the file, and of the row in it."""
        return pa.concat_tables([self.empty, *self.found(storage, *part)])

    def found(self, storage: Storage, number: int, file: DataFile) -> Iterator[pa.Table]:
        """The rows, row group by row group."""
        deleted = None if file.vector is None else rows_of(storage, self.table, file.vector)
        with storage.open_input(join(self.table, file.path)) as stream:
            source, start = opened(stream), 0
            for group in range(source.num_row_groups):
                count = source.metadata.row_group(group).num_rows
                hits, read = self._hits(source, group, file)
                if deleted is not None:
                    hits = hits[left_of(start, count, deleted)[hits]]
                if len(hits):
                    rows = self._found(source, group, file, hits, read)
                    rows = rows.append_column(AT_FILE, pa.repeat(pa.scalar(number, pa.int32()), len(hits)))
                    rows = rows.append_column(AT_ROW, pa.array(hits + start, pa.int64()))
                    yield rows if self.keep is None else rows.filter(self.keep(rows))
                start += count

    def file_of(self, part: tuple[int, DataFile]) -> str:
        return join(self.table, part[1].path)

    def _hits(self, source: pq.ParquetFile, group: int, file: DataFile) -> tuple[np.ndarray, pa.Table]:
        """Numbers of rows in the group, and those columns of all its rows that were read to find them."""
        keys = self.keys
        if keys is None:
            return np.arange(source.metadata.row_group(group).num_rows), pa.table({})
        names = tuple(keys.column_names)
        if self.moved is None:
            if names[0] in source.schema_arrow.names and (ends := bounds(source, group, names[0])) is not None:
                keys = keys.filter(_between(keys.column(0), *ends))
            if not keys.num_rows:
                return np.zeros(0, np.int64), keys
            rows = read_groups(source, [group], file, fields_of(self.schema, names))
            return matching(rows, keys, names), rows
        rows = read_groups(source, [group], file, self.schema)
        hits, old = matching(rows, keys, names), pa.table(old_keys(rows, self.moved))
        return np.union1d(hits, matching(old, keys, names)), rows

    def _found(self, source: pq.ParquetFile, group: int, file: DataFile, hits: np.ndarray, read: pa.Table) -> pa.Table:
        taken = read.take(pa.array(hits)) if read.column_names else read
        missing = pa.schema([field for field in self.schema if field.name not in taken.column_names])
        others = read_rows(source, group, hits, file, missing, ties=self.ties) if missing.names else taken
        columns = [(others if name in missing.names else taken).column(name) for name in self.schema.names]
        return pa.table(columns, schema=self.schema)


def search(tables: Tables, work: FindRows, files: Sequence[DataFile], *, reads_little: bool = False) -> KeyMatches:
    """Rows of these files by the key columns, where files of this size are worked on.

    Args:
        reads_little: only a few columns are read.
    """
    size = sum(file.size for file in files)
    place = tables.place_to_search(size) if reads_little else tables.place_for(size)
    rows = pa.concat_tables([work.empty, *place.run(work, list(enumerate(files)))])
    return replace(matches_of(rows), files=tuple(files))


def find(
    tables: Tables, snapshot: TableSnapshot, keys: pa.Table | None, names: tuple[str, ...],
    columns: Sequence[str] | None = None, *, ties: bool = True,
) -> KeyMatches:  # fmt: skip
    """Find rows whose key columns each have a value of `keys`: a superset of the matching rows; None: all rows.

    Few files are read whole, so that they can be written again with few others; where changed rows leave their files
    (`rows_leave`), and of files that tasks work on, only the key columns are, and `columns` of the rows found (None:
    all); `ties`: see `read_rows`.
    """
    files = list(snapshot.files) if keys is None else _files_with(snapshot, keys, names)
    if keys is None or not (rows_leave(tables, snapshot) or tables.is_for_tasks(sum(f.size for f in files))):
        return _find_whole(tables, snapshot, files, keys, names)
    return find_stored(tables, snapshot, keys, names, columns, ties=ties)


def _files_with(snapshot: TableSnapshot, keys: pa.Table, names: tuple[str, ...]) -> list[DataFile]:
    return [snapshot.files[number] for number in files_with(snapshot.files, keys, names)]


def rows_leave(tables: Tables, snapshot: TableSnapshot) -> bool:
    """Whether changed rows leave their files for a new one, so that each batch adds a file."""
    return snapshot.writes_vectors or snapshot.size > tables.bounds.whole


def find_stored(
    tables: Tables, snapshot: TableSnapshot, keys: pa.Table, names: tuple[str, ...],
    columns: Sequence[str] | None = None, *, ties: bool = True,
) -> KeyMatches:  # fmt: skip
    """`find` for rows whose files stay: of each file the key columns are read, and `columns` of the rows found."""
    files = _files_with(snapshot, keys, names)
    schema = snapshot.whole_rows
    if columns is not None:
        schema = fields_of(schema, dict.fromkeys((*names, *columns)))
    work = FindRows(table=snapshot.path, keys=keys.select(names), schema=schema, ties=ties)
    return search(tables, work, files, reads_little=columns is not None)


def _find_whole(
    tables: Tables, snapshot: TableSnapshot, files: Sequence[DataFile], keys: pa.Table | None, names: tuple[str, ...]
) -> KeyMatches:
    parts, numbers, places, whole = [], [], [], {}
    for number, file in enumerate(files):
        rows = tables.read_files(snapshot, [file])
        whole[number] = rows
        at = pa.array(np.arange(rows.num_rows) if keys is None else matching(rows, keys, names))
        parts.append(rows if keys is None else rows.take(at))
        numbers.append(pa.repeat(pa.scalar(number, pa.int32()), len(at)))
        places.append(at)
    rows = pa.concat_tables(parts) if parts else snapshot.whole_rows.empty_table()
    at = pa.table({AT_FILE: pa.chunked_array(numbers, pa.int32()), AT_ROW: pa.chunked_array(places, pa.int64())})
    return KeyMatches(rows=rows, at=at, files=tuple(files), whole=whole)


def matching(rows: pa.Table, keys: pa.Table, names: tuple[str, ...]) -> np.ndarray:
    """Indexes of the rows whose key is one of `keys`, but for nested key columns, which are not compared."""
    if len(names) == 1 and (indexes := _in_order(rows.column(names[0]), keys.column(names[0]))) is not None:
        return indexes
    plain = [name for name in names if not pt.is_nested(keys.column(name).type)]
    hits = _of_values(rows, keys, plain)
    if len(plain) < 2 or not len(hits):
        return hits
    found = rows.select(plain).take(pa.array(hits))
    wanted = keys.select(plain).take(pa.array(_of_values(keys, found, plain)))
    mine, theirs = shared_codes([found.columns, wanted.columns], [found.num_rows, wanted.num_rows])
    return hits[np.isin(mine, theirs)]


def _of_values(rows: pa.Table, keys: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Indexes of the rows that have in each column a value that one of the keys has there."""
    hit: pa.Array | None = None
    for name in names:
        mine = pc.is_in(comparable(rows.column(name)), value_set=comparable(keys.column(name)))
        hit = mine if hit is None else pc.and_(hit, mine)
    return np.arange(rows.num_rows) if hit is None else pc.indices_nonzero(hit).cast(pa.int64()).to_numpy()


def _in_order(values: pa.ChunkedArray, wanted: pa.ChunkedArray) -> np.ndarray | None:
    """Indexes of wanted values among rising whole numbers; null where they are something else.

    A full load usually has its rows in order of the key: then this takes a tenth of the time.
    """
    if not (pt.is_integer(values.type) and pt.is_integer(wanted.type)) or values.null_count:
        return None
    numbers = flat(values).to_numpy()
    if is_falling(numbers):
        return None
    chosen = np.unique(flat(wanted).drop_null().to_numpy())
    first, end = np.searchsorted(numbers, chosen, "left"), np.searchsorted(numbers, chosen, "right")
    counts = end - first
    return np.repeat(end - np.cumsum(counts), counts) + np.arange(counts.sum())


def files_with(files: Sequence[DataFile], keys: pa.Table, names: tuple[str, ...]) -> list[int]:
    """Numbers of the files that may hold one of the keys, by partition values and bounds of the first key column."""
    parted = {name for file in files for name in file.values if name in names}
    values = {name: _wanted_values(files, name, keys.column(name)) for name in parted}
    is_among = _Among.of(keys.column(names[0]))
    return [
        number for number, file in enumerate(files)
        if all(file.values[name] in values[name] for name in parted if name in file.values)
        and is_among(file.low.get(names[0]), file.high.get(names[0]))
    ]  # fmt: skip


def _wanted_values(files: Sequence[DataFile], name: str, wanted: pa.ChunkedArray) -> set[Any]:
    """Partition values that are wanted."""
    there = list({file.values[name] for file in files if name in file.values})
    found = pc.is_in(comparable(pa.array(there, wanted.type)), value_set=comparable(wanted))
    return {value for value, is_wanted in zip(there, found.to_pylist(), strict=True) if is_wanted}


@dataclass(frozen=True)
class _Among:
    """Whether one of many values is between two bounds, which are as in the log, without a look at all of them.

    Attributes:
        values: rising; None: any bounds may have one between them.
    """

    values: pa.Array | None

    @classmethod
    def of(cls, wanted: pa.ChunkedArray) -> _Among:
        if wanted.null_count or not (pt.is_integer(wanted.type) or pt.is_string(wanted.type)):
            return cls(None)
        column = flat(wanted)
        return cls(column.take(pc.sort_indices(column)))

    def __call__(self, low: Any, high: Any) -> bool:
        if self.values is None:
            return True
        kind = int if pt.is_integer(self.values.type) else str
        if not (isinstance(low, kind) and isinstance(high, kind)):
            return True
        at = bisect_left(self.values, low, key=lambda value: value.as_py())
        return at < len(self.values) and self.values[at].as_py() <= high


def _between(wanted: pa.ChunkedArray, low: Any, high: Any) -> pa.ChunkedArray:
    """Mask of the values that may be between bounds, which are as in the log; all where the bounds don't compare."""
    is_number = pt.is_integer(wanted.type)
    values = wanted.cast(pa.int64()) if is_number else wanted
    kind = int if is_number else str
    if not (is_number or pt.is_string(wanted.type)) or not (isinstance(low, kind) and isinstance(high, kind)):
        return pa.chunked_array([pa.repeat(True, len(values))])
    return pc.fill_null(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)), True)


RowRule = Callable[[pa.Table], pa.Table]
RangeRule = Callable[[Storage, Mapping[str, pa.Table]], Any]
"""From the rows of a range, by the name of their table, to a report; sent to tasks."""
FileRule = Callable[[Storage, pa.Table], Any]
"""From rows of one table to a report; sent to tasks."""
Part = tuple[str, int]
"""Name of a source, and number of its file."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows of a table's files for a rule.

    Attributes:
        schema: of the columns to read.
        prepare: what is made of the rows, each by itself, before they go to their range. It gets `AT_FILE` and
            `AT_ROW`, too: number of the file, and of the row in it. Without it rows stay as they are.
        wanted: keys, a column for each of the key; rows that surely have none of them are left out where they are read.
            None: all rows are read.
    """

    table: str
    files: tuple[DataFile, ...]
    schema: pa.Schema
    prepare: RowRule = as_they_are
    wanted: pa.Table | None = None

    @classmethod
    def of(
        cls, snapshot: TableSnapshot, prepare: RowRule = as_they_are, columns: Sequence[str] | None = None, *,
        to_write: bool = False,
    ) -> Source:  # fmt: skip
        """All files of a table at a version, as a source of rows.

        Args:
            columns: to read; None: all.
            to_write: rows are written to the table again, and keep their row ids.
        """
        kinds = snapshot.whole_rows if to_write else snapshot.schema.arrow
        schema = kinds if columns is None else fields_of(kinds, columns)
        return cls(table=snapshot.path, files=snapshot.files, schema=schema, prepare=prepare)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def none(self) -> pa.Table:
        """No rows, as they are prepared."""
        return self._prepared(self.schema.empty_table(), 0, np.zeros(0, np.int64))

    @property
    def numbers(self) -> list[int]:
        """Numbers of the files to read."""
        keys = self.wanted
        return [*range(len(self.files))] if keys is None else files_with(self.files, keys, tuple(keys.column_names))

    def path_of(self, number: int) -> str:
        """Path of a file."""
        return join(self.table, self.files[number].path)

    def together(self, storage: Storage, numbers: Sequence[int]) -> pa.Table:
        """Prepared rows of files."""
        return pa.concat_tables([self.none, *(rows for number in numbers for rows in self.rows(storage, number))])

    def rows(self, storage: Storage, number: int) -> Iterator[pa.Table]:
        """Prepared rows of a file, in parts that fit into memory."""
        if self.wanted is not None:
            work = FindRows(table=self.table, keys=self.wanted, schema=self.schema)
            yield from map(self.prepare, work.found(storage, number, self.files[number]))
            return
        for rows, at in read_parts(storage, self.table, self.files[number], self.schema):
            yield self._prepared(rows, number, at)

    def keys(self, storage: Storage, number: int, keys: pa.Schema) -> Iterator[pa.Table]:
        """Key columns of the rows of a file: as stored where they need no change, since that takes less reading."""
        if any(key.name not in self.schema.names or self.schema.field(key.name).type != key.type for key in keys):
            yield from self.rows(storage, number)
            return
        stored = fields_of(self.schema, keys.names)
        for rows, _ in read_parts(storage, self.table, self.files[number], stored):
            yield rows

    def _prepared(self, rows: pa.Table, number: int, at: np.ndarray) -> pa.Table:
        rows = rows.append_column(AT_FILE, pa.repeat(pa.scalar(number, pa.int32()), len(at)))
        return self.prepare(rows.append_column(AT_ROW, pa.array(at, pa.int64())))


@dataclass(frozen=True, kw_only=True)
class _OnParts:
    sources: Mapping[str, Source]

    def file_of(self, part: Part) -> str:
        return self.sources[part[0]].path_of(part[1])

    def rows_of(self, storage: Storage, part: Part) -> Iterator[pa.Table]:
        return self.sources[part[0]].rows(storage, part[1])


@dataclass(frozen=True, kw_only=True)
class _Sample(_OnParts):
    """Keys of a few rows of a file, see `arrays.sample_of`."""

    keys: pa.Schema

    def __call__(self, storage: Storage, part: Part) -> pa.Table:
        empty = self.keys.append(pa.field(WEIGHT, pa.float64())).empty_table()
        rows = self.sources[part[0]].keys(storage, part[1], self.keys)
        return pa.concat_tables([empty, *(sample_of(one, self.keys) for one in rows)])


@dataclass(frozen=True, kw_only=True)
class _Keys(_OnParts):
    """Keys of the rows of a file, each once."""

    names: tuple[str, ...]

    def __call__(self, storage: Storage, part: Part) -> pa.Table:
        keys = [rows.select(self.names) for rows in self.rows_of(storage, part)]
        return _each_once([self.sources[part[0]].none.select(self.names), *keys])


def _each_once(keys: Sequence[pa.Table]) -> pa.Table:
    together = pa.concat_tables(keys)
    return together.group_by(together.column_names, use_threads=False).aggregate([])


def keys_of(tables: Tables, source: Source, names: tuple[str, ...]) -> pa.Table:
    """Keys of the prepared rows of a source, each once, in the memory of this process."""
    sources = {"": source}
    found = tables.place_for(source.size).run(_Keys(sources=sources, names=names), _parts(sources))
    return _each_once([source.none.select(names), *found])


@dataclass(frozen=True, kw_only=True)
class _Ranges(_OnParts):
    """See `KeyWork`.

    Attributes:
        cuts: see `arrays.cuts_of`.
    """

    cuts: pa.Table
    rule: RangeRule

    def split(self, storage: Storage, part: Part) -> Iterator[tuple[int, str, pa.Table]]:
        for rows in self.rows_of(storage, part):
            if not self.cuts.num_rows:
                yield 0, part[0], rows
                continue
            at = range_of(rows, self.cuts)
            ordered = rows.take(pa.array(np.argsort(at, kind="stable")))
            counts = np.bincount(at)
            ends = np.cumsum(counts)
            for number in np.flatnonzero(counts).tolist():
                yield number, part[0], ordered.slice(ends[number] - counts[number], counts[number])

    def __call__(self, storage: Storage, rows: Mapping[str, Sequence[pa.Table]]) -> Any:
        sources = self.sources.items()
        return self.rule(storage, {name: pa.concat_tables([one.none, *rows.get(name, ())]) for name, one in sources})


@dataclass(frozen=True)
class _File:
    """A rule over the rows of one file, by its number."""

    source: Source
    rule: FileRule

    def __call__(self, storage: Storage, number: int) -> Any:
        return self.rule(storage, self.source.together(storage, [number]))

    def file_of(self, number: int) -> str:
        return self.source.path_of(number)


def by_key(tables: Tables, sources: Mapping[str, Source], keys: pa.Schema, rule: RangeRule) -> list[Any]:
    """Apply a rule to the rows of each range of keys, where files of this size are worked on; the rule's reports.

    Args:
        sources: tables for the rule, by name.
        keys: columns of the prepared rows by which they belong together; empty: all rows do.
        rule: from rows by the name of their table. It is called at least once.
    """
    size = sum(source.size for source in sources.values())
    place = tables.place_for(size)
    cuts = keys.empty_table()
    if keys.names and tables.is_for_tasks(size):
        whole = {name: source for name, source in sources.items() if source.wanted is None}
        samples = place.run(_Sample(sources=whole, keys=keys), _parts(whole))
        ranges = max(place.slots, -(-_gathered(sources) // tables.bounds.key_range))
        cuts = cuts_of(samples, keys, ranges)
    work = _Ranges(sources=sources, cuts=cuts, rule=rule)
    return place.run_by_key(work, _parts(sources), cuts.num_rows + 1) or [work(tables.storage, {})]


def _gathered(sources: Mapping[str, Source]) -> int:
    """Approximate bytes of the rows that are put into ranges: of wanted ones as many as of those that want them."""
    whole = [source.size for source in sources.values() if source.wanted is None]
    return sum(whole) * (1 + len(sources) - len(whole))


def by_row(tables: Tables, source: Source, rule: FileRule) -> list[Any]:
    """Apply a rule that holds for any part of the rows: to all rows together, or in tasks to each file."""
    if tables.is_for_tasks(source.size):
        return by_file(tables, source, rule)
    return [rule(tables.storage, source.together(tables.storage, source.numbers))]


def by_file(tables: Tables, source: Source, rule: FileRule) -> list[Any]:
    """Apply a rule to the rows of each file."""
    return tables.place_for(source.size).run(_File(source, rule), source.numbers)


def _parts(sources: Mapping[str, Source]) -> list[Part]:
    return [(name, number) for name, source in sources.items() for number in source.numbers]
