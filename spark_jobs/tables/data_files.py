"""Data files of a Delta table, and files of its change data feed: read, and written in the folders of partitions."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import GDDL, ROW_ID, ROW_VERSION
from spark_jobs.rules.arrays import DeltaSchema, ascending, by_name, flat, has_nan
from spark_jobs.rules.baseline_rows import completed
from spark_jobs.rules.delta_values import folder, row_changes, split, with_values
from spark_jobs.rules.texts import outside_years
from spark_jobs.tables import delta_log, row_ids
from spark_jobs.tables.deletion_vectors import PLAIN_PATH, rows_of, written
from spark_jobs.tables.delta_log import Action, is_on
from spark_jobs.tables.replayed_log import stated_rows
from spark_jobs.tables.row_ids import RowIdColumns
from spark_jobs.tables.snapshots import DataFile
from spark_jobs.tables.table_definition import WITH_VECTORS, ColumnPath, TableDefinition, indexed_columns

LONGEST = 64
"""Characters of a text's bounds; longer ones are truncated, the upper one rounded up."""
_LAST = "\U0010ffff"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def statistics(rows: pa.Table, indexed: Sequence[ColumnPath]) -> str:
    """JSON for an `add` action.

    Args:
        indexed: columns, and fields of structs; those that the rows lack are ignored.
    """
    return _statistics_of(rows.num_rows, _figures(rows, indexed), indexed)


@dataclass(frozen=True)
class _Figures:
    """Statistics of a column or of a field of a struct.

    Attributes:
        has_bounds: there are values, of a type whose bounds readers expect.
        ends: least and greatest value; None: there are none, or they can't be written.
    """

    nulls: int
    has_bounds: bool
    ends: tuple[Any, Any] | None


def _figures(rows: pa.Table, indexed: Iterable[ColumnPath]) -> dict[ColumnPath, _Figures]:
    """Statistics of the indexed columns that the rows have, by path."""
    found = {}
    for path in indexed:
        values = rows.column(path[0]) if path[0] in rows.schema.names else None
        for part in path[1:]:
            has = values is not None and pt.is_struct(values.type) and values.type.get_field_index(part) >= 0
            values = pc.struct_field(values, part) if has else None
        if values is not None:
            # Readers expect no bounds of the other types.
            has_none = pt.is_nested(values.type) or pt.is_binary(values.type) or pt.is_null(values.type)
            has_bounds = values.null_count < len(values) and not has_none
            found[path] = _Figures(values.null_count, has_bounds, _bounds(values) if has_bounds else None)
    return found


def _statistics_of(count: int, figures: Mapping[ColumnPath, _Figures], indexed: Sequence[ColumnPath]) -> str:
    """See `statistics`; without any bound where one of a column can't be written."""
    nulls: dict[str, Any] = {}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    stated = {path: figures[path] for path in indexed if path in figures}
    for path, one in stated.items():
        ends = () if one.ends is None else zip((lows, highs), one.ends, strict=True)
        for level, value in ((nulls, one.nulls), *ends):
            parent = level
            for part in path[:-1]:
                parent = parent.setdefault(part, {})
            parent[path[-1]] = value
    is_bounded = all(one.ends is not None for one in stated.values() if one.has_bounds)
    bounds = {"minValues": lows, "maxValues": highs} if is_bounded else {}
    return _json({"numRecords": count, **bounds, "nullCount": nulls})


def file_statistics(rows: pa.Table) -> bool | list[str]:
    """Columns of which the data file keeps statistics: not of those with NaN, whose bounds pyarrow would use."""
    # Flattening a struct without a float would cost time for nothing.
    names = [field.name for field in rows.schema if "float" in (kind := str(field.type)) or "double" in kind]
    odd = {name for name in names if has_nan(flat(rows.column(name)))}
    fields = (field for field in rows.schema if field.name not in odd)
    return [leaf for field in fields for leaf in _leaves(field.name, field.type)] if odd else True


def _bounds(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Least and greatest value as JSON takes them; null where they can't be written."""
    if pt.is_dictionary(values.type):
        values = flat(pc.unique(values))
    kind = values.type
    if pt.is_date(kind) or pt.is_timestamp(kind):
        return _times(values)
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if isinstance(low, str):
        return _texts(low, high)
    if pt.is_floating(kind):
        finite = math.isfinite(low) and math.isfinite(high) and not pc.any(pc.is_nan(values)).as_py()
        return (low, high) if finite else None
    return low, high


def _times(values: pa.ChunkedArray) -> tuple[str, str] | None:
    """First and last time as text; None: one is outside the years 1 to 9999, which e.g. Python can't represent."""
    if outside_years(values) is not None:
        return None
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if not isinstance(low, datetime):
        return low.isoformat(), high.isoformat()
    zone = "" if low.tzinfo is None else "Z"
    low, high = (end.replace(tzinfo=None).isoformat(timespec="microseconds") for end in (low, high))
    return f"{low}{zone}", f"{high}{zone}"


def _texts(low: str, high: str) -> tuple[str, str] | None:
    if len(high) > LONGEST:
        if high[LONGEST] == _LAST:
            return None
        high = high[:LONGEST] + _LAST
    return low[:LONGEST], high


def _json(value: Any) -> str:
    """Like `json.dumps`, with decimals as numbers."""
    try:
        return _encode(value)  # at once, where it holds no decimal
    except TypeError:
        return _json_by_part(value)


def _json_by_part(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_encode(key)}:{_json_by_part(part)}" for key, part in value.items()) + "}"
    if isinstance(value, _Number):
        return value.text
    return format(value, "f") if isinstance(value, Decimal) else _encode(value)


@dataclass(frozen=True)
class _Number:
    """A fraction as the log has it: a float would round a decimal, and a bound may not be rounded inwards."""

    text: str


_CHANGE_DATA = "_change_data/"
"""Folder of change data files in Delta's protocol."""
_TOGETHER = 128 * 1024**2
"""Bytes of row groups, not compressed, that are in memory together."""
_SAMPLE, _SMALL, _PARTS, _DIFFERENT, _SHRUNK = 1_000, 20_000, 20, 0.95, 0.75
"""Rows that are looked at, of a larger file than a small one in so many parts of it; the share of different values that
needs no dictionary; the share of its bytes to which a text must shrink to be compressed."""
_TEXTS = frozenset(f"{GDDL}.{name}" for name in ("op", "source_file", "batch_id", "source_type", "region"))


def opened(source: Any) -> pq.ParquetFile:
    """A data file. Texts of few values, as those of `_gddl`, are read as dictionaries in a twentieth of the time."""
    footer = pq.read_metadata(source)
    texts = [*_alike(footer)] if footer.num_rows > _SMALL else [path for path in _paths(footer) if path in _TEXTS]
    return pq.ParquetFile(source, metadata=footer, coerce_int96_timestamp_unit="us", read_dictionary=texts)


def _alike(footer: pq.FileMetaData) -> Iterator[str]:
    """Paths of texts of a larger file that have few values: their indexes take less than four bytes each."""
    group = footer.row_group(0)
    for number in range(group.num_columns):
        chunk = group.column(number)
        is_text = chunk.has_dictionary_page and footer.schema.column(number).logical_type.type == "STRING"
        if is_text and chunk.total_uncompressed_size < 4 * chunk.num_values:
            yield chunk.path_in_schema


def _as_read(wanted: pa.DataType, read: pa.DataType) -> pa.DataType:
    """A type whose texts are dictionaries where they are read as such."""
    if pt.is_struct(wanted) and pt.is_struct(read):
        there = {field.name: field.type for field in read}
        return pa.struct([field.with_type(_as_read(field.type, there.get(field.name, field.type))) for field in wanted])
    return read if pt.is_dictionary(read) and pt.is_string(wanted) else wanted


def _paths(footer: pq.FileMetaData) -> Iterator[str]:
    return (footer.schema.column(number).path for number in range(len(footer.schema)))


def read_file(storage: Storage, table: str, file: DataFile, schema: pa.Schema) -> pa.Table:
    """Rows of a data file in the columns and types of a schema."""
    path = join(table, file.path)
    with storage.open_input(path) if "://" in path else nullcontext(path) as stream:
        source = opened(stream)
        rows = read_groups(source, range(source.num_row_groups), file, schema)
    if file.vector is not None:
        rows = rows.take(pa.array(np.delete(np.arange(rows.num_rows), rows_of(storage, table, file.vector))))
    return rows


def of_file(rows: pa.Table, numbers: np.ndarray | None, file: DataFile, schema: pa.Schema) -> pa.Table:
    """Rows of a data file in the columns and types of a schema; those of partitions have their value in the log.

    So has `_gddl` of rows that were there before the first batch, and the id of rows that have none in the file.

    Args:
        numbers: of the rows in the file; None: no row id is asked for.
    """
    if file.row_ids is not None and {ROW_ID, ROW_VERSION} & set(schema.names):
        rows = _of_file(file.row_ids.read(rows), file, schema)
        return row_ids.completed(rows, file.add or {}, numbers)
    return _of_file(rows, file, schema)


def _of_file(rows: pa.Table, file: DataFile, schema: pa.Schema) -> pa.Table:
    needed = _needed(file, schema)
    stored = pa.schema([field for field in needed if field.name not in file.values])
    rows = by_name(rows, stored)
    rows = with_values(rows, file.values, needed) if file.values else rows
    if file.baseline is None or GDDL not in schema.names:
        return rows
    return completed(rows, file.baseline.baseline).select(schema.names)


def _needed(file: DataFile, schema: pa.Schema) -> pa.Schema:
    """The columns of a schema, and those that `_gddl` is made of."""
    if file.baseline is None or GDDL not in schema.names:
        return schema
    return pa.schema([*schema, *(field for field in file.baseline.columns if field.name not in schema.names)])


def read_groups(source: pq.ParquetFile, groups: Sequence[int], file: DataFile, schema: pa.Schema) -> pa.Table:
    """Rows of some row groups of a file of `opened` in the columns and types of a schema."""
    names, number = _stored_names(source, file, schema), _numbers(source, file, schema)
    parts = [
        of_file(source.read_row_group(group, names, use_threads=False), number(group), file, schema) for group in groups
    ]
    if len(parts) == 1:  # its arrays are not copied when they are needed as one
        return parts[0]
    return pa.concat_tables([schema.empty_table(), *parts])


def _numbers(source: pq.ParquetFile, file: DataFile, schema: pa.Schema) -> Callable[[int], np.ndarray | None]:
    """Numbers in the file of the rows of a row group; None where no row id is asked for."""
    if file.row_ids is None or ROW_ID not in schema.names:
        return lambda _group: None
    starts = _starts(source)
    return lambda group: np.arange(starts[group], starts[group + 1])


_STARTS: WeakKeyDictionary[pq.ParquetFile, np.ndarray] = WeakKeyDictionary()
"""By open file; counting the rows before each of thousands of row groups takes the square of their number."""


def _starts(source: pq.ParquetFile) -> np.ndarray:
    """Number of the first row of each row group, and behind the last one."""
    if source not in _STARTS:
        footer = source.metadata
        counts = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        _STARTS[source] = np.cumsum([0, *counts])
    return _STARTS[source]


def read_rows(
    source: pq.ParquetFile, group: int, at: np.ndarray, file: DataFile, schema: pa.Schema, *, ties: bool = True
) -> pa.Table:
    """Some rows of a row group in the columns and types of a schema.

    Fields of `_gddl` that the footer states to have one value are not read: those of a full load but its positions.

    Args:
        ties: false: the position of rows without a sequence may be null.
    """
    names, numbers = _stored_names(source, file, schema), _numbers(source, file, schema)(group)
    numbers = None if numbers is None else numbers[at]
    if not names:
        return of_file(pa.table({"": pa.nulls(len(at))}), numbers, file, schema)
    if any("_view" in str(field.type) for field in source.schema_arrow):  # Arrow takes no rows of such types
        return read_groups(source, [group], file, schema).take(pa.array(at))
    known = _stated(source, group) if GDDL in names else {}
    if not known:
        rows = source.read_row_group(group, names, use_threads=False).take(pa.array(at))
        return of_file(rows, numbers, file, schema)
    fields = {field.name: field.type for field in source.schema_arrow.field(GDDL).type}
    if not ties and known.get("sequence") is None and ("sequence" in known or "sequence" not in fields):
        known["position"] = None
    columns = [*(name for name in names if name != GDDL), *(f"{GDDL}.{name}" for name in fields if name not in known)]
    rows = source.read_row_group(group, columns, use_threads=False).take(pa.array(at))
    read = flat(rows.column(GDDL)) if GDDL in rows.column_names else None
    parts = {} if read is None else dict(zip((field.name for field in read.type), read.flatten(), strict=True))
    for name, value in known.items():
        kind = fields[name].value_type if pt.is_dictionary(fields[name]) else fields[name]
        parts[name] = pa.repeat(pa.scalar(value, kind), len(at))
    gddl = pa.StructArray.from_arrays(list(parts.values()), names=list(parts))
    others = {name: rows.column(name) for name in rows.column_names if name != GDDL}
    return of_file(pa.table({**others, GDDL: gddl}), numbers, file, schema)


def _stored_names(source: pq.ParquetFile, file: DataFile, schema: pa.Schema) -> list[str]:
    there = {*source.schema_arrow.names} - {*file.values}
    in_files = {} if file.row_ids is None else file.row_ids.in_files
    return [name for name in (in_files.get(name, name) for name in _needed(file, schema).names) if name in there]


def _stated(source: pq.ParquetFile, group: int) -> dict[str, Any]:
    """Fields of `_gddl` that have one value in a row group, or null; none where a row may lack `_gddl`."""
    stated: dict[str, Any] = {}
    footer, is_whole = source.metadata.row_group(group), False
    for number in range(footer.num_columns):
        chunk = footer.column(number)
        column, _, name = chunk.path_in_schema.partition(".")
        known = chunk.statistics if column == GDDL and "." not in name else None
        if known is None or not known.has_null_count:
            continue
        is_whole = is_whole or known.null_count == 0
        if known.null_count == footer.num_rows:
            stated[name] = None
        elif known.null_count == 0 and known.has_min_max and known.min == known.max:
            stated[name] = known.min
    return stated if is_whole else {}


def bounds(source: pq.ParquetFile, group: int, name: str) -> tuple[Any, Any] | None:
    """Least and greatest value of a column in a row group, as its footer states them.

    Null where it does not, or where a field of a struct has the path that is the column's name.
    """
    footer = source.metadata.row_group(group)
    chunks = (footer.column(number) for number in range(footer.num_columns))
    known = [chunk.statistics for chunk in chunks if chunk.path_in_schema == name]
    stated = known[0] if len(known) == 1 else None
    return None if stated is None or not stated.has_min_max else (stated.min, stated.max)


def read_parts(
    storage: Storage, table: str, file: DataFile, schema: pa.Schema, *, as_read: bool = False
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Rows of a data file in the columns and types of a schema, with their numbers in it, as many as fit into memory.

    Rows that a vector deletes are left out.

    Args:
        as_read: texts that are read as dictionaries stay so.
    """
    deleted = np.zeros(0, np.int64) if file.vector is None else rows_of(storage, table, file.vector)
    start = 0
    with storage.open_input(join(table, file.path)) as stream:
        source = opened(stream)
        if as_read:
            schema = pa.schema([*_as_read(pa.struct([*schema]), pa.struct([*source.schema_arrow]))])
        for groups in groups_together(source):
            rows = read_groups(source, groups, file, schema)
            count = sum(source.metadata.row_group(group).num_rows for group in groups)
            kept = np.flatnonzero(left_of(start, count, deleted))
            yield rows if len(kept) == count else rows.take(pa.array(kept)), kept + start
            start += count


def left_of(start: int, count: int, deleted: np.ndarray) -> np.ndarray:
    """Mask of the rows that are left of so many from a number on.

    Args:
        deleted: numbers of the deleted rows of the file, rising.
    """
    first, end = np.searchsorted(deleted, [start, start + count])
    mask = np.ones(count, bool)
    mask[deleted[first:end] - start] = False
    return mask


def groups_together(source: pq.ParquetFile) -> Iterator[list[int]]:
    """Row groups to read together."""
    waiting: list[int] = []
    size = 0
    for group in range(source.num_row_groups):
        more = source.metadata.row_group(group).total_byte_size
        if waiting and size + more > _TOGETHER:
            yield waiting
            waiting, size = [], 0
        waiting.append(group)
        size += more
    if waiting:
        yield waiting


def has_column(storage: Storage, table: str, file: DataFile, name: str) -> bool:
    """Whether a data file has a column, or a field of one, as `_gddl.sequence`."""
    with storage.open_input(join(table, file.path)) as stream:
        paths = _paths(pq.read_metadata(stream))
        return any(path == name or path.startswith(f"{name}.") for path in paths)


def without(indexed: Sequence[ColumnPath], partition_by: Sequence[str]) -> tuple[ColumnPath, ...]:
    """Indexed columns that data files hold: values of partition columns are in the log."""
    return tuple(path for path in indexed if path[0] not in partition_by)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the data files of a table go.

    Attributes:
        partition_by: partition columns after the commit.
        cluster_by: columns that the rows of each file are ordered by.
        indexed: columns whose statistics the commit has.
        packed: whether rising whole numbers are stored as differences, see `_rising`.
        row_ids: columns of row ids; None: there are none, or all rows are new. The schema has them.
    """

    path: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    indexed: tuple[ColumnPath, ...] = ()
    packed: bool = False
    row_ids: RowIdColumns | None = None

    @classmethod
    def of(cls, definition: TableDefinition) -> Target:
        return cls(
            path=definition.path,
            schema=DeltaSchema(definition.columns).arrow,
            partition_by=definition.partition_by,
            cluster_by=definition.cluster_by,
            indexed=indexed_columns(definition.columns, definition.created_with),
            packed=is_on(definition.created_with, WITH_VECTORS),
        )

    def write(self, storage: Storage, rows: pa.Table, now: int) -> list[Action]:
        """Data files of rows, as a commit names them; none without rows.

        Args:
            now: milliseconds since 1970.
        """
        if not rows.num_rows:
            return []
        return FileWriter(storage, self, now).data(by_name(rows, self.schema), data_change=True)

    def can_copy(self, other: Target, rows: pa.Table) -> bool:
        """Whether a data file of this table with these rows is one of another, too.

        The other table may have columns that the rows lack; readers take them for null.
        """
        if self.partition_by or self.cluster_by or other.partition_by or other.cluster_by:
            return False
        mine = {field.name: field.type for field in self.schema}
        more = [field.name for field in other.schema if field.name not in mine]
        is_empty = (name not in rows.column_names or rows.column(name).null_count == rows.num_rows for name in more)
        alike = all(mine.get(field.name, field.type) == field.type for field in other.schema)
        return alike and mine.keys() <= set(other.schema.names) and self.packed == other.packed and all(is_empty)

    def write_for_both(self, storage: Storage, rows: pa.Table, other: Target, now: int) -> tuple[Action, Action]:
        """A data file of this table and its copy for another, see `can_copy`: values are encoded and counted once."""
        rows = by_name(rows, self.schema)
        path, size = FileWriter(storage, self, now).write(rows)
        copy = _new_name()
        _copy(storage, join(self.path, path), join(other.path, copy))
        figures = _figures(rows, dict.fromkeys((*self.indexed, *other.indexed)))

        def added(at: str, target: Target) -> Action:
            text = _statistics_of(rows.num_rows, figures, target.indexed)
            return delta_log.add(at, size, (), now=now, data_change=True, statistics=text)

        return added(path, self), added(copy, other)


@dataclass(frozen=True)
class Remaining:
    """A data file that loses rows.

    Attributes:
        rows: numbers of its deleted rows, from 0, rising; those that were deleted before among them.
        count: its rows, with the deleted ones.
    """

    file: DataFile
    rows: np.ndarray
    count: int

    @property
    def deleted(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class FileWriter:
    """Writes the data files of one commit.

    Attributes:
        now: milliseconds since 1970.
    """

    storage: Storage
    target: Target
    now: int

    def data(self, rows: pa.Table, *, data_change: bool) -> list[Action]:
        """Data files of rows of the table, one for each partition."""
        made: list[Action] = []
        columns = self.target.partition_by
        names = [name for name in self.target.cluster_by if name in rows.column_names]
        ordered = rows.take(ascending(rows, names)) if names else rows
        indexed = without(self.target.indexed, columns)
        for partition, part in split(ordered, columns) if columns else (((), ordered),):
            path, size = self.write(part, folder(partition) if columns else "")
            figures = statistics(part, indexed)
            made.append(delta_log.add(path, size, partition, now=self.now, data_change=data_change, statistics=figures))
        return made

    def feed(
        self, before: pa.Table, after: pa.Table, keys: Sequence[str], *, partly: bool
    ) -> tuple[list[Action], bool]:
        """Files of the change data feed, and whether any row differs.

        If files are only added or only removed, readers derive the changes from them; not where files are `partly`
        removed. `deltalake` 1.6 searches change data files by escaped names, so partitions with special characters
        always get change data files.
        """
        differing = row_changes(_without_row_ids(before), _without_row_ids(after), keys)
        parts = list(split(differing, self.target.partition_by)) if differing.num_rows else []
        escaped = not all(PLAIN_PATH.fullmatch(folder(partition)) for partition, _ in parts)
        made: list[Action] = []
        for partition, part in parts if partly or escaped or (before.num_rows and after.num_rows) else ():
            path, size = self.write(part, _CHANGE_DATA)
            made.append(delta_log.cdc(path, size, partition))
        return made, differing.num_rows > 0

    def removal(self, file: DataFile, *, data_change: bool) -> Action:
        return delta_log.remove(
            file.stored_path, file.size, file.partition, now=self.now, data_change=data_change, vector=file.vector
        )

    def remaining(self, changed: Sequence[tuple[DataFile, np.ndarray]]) -> list[Remaining]:
        """What remains of files from which rows are deleted.

        Args:
            changed: files with the numbers of newly deleted rows.
        """
        return [Remaining(file, self._with_stored(file, rows), self._rows_in(file)) for file, rows in changed]

    def with_vectors(self, remaining: Sequence[Remaining], *, data_change: bool) -> list[Action]:
        """The files, each with a vector of its deleted rows; the bounds of what is left are no longer tight."""
        made: list[Action] = []
        vectors = written(self.storage, self.target.path, [one.rows for one in remaining]) if remaining else []
        for one, vector in zip(remaining, vectors, strict=True):
            add = dict(one.file.add or {})
            stored = json.loads(add.get("stats") or "{}", parse_float=_Number)
            text = _json({"numRecords": one.count, **stored, "tightBounds": False})
            made.append({"add": {**add, "dataChange": data_change, "stats": text, "deletionVector": vector}})
        return made

    def _rows_in(self, file: DataFile) -> int:
        """Rows of a file, deleted ones among them: by its statistics, else by its footer."""
        known = stated_rows(file.add or {})
        if known is not None:
            return known
        with self.storage.open_input(join(self.target.path, file.path)) as stream:
            return int(pq.read_metadata(stream).num_rows)

    def _with_stored(self, file: DataFile, rows: np.ndarray) -> np.ndarray:
        known = np.zeros(0, np.int64) if file.vector is None else rows_of(self.storage, self.target.path, file.vector)
        return np.union1d(known, rows)

    def write(self, rows: pa.Table, below: str = "") -> tuple[str, int]:
        """The new file's path as written in the log, and its size in bytes."""
        rows = rows if self.target.row_ids is None or below == _CHANGE_DATA else self.target.row_ids.written(rows)
        name = f"{below}{_new_name()}"
        target = join(self.target.path, name)
        if "://" in target:
            sink = io.BytesIO()
            save_rows(rows, sink, packed=self.target.packed)
            self.storage.write(target, sink.getvalue())
            return delta_log.log_path(name), sink.tell()
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        save_rows(rows, target, packed=self.target.packed)
        return delta_log.log_path(name), Path(target).stat().st_size


@dataclass(frozen=True, kw_only=True)
class WithoutRows:
    """Writes a data file again without some of its rows; sent to tasks.

    Attributes:
        table: whose files are read; empty: that of `target`.
        only: keep the chosen rows instead of the others. None as the chosen rows of a file means all of them.
        now: milliseconds since 1970.
    """

    target: Target
    now: int
    table: str = ""
    only: bool = False

    def __call__(self, storage: Storage, part: tuple[DataFile, np.ndarray | None]) -> list[Action]:
        """Actions that add the new files: one for each part of the old file that fits into memory."""
        file, chosen = part
        made: list[Action] = []
        as_read = file.baseline is None
        for rows, numbers in read_parts(storage, self._table, file, self.target.schema, as_read=as_read):
            hit = np.ones(len(numbers), bool) if chosen is None else np.isin(numbers, chosen)
            selected = rows.filter(pa.array(hit if self.only else ~hit))
            made += replace(self.target, schema=rows.schema).write(storage, selected.unify_dictionaries(), self.now)
        return made

    @property
    def _table(self) -> str:
        return self.table or self.target.path

    def file_of(self, part: tuple[DataFile, np.ndarray | None]) -> str:
        return join(self._table, part[0].path)


@dataclass(frozen=True)
class Restated:
    """New statistics of a data file of a table; sent to tasks.

    Attributes:
        now: milliseconds since 1970.
    """

    table: str
    schema: pa.Schema
    indexed: Sequence[ColumnPath]
    now: int

    def __call__(self, storage: Storage, file: DataFile) -> Action:
        """The action that adds the file anew."""
        stored = replace(file, baseline=None)  # what readers find in it
        text = statistics(read_file(storage, self.table, stored, self.schema), self.indexed)
        return delta_log.add(file.stored_path, file.size, file.partition, now=self.now, data_change=False,
                             statistics=text)  # fmt: skip

    def file_of(self, file: DataFile) -> str:
        return join(self.table, file.path)


def _without_row_ids(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([name for name in (ROW_ID, ROW_VERSION) if name in rows.column_names])


def _copy(storage: Storage, path: str, target: str) -> None:
    """On local disks under the name that it will have: what a killed process leaves is removed like any other file."""
    if "://" in target:
        storage.copy(path, target)
        return
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _new_name() -> str:
    return f"part-00000-{uuid4()}-c000.snappy.parquet"


def save_rows(rows: pa.Table, target: Any, *, packed: bool) -> None:
    """Write the rows of a data file as Parquet. All data files are written here, and tests kill processes here.

    Args:
        target: path on this machine, or a sink.
        packed: numbers that never fall are stored as differences.
    """
    rows = without_empty_sequence(rows)
    rising = _rising(rows) if packed else []
    dictionaries, compression = _with_dictionary(rows, rising)
    pq.write_table(
        rows,
        target,
        compression=compression,
        coerce_timestamps="us",
        store_schema=False,
        write_statistics=file_statistics(rows),
        use_dictionary=dictionaries,
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED") or None,
    )


def _rising(rows: pa.Table) -> list[str]:
    """Columns of whole numbers that never fall, as keys of a full load usually are.

    Stored as differences, which all readers of deletion vectors know, they take a hundredth of the bytes, and are read
    in an eighth of the time. A column whose name is the path of a field of a struct (`a.b`) is left out: the writer
    knows columns by their paths.
    """
    nested = {leaf for f in rows.schema if pt.is_nested(f.type) for leaf in _leaves(f.name, f.type)}
    whole = [f.name for f in rows.schema if (pt.is_int64(f.type) or pt.is_int32(f.type)) and f.name not in nested]
    filled = [name for name in whole if not rows.column(name).null_count]
    return [name for name in filled if not is_falling(flat(rows.column(name)).to_numpy())]


def is_falling(numbers: np.ndarray) -> bool:
    """Whether a number is less than the one before it."""
    return bool(np.any(numbers[1:] < numbers[:-1]))


def without_empty_sequence(rows: pa.Table) -> pa.Table:
    """Rows without `_gddl.sequence` if none has one, as in a full load; readers take it for null.

    Its type may be known with the first change only: see `whole_tables.retype_sequence`.
    """
    at = rows.schema.get_field_index(GDDL)
    kind = rows.schema.field(at).type if at >= 0 else None
    if kind is None or not pt.is_struct(kind) or kind.get_field_index("sequence") < 0:
        return rows
    values = flat(rows.column(at))
    if values.field("sequence").null_count < len(values):
        return rows
    fields = [field for field in kind if field.name != "sequence"]
    parts = [values.field(field.name) for field in fields]
    mask = values.is_null() if values.null_count else None
    return rows.set_column(at, GDDL, pa.StructArray.from_arrays(parts, fields=fields, mask=mask))


def _with_dictionary(rows: pa.Table, rising: Sequence[str]) -> tuple[bool | list[str], str | dict[str, str]]:
    """Columns of which the file keeps a dictionary, not of `rising` ones; and how it compresses its columns.

    A dictionary of values that are nearly all different is larger than the values themselves, and costs a third of the
    time. A larger file gives such a dictionary up by itself, but when it has been built. Texts without a dictionary
    that Snappy hardly shrinks, as digits at random, take it five times as long as to write them as they are.
    """
    if rows.num_rows < _SAMPLE and not rising:
        return True, "snappy"
    rows = rows.flatten()
    plain, dense = {*rising}, set()
    for name, values in zip(rows.column_names, _sample(rows).columns, strict=True):
        is_known = rows.num_rows < _SAMPLE or pt.is_nested(values.type) or pt.is_dictionary(values.type)
        if is_known or pc.count_distinct(values).as_py() <= _DIFFERENT * (len(values) - values.null_count):
            continue
        plain.add(name)
        if pt.is_string(values.type) and rows.num_rows > _SMALL:
            text = flat(values).buffers()[2]
            if len(pa.compress(text, "snappy", asbytes=True)) > _SHRUNK * text.size:
                dense.add(name)
    leaves = {f.name: _leaves(f.name, f.type) if pt.is_nested(f.type) else [f.name] for f in rows.schema}
    dictionaries = [leaf for name in leaves if name not in plain for leaf in leaves[name]]
    if not dense:
        return dictionaries, "snappy"
    return dictionaries, {leaf: "snappy" for name in leaves if name not in dense for leaf in leaves[name]}


def _sample(rows: pa.Table) -> pa.Table:
    """The first rows of a small file; of a larger one as many from each part, since neighbours are often alike."""
    if rows.num_rows <= _SMALL:
        return rows.slice(0, _SAMPLE)
    starts = range(0, rows.num_rows, -(-rows.num_rows // _PARTS))
    return pa.concat_tables([rows.slice(start, _SAMPLE) for start in starts])


def _leaves(path: str, kind: pa.DataType) -> list[str]:
    """Paths of the columns of a Parquet file that hold a value."""
    if pt.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(f"{path}.{field.name}", field.type)]
    if pt.is_map(kind):
        key, value = f"{path}.key_value.key", f"{path}.key_value.value"
        return [*_leaves(key, kind.key_type), *_leaves(value, kind.item_type)]
    return _leaves(f"{path}.list.element", kind.value_type) if pt.is_list(kind) else [path]
