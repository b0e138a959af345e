"""The figures of a batch: what was read, decoded and appended, file by file, and how they are measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.codes import BATCH_UNBALANCED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.sql_types import DecimalType, SqlType, parse_type
from spark_jobs.plan.planned_batch import Truncate
from spark_jobs.plan.sequence import PLACE, Forms, Widths, longest_transaction, sort_key
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rooms.dialects.protocol import LOADED
from spark_jobs.rules.arrays import flat, gddl_field, sortable, sorted_rows
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.evaluate import Tally, added
from spark_jobs.rules.positions import ROW_MASK
from spark_jobs.rules.texts import forms, json_writer, read_json, utc_text, width


@dataclass(frozen=True, kw_only=True)
class Appended:
    """What reached the change table."""

    written: int
    redelivered: int
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileFigures:
    """Rows and ranges of one file; sequences as JSON text, times as ISO 8601; null when it has no good change."""

    rows: int
    quarantined: int
    min_sequence: str | None
    max_sequence: str | None
    min_commit_ts: str | None
    max_commit_ts: str | None


@dataclass(frozen=True, kw_only=True)
class LogRestart:
    """Changes of a file that precede others before them in the source's log, and were not committed before these.

    Attributes:
        place: where in the log the first of them is; `known`: the last place before it.
        since, until: commit time of the first of them, and the latest.
        newest: latest commit time before, ISO 8601 as the others.
    """

    place: str
    known: str
    since: str
    until: str
    newest: str


@dataclass(frozen=True, order=True)
class BadRow:
    """A bad row: ledger path of its file, row in it from 0, what is wrong with it, and where (empty: in no column)."""

    file: str
    row: int
    code: str
    column: str = ""

    def __str__(self) -> str:
        where = f" in column {self.column!r}" if self.column else ""
        return f"{self.code}{where}, position {self.row} of {self.file}"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a whole batch.

    Attributes:
        files: by ledger path; a file without rows is absent.
        identities: distinct (key, sequence) among good rows, by 64-bit hash.
        keys: distinct keys among good rows, by 64-bit hash.
        low, high: range of the first key column; null without keys, and for types whose values don't survive the way
            through Python unchanged (times, floating point).
        widths: of the changes' sequences, see `plan.sequence`.
        forms: sequence column to the forms of its texts, see `plan.sequence`.
        restarts: by ledger path, where sequences are positions in a log.
        reduced: times that were cut or rounded to microseconds.
        rescued: good rows with values in `_rescued_data`.
        incomplete: good rows that moved, or are inserts, and may lack values.
        partial: good updates of CSV that lack columns.
        empty_texts: see `RawGroup.empty_texts`.
        first_bad: of the bad rows, the one of the least path and position.
        tallies: by expectation, rows that were checked and how many of them failed.
        truncates: that the files have; they are in none of the others.
    """

    files: Mapping[str, FileFigures]
    rows: int
    quarantined: int
    identities: int
    keys: int
    low: object
    high: object
    widths: Widths
    loads: int
    reduced: int = 0
    rescued: int = 0
    incomplete: int = 0
    partial: int = 0
    empty_texts: int = 0
    first_bad: BadRow | None = None
    restarts: Mapping[str, LogRestart] = field(default_factory=dict)
    forms: Mapping[str, Forms] = field(default_factory=dict)
    tallies: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    truncates: tuple[Truncate, ...] = ()

    @property
    def good(self) -> int:
        return self.rows - self.quarantined

    @property
    def sequence_span(self) -> tuple[Any, Any] | None:
        """Lowest and highest sequence by its first column, read by `sort_key`; None without a good change."""
        lows = [sort_key(f.min_sequence) for f in self.files.values() if f.min_sequence is not None]
        highs = [sort_key(f.max_sequence) for f in self.files.values() if f.max_sequence is not None]
        return (min(lows)[0][1], max(highs)[0][1]) if lows else None

    def may_repeat(self, schema: TableSchema) -> bool:
        """Whether rows of the batch may be deliveries of one change, so that they have to be compared."""
        return (self.identities if schema.keys else self.loads) < self.good

    def appended(self, new: int, written: int, warnings: tuple[RunWarning, ...] = (), *, batch: int) -> Appended:
        """What reached the change table.

        Args:
            new: good rows that did not arrive before; `written`: rows of the commit.

        Raises:
            FatalError: `BATCH_UNBALANCED`.
        """
        redelivered = self.good - new
        if self.rows != written + redelivered + self.quarantined:
            raise FatalError(
                BATCH_UNBALANCED,
                f"{self.rows} rows read, but {written} appended + {redelivered} re-delivered + "
                f"{self.quarantined} quarantined",
                where=f"batch {batch}",
                remedy="report this with the job's log; nothing was merged",
            )
        return Appended(written=written, redelivered=redelivered, warnings=warnings)


@dataclass(frozen=True, kw_only=True)
class DecodedBatch:
    """What is known of a decoded batch before it is merged.

    Attributes:
        change_schemas: schema ids of the groups with changes.
        schema_of: ledger path to schema id.
        content_of: ledger path to fingerprint, of files whose plan has one of their tag.
        rows_by_footer: rows that the files' footers promise, less `erased` and `filtered`; None: a file has no
            footer.
        erased: rows of erased keys, which were excluded.
        filtered: rows outside the row filter, which were excluded.
    """

    schema: BatchSchema
    figures: Figures
    change_schemas: frozenset[int]
    schema_of: Mapping[str, int] = field(default_factory=dict)
    content_of: Mapping[str, str] = field(default_factory=dict)
    rows_by_footer: int | None = None
    erased: int = 0
    filtered: int = 0


_WITH_RANGE = ("tinyint", "smallint", "int", "bigint", "date", "string")


@dataclass(frozen=True, kw_only=True)
class PartFigures:
    """Figures of some rows of a batch.

    Attributes:
        files: by ledger path.
        low, high: range of the first key column among good rows, as JSON text; None: it has no values.
        widths: of the changes' sequences, see `plan.sequence`.
        forms, restarts: as in `Figures`.
        loads: good rows of a full load.
        reduced: times that were cut or rounded to microseconds.
        rescued: good rows with values in `_rescued_data`.
        incomplete: good rows that moved, or are inserts, and may lack values.
        partial: good updates of CSV that lack columns.
        empty_texts: see `RawGroup.empty_texts`.
        erased: rows of erased keys, which are in none of the others.
        filtered: the same of rows outside the row filter.
        first_bad, tallies, truncates: as in `Figures`.
    """

    files: Mapping[str, FileFigures] = field(default_factory=dict)
    low: str | None = None
    high: str | None = None
    widths: Widths = field(default_factory=dict)
    loads: int = 0
    reduced: int = 0
    rescued: int = 0
    incomplete: int = 0
    partial: int = 0
    empty_texts: int = 0
    erased: int = 0
    filtered: int = 0
    first_bad: BadRow | None = None
    restarts: Mapping[str, LogRestart] = field(default_factory=dict)
    forms: Mapping[str, Forms] = field(default_factory=dict)
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    truncates: tuple[Truncate, ...] = ()


def measure(group: DecodedGroup, table_schema: TableSchema, *, erased: int = 0) -> PartFigures:
    """Measure a decoded group of files.

    Args:
        group: its rows need no columns but the first of the key and `_gddl`.
        erased: rows that were left out before.
    """
    rows, good, kind = group.rows, group.good, group.kind
    change = kind == "change"
    by_file = tuple(_by_file(rows, good))
    files = {path: _figures(mine, count, table_schema, change=change) for path, mine, count in by_file}
    positions = change and table_schema.log_positions
    restarts = {path: _restart(mine) for path, mine, _ in by_file} if positions else {}
    lengths = {column: _lengths(good, column) for column in (table_schema.text_sequence if change else ())}
    widths = {column: span for column, span in lengths.items() if span is not None}
    low, high = _range(good, table_schema)
    loads = good.num_rows if kind == "load" else 0
    return PartFigures(files=files, low=low, high=high, widths=widths, loads=loads,
                       reduced=group.reduced, rescued=group.rescued, incomplete=group.incomplete, partial=group.partial,
                       empty_texts=group.empty_texts, erased=erased, filtered=group.filtered,
                       first_bad=_first_bad(group), tallies=group.tallies,
                       truncates=group.truncates,
                       forms=group.forms or (_stored_forms(good, table_schema) if change else {}),
                       restarts={path: one for path, one in restarts.items() if one is not None})  # fmt: skip


def _first_bad(group: DecodedGroup) -> BadRow | None:
    if not group.bad:
        return None
    gddl = flat(group.rows.column(GDDL)).take(pa.array(group.bad, pa.int64()))
    places = zip(gddl.field("source_file").to_pylist(), gddl.field("position").to_pylist(), group.problems, strict=True)
    return min(BadRow(file, place & ROW_MASK, p.code, p.column or "") for file, place, p in places)


def combined(parts: Iterable[PartFigures], table_schema: TableSchema) -> PartFigures:
    """Figures of parts as those of the whole."""
    parts = list(parts)
    files: dict[str, FileFigures] = {}
    widths: dict[str, tuple[int, int]] = {}
    for part in parts:
        for column, (least, most) in part.widths.items():
            known_least, known_most = widths.get(column, (least, most))
            widths[column] = (min(known_least, least), max(known_most, most))
        for path, mine in part.files.items():
            known = files.get(path)
            files[path] = mine if known is None else _both(known, mine)
    read = _value_of(_first_key_type(table_schema))
    return PartFigures(
        files=files,
        low=min((p.low for p in parts if p.low is not None), key=read, default=None),
        high=max((p.high for p in parts if p.high is not None), key=read, default=None),
        widths=widths,
        loads=sum(p.loads for p in parts),
        reduced=sum(p.reduced for p in parts),
        rescued=sum(p.rescued for p in parts),
        incomplete=sum(p.incomplete for p in parts),
        partial=sum(p.partial for p in parts),
        empty_texts=sum(p.empty_texts for p in parts),
        erased=sum(p.erased for p in parts),
        filtered=sum(p.filtered for p in parts),
        first_bad=min((p.first_bad for p in parts if p.first_bad is not None), default=None),
        restarts={path: restart for p in reversed(parts) for path, restart in p.restarts.items()},
        forms={column: _least_of_each(parts, column) for column in table_schema.text_sequence},
        tallies=added([p.tallies for p in parts]),
        truncates=tuple(one for p in parts for one in p.truncates),
    )


def figures_of(whole: PartFigures, table_schema: TableSchema, distinct_ones: tuple[int, int]) -> Figures:
    """Figures of a batch, from those of all its parts together.

    Args:
        distinct_ones: see `distinct`.
    """
    read = _value_of(_first_key_type(table_schema))
    return Figures(
        files=whole.files,
        rows=sum(f.rows for f in whole.files.values()),
        quarantined=sum(f.quarantined for f in whole.files.values()),
        identities=distinct_ones[0],
        keys=distinct_ones[1],
        low=None if whole.low is None else read(whole.low),
        high=None if whole.high is None else read(whole.high),
        widths=whole.widths,
        loads=whole.loads,
        reduced=whole.reduced,
        rescued=whole.rescued,
        incomplete=whole.incomplete,
        partial=whole.partial,
        empty_texts=whole.empty_texts,
        first_bad=whole.first_bad,
        restarts=whole.restarts,
        forms=whole.forms,
        tallies=whole.tallies,
        truncates=whole.truncates,
    )


def _least_of_each(parts: Sequence[PartFigures], column: str) -> Forms:
    least: dict[str, tuple[str, str]] = {}
    for form, example in (pair for part in parts for pair in part.forms.get(column, {}).items()):
        least[form] = min(least.get(form, example), example)
    return dict(sorted(least.items()))


def distinct(good: pa.Table, table_schema: TableSchema) -> tuple[int, int]:
    """Distinct identities and keys of good rows, whole by key; zero where unknown, which only takes longer.

    Of changes that a load has read none is new, so that all are compared.
    """
    if not table_schema.keys or pc.any(pc.equal(gddl_field(good, "op"), LOADED)).as_py():
        return 0, 0
    keys = [good.column(k) for k in table_schema.keys]
    sequence = gddl_field(good, "sequence")
    parts = sequence.combine_chunks().flatten() if pt.is_struct(sequence.type) else [sequence]
    if any(pt.is_nested(c.type) or pt.is_floating(c.type) for c in (*keys, *parts)):
        return 0, 0
    count = _count(keys)
    # What identifies a change more than its key matters only where a key comes again.
    is_known = count == good.num_rows or all(part.null_count == len(part) for part in parts)
    return count if is_known else _count([*keys, *parts]), count


def _count(columns: Sequence[pa.ChunkedArray]) -> int:
    names = [str(i) for i in range(len(columns))]
    if len(columns) == 1:
        return len(columns[0]) if _rises(columns[0]) else int(pc.count_distinct(columns[0], mode="all").as_py())
    return int(pa.table(list(columns), names=names).group_by(names, use_threads=False).aggregate([]).num_rows)


def _rises(column: pa.ChunkedArray) -> bool:
    """Whether these are whole numbers, each greater than the one before it, as keys of a full load usually are."""
    if not (pt.is_int64(column.type) or pt.is_int32(column.type)) or column.null_count:
        return False
    numbers = column.to_numpy()
    return bool((numbers[1:] > numbers[:-1]).all())


def _by_file(rows: pa.Table, good: pa.Table) -> Iterable[tuple[str, pa.Table, int]]:
    """Path, good rows and number of all rows of each file."""
    source = gddl_field(rows, "source_file")
    counts = {c["values"]: c["counts"] for c in source.value_counts().to_pylist()}
    if len(counts) == 1:
        yield next(iter(counts)), good, rows.num_rows
        return
    mine = gddl_field(good, "source_file")
    for path, count in counts.items():
        yield path, good.filter(pc.equal(mine, path)), count


def _figures(good: pa.Table, count: int, table_schema: TableSchema, *, change: bool) -> FileFigures:
    low, high, first, last = None, None, None, None
    if change and good.num_rows:
        low, high = _ends(gddl_field(good, "sequence"))
        first, last = _ends(gddl_field(good, "commit_ts"))
    write = json_writer(parse_type(table_schema.sequence_type))
    return FileFigures(
        rows=count,
        quarantined=count - good.num_rows,
        min_sequence=None if low is None else write(low),
        max_sequence=None if high is None else write(high),
        min_commit_ts=None if first is None else utc_text(first),
        max_commit_ts=None if last is None else utc_text(last),
    )


def _restart(good: pa.Table) -> LogRestart | None:
    """Where a log may have been reset inside a file, whose rows are in the order in which they were captured.

    Changes that are captured again precede others in the log, too, but were not committed later, or at the same time.
    """
    gddl = flat(good.column(GDDL))
    sequence, times = gddl.field("sequence"), gddl.field("commit_ts")
    sequence = sequence.field(0) if pt.is_struct(sequence.type) else sequence
    there = pc.and_(sequence.is_valid(), times.is_valid())
    places = pc.replace_substring_regex(sequence.filter(there), PLACE, r"\1").dictionary_encode()
    if len(places.dictionary) < 2:
        return None
    order = np.argsort(np.argsort(np.array(places.dictionary.to_pylist(), dtype=object)))
    place, time = order[np.asarray(places.indices)], np.asarray(times.filter(there).cast(pa.int64()))
    highest = np.maximum.accumulate(place)
    newest = np.maximum.accumulate(np.where(place == highest, time, np.iinfo(np.int64).min))
    longest = np.array(
        [longest_transaction(text) // timedelta(microseconds=1) for text in places.dictionary.to_pylist()]
    )
    after = np.flatnonzero((place < highest) & (time >= newest + longest[np.asarray(places.indices)]))
    if not len(after):
        return None
    texts, first = dict(zip(order.tolist(), places.dictionary.to_pylist(), strict=True)), int(after[0])
    since, until, before = (
        utc_text(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(value)))
        for value in (time[first], time[after].max(), newest[first])
    )
    return LogRestart(place=texts[place[first]], known=texts[highest[first]], since=since, until=until, newest=before)


def _stored_forms(good: pa.Table, table_schema: TableSchema) -> dict[str, Forms]:
    """Forms of text sequences in a batch that resumes from the change table, whose texts are in their normal form."""
    by_column: dict[str, Forms] = {}
    for column in table_schema.text_sequence:
        if column in table_schema.ordered_text:
            texts = flat(_part_of(good, column))
            named = pc.unique(forms(texts)).drop_null().to_pylist()
            by_column[column] = dict.fromkeys(named, ("", ""))
    return by_column


def _part_of(good: pa.Table, column: str) -> pa.ChunkedArray:
    """A column of the sequences."""
    values = gddl_field(good, "sequence")
    return pc.struct_field(values, column) if pt.is_struct(values.type) else values


def _ends(values: pa.ChunkedArray) -> tuple[Any, Any]:
    if pt.is_struct(values.type):
        return _sorted_ends(flat(values), flat(values).flatten())
    if pt.is_floating(values.type):  # `min_max` leaves NaN out, which is greatest
        return _sorted_ends(flat(values), [flat(values)])
    ends = pc.min_max(values)
    return ends["min"].as_py(), ends["max"].as_py()


def _sorted_ends(values: pa.Array, columns: Sequence[pa.Array]) -> tuple[Any, Any]:
    """First and last of the values that are not null, sorted by these columns from left to right."""
    there = np.flatnonzero(np.asarray(values.is_valid()))
    if not len(there):
        return None, None
    rows = sorted_rows([part.take(there) for column in columns for part in sortable(column)])
    return values[there[rows[0]]].as_py(), values[there[rows[-1]]].as_py()


def _lengths(good: pa.Table, column: str) -> tuple[int, int] | None:
    """Least and greatest length of a sequence column's text; null without any."""
    ends = pc.min_max(width(_part_of(good, column)))
    return None if ends["min"].as_py() is None else (ends["min"].as_py(), ends["max"].as_py())


def _both(first: FileFigures, second: FileFigures) -> FileFigures:
    return FileFigures(
        rows=first.rows + second.rows,
        quarantined=first.quarantined + second.quarantined,
        min_sequence=_chosen(min, first.min_sequence, second.min_sequence, sort_key),
        max_sequence=_chosen(max, first.max_sequence, second.max_sequence, sort_key),
        min_commit_ts=_chosen(min, first.min_commit_ts, second.min_commit_ts, str),
        max_commit_ts=_chosen(max, first.max_commit_ts, second.max_commit_ts, str),
    )


def _chosen(
    choose: Callable[..., str | None], first: str | None, second: str | None, by: Callable[[str], Any]
) -> str | None:
    return choose((v for v in (first, second) if v is not None), key=by, default=None)


def _first_key_type(table_schema: TableSchema) -> SqlType | None:
    """Type of the first key column; None: no keys, or Python would change its values (times, floating point)."""
    if not table_schema.keys:
        return None
    kind = next(c.type for c in table_schema.data if c.name == table_schema.keys[0])
    return kind if str(kind) in _WITH_RANGE or isinstance(kind, DecimalType) else None


def _range(good: pa.Table, table_schema: TableSchema) -> tuple[str | None, str | None]:
    kind = _first_key_type(table_schema)
    if kind is None:
        return None, None
    low, high = _ends(good.column(table_schema.keys[0]))
    write = json_writer(kind)
    return (None, None) if low is None else (write(low), write(high))


def _value_of(kind: SqlType | None) -> Callable[[str], Any]:
    return lambda text: None if kind is None else read_json(json.loads(text, parse_float=Decimal), kind)
