"""The figures of a batch: what was read, decoded and appended, file by file, and how they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.codes import BATCH_UNBALANCED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import Warnings
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.planned_batch import Truncate
from spark_jobs.plan.sequence import PLACE, Forms, Widths, longest_transaction, sort_key
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rooms.dialects.protocol import LOADED
from spark_jobs.rules.arrays import flat, gddl_field, sortable, sorted_rows
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.evaluate import Tally, added
from spark_jobs.rules.positions import ROW_MASK
from spark_jobs.rules.texts import forms, json_writer, utc_text, width


@dataclass(frozen=True, kw_only=True)
class Appended:
    """What reached the change table."""

    written: int
    redelivered: int
    warnings: Warnings = ()


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


_OF_ROWS = ("reduced", "rescued", "incomplete", "partial", "empty_texts", "filtered")
"""Numbers of rows or values that a decoded group has as its figures have them."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a whole batch, or of some of its rows.

    Attributes:
        files: by ledger path; a file without rows is absent.
        identities: distinct (key, sequence) among good rows of the batch; `keys`: distinct keys. 0: not counted.
        key_range: of the first key column among good rows of a part if whole numbers; None: there is none.
        widths: of the changes' sequences, see `plan.sequence`.
        loads: good rows of a full load.
        reduced: times that were cut or rounded to microseconds.
        rescued: good rows with values in `_rescued_data`.
        incomplete: good rows that moved, or are inserts, and may lack values.
        partial: good updates of CSV that lack columns.
        empty_texts: see `RawGroup.empty_texts`.
        erased: rows of erased keys, which are in none of the others.
        filtered: the same of rows outside the row filter.
        first_bad: of the bad rows, the one of the least path and position.
        restarts: by ledger path, where sequences are positions in a log.
        forms: sequence column to the forms of its texts, see `plan.sequence`.
        tallies: by expectation, rows that were checked and how many of them failed.
        truncates: that the files have; they are in none of the others.
    """

    files: Mapping[str, FileFigures] = field(default_factory=dict)
    identities: int = 0
    keys: int = 0
    key_range: tuple[int, int] | None = None
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

    @cached_property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @cached_property
    def quarantined(self) -> int:
        return sum(file.quarantined for file in self.files.values())

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

    def appended(self, new: int, written: int, warnings: Warnings = (), *, batch: int) -> Appended:
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
        rows_by_footer: rows that the files' footers promise, less those that were left out; None: a file has no
            footer.
    """

    schema: BatchSchema
    figures: Figures
    change_schemas: frozenset[int]
    schema_of: Mapping[str, int] = field(default_factory=dict)
    content_of: Mapping[str, str] = field(default_factory=dict)
    rows_by_footer: int | None = None


def measure(group: DecodedGroup, table_schema: TableSchema, *, erased: int = 0) -> Figures:
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
    return Figures(
        files=files,
        key_range=_range(good, table_schema),
        widths=widths,
        loads=good.num_rows if kind == "load" else 0,
        erased=erased,
        first_bad=_first_bad(group),
        forms=group.forms or (_stored_forms(good, table_schema) if change else {}),
        restarts={path: one for path, one in restarts.items() if one is not None},
        **{name: getattr(group, name) for name in (*_OF_ROWS, "tallies", "truncates")},
    )


def _first_bad(group: DecodedGroup) -> BadRow | None:
    if not group.bad:
        return None
    gddl = flat(group.rows.column(GDDL)).take(pa.array(group.bad, pa.int64()))
    places = zip(gddl.field("source_file").to_pylist(), gddl.field("position").to_pylist(), group.problems, strict=True)
    return min(BadRow(file, place & ROW_MASK, p.code, p.column or "") for file, place, p in places)


def combined(parts: Iterable[Figures], table_schema: TableSchema) -> Figures:
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
    return Figures(
        files=files,
        widths=widths,
        first_bad=min((p.first_bad for p in parts if p.first_bad is not None), default=None),
        restarts={path: restart for p in reversed(parts) for path, restart in p.restarts.items()},
        forms={column: _least_of_each(parts, column) for column in table_schema.text_sequence},
        tallies=added([p.tallies for p in parts]) if any(p.tallies for p in parts) else {},
        truncates=tuple(one for p in parts for one in p.truncates),
        **{name: sum(getattr(p, name) for p in parts) for name in ("loads", "erased", *_OF_ROWS)},
    )


def _least_of_each(parts: Sequence[Figures], column: str) -> Forms:
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
    if change:
        low, high = _ends(gddl_field(good, "sequence"), json_writer(parse_type(table_schema.sequence_type)))
        first, last = _ends(gddl_field(good, "commit_ts"), utc_text)
    return FileFigures(rows=count, quarantined=count - good.num_rows, min_sequence=low, max_sequence=high,
                       min_commit_ts=first, max_commit_ts=last)  # fmt: skip


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


def _ends(values: pa.ChunkedArray, write: Callable[[Any], str]) -> tuple[str, str] | tuple[None, None]:
    """Least and greatest value as text; None: there is none."""
    values = values.drop_null()
    if not len(values):
        return None, None
    if pt.is_struct(values.type) or pt.is_floating(values.type):  # `min_max` leaves NaN out, which is greatest
        rows = sorted_rows(sortable(values))
        return write(values[rows[0]].as_py()), write(values[rows[-1]].as_py())
    ends = pc.min_max(values)
    return write(ends["min"].as_py()), write(ends["max"].as_py())


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


def _range(good: pa.Table, table_schema: TableSchema) -> tuple[int, int] | None:
    """See `Figures.key_range`."""
    if not table_schema.keys or not good.num_rows:
        return None
    first = good.column(table_schema.keys[0])
    if not pt.is_integer(first.type) and not (pt.is_decimal(first.type) and first.type.scale == 0):
        return None
    ends = pc.min_max(first)
    return None if ends["min"].as_py() is None else (int(ends["min"].as_py()), int(ends["max"].as_py()))
