"""Equality and order of values of any type, as whole numbers, for grouping, matching and ranking rows.

Null equals null alone and is lowest; NaN equals NaN and is greatest; -0.0 equals 0.0; text compares by code point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.rules.arrays import by_name, flat

_MOST = 2**62
_SIGN = np.int64(2**63 - 1)
_NULLS_BY_KEY = int(pa.__version__.partition(".")[0]) >= 25


def comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column with equal values in one form: to pyarrow, -0.0 is not 0.0, and a NaN may differ from another."""
    column = flat(values)
    return _ordered_floats(column) if pt.is_floating(column.type) else column


def in_one_form(values: pa.Array) -> pa.Array:
    """Floating-point numbers with 0.0 for -0.0 and one NaN for all, so that equal keys are the same bits."""
    if not pt.is_floating(values.type):
        return values
    numbers = np.array(pc.fill_null(values.cast(pa.float64()), 0.0)) + 0.0  # -0.0 + 0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers, mask=np.asarray(values.is_null())).cast(values.type)


def codes(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Equal values have equal codes, from 0 on."""
    column = flat(values)
    if pt.is_struct(column.type):
        return row_codes([column.is_valid(), *column.flatten()], len(column))
    if pt.is_nested(column.type):
        column = pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    encoded = pc.dictionary_encode(comparable(column), null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64)


def row_codes(columns: Iterable[pa.Array | pa.ChunkedArray], count: int) -> np.ndarray:
    """Rows that are equal in all columns have equal codes, from 0 to at most `count` - 1."""
    total, size, plain = np.zeros(count, np.int64), 1, True
    for column in columns:
        found = codes(column)
        most = int(found.max(initial=0)) + 1
        if most == 1:
            continue
        if size * most >= _MOST:
            total, size = _dense(total)
        plain = size == 1
        total, size = total * most + found, size * most
    return total if plain else _dense(total)[0]


def _dense(values: np.ndarray) -> tuple[np.ndarray, int]:
    encoded = pc.dictionary_encode(pa.array(values))
    return np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary)


def shared_codes(tables: Sequence[Sequence[pa.Array | pa.ChunkedArray]], counts: Sequence[int]) -> list[np.ndarray]:
    """`row_codes` of rows of several tables with the same columns, comparable with each other."""
    joined = [pa.concat_arrays([flat(part) for part in parts]) for parts in zip(*tables, strict=True)]
    return np.split(row_codes(joined, sum(counts)), np.cumsum(counts)[:-1])


def table_codes(tables: Sequence[pa.Table], names: Sequence[str]) -> list[np.ndarray]:
    """`shared_codes` of the same columns of several tables."""
    return shared_codes([[t.column(name) for name in names] for t in tables], [t.num_rows for t in tables])


def sortable(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """The column as columns that sort as it does, left to right."""
    column = flat(values)
    if pt.is_struct(column.type):
        return [part for field in column.flatten() for part in sortable(field)]
    return [comparable(column)]


def sorted_rows(columns: Sequence[pa.Array]) -> np.ndarray:
    """Row numbers in the order of the columns, left to right, nulls first."""
    names = [str(number) for number in range(len(columns))]
    return np.asarray(ascending(pa.table(list(columns), names=names), names)).astype(np.int64)


def ascending(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Row numbers in the order of the named columns, left to right, nulls first.

    Before pyarrow 25 the place of nulls is one option for all keys; since then it is a part of each key, and the option
    is deprecated.
    """
    if _NULLS_BY_KEY:
        return pc.sort_indices(rows, sort_keys=[(name, "ascending", "at_start") for name in names])
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names], null_placement="at_start")


def ranks(columns: Sequence[pa.Array], count: int) -> np.ndarray:
    """The place of each row in the order of the columns, which are `sortable`, from 1 on; equal rows share it."""
    at = sorted_rows(columns)
    rises = np.ones(count, dtype=bool)
    if count:
        rises[1:] = False
    for column in columns:
        rises[1:] |= _differs_from_last(column.take(pa.array(at)))
    found = np.empty(count, np.int64)
    found[at] = np.cumsum(rises)
    return found


def _differs_from_last(values: pa.Array) -> np.ndarray:
    """Whether each value but the first differs from the one before it; null equals null."""
    later, earlier = values.slice(1), values.slice(0, max(0, len(values) - 1))
    both = pc.fill_null(pc.not_equal(later, earlier), False)
    return np.asarray(pc.or_(both, pc.xor(later.is_null(), earlier.is_null())))


def compare_rows(first: Sequence[pa.Array], second: Sequence[pa.Array]) -> np.ndarray:
    """For each pair of rows -1, 0 or 1, as the first is lower, equal or higher by the columns, left to right."""
    found = np.zeros(len(first[0]), np.int8)
    for a, b in zip(first, second, strict=True):
        higher, lower = (np.asarray(pc.fill_null(part, False)) for part in (pc.greater(a, b), pc.less(a, b)))
        there = (np.asarray(part.is_valid()).astype(np.int8) for part in (a, b))
        found = np.where(found == 0, np.where(higher, 1, np.where(lower, -1, next(there) - next(there))), found)
    return found


def changes(values: np.ndarray) -> np.ndarray:
    """Whether a value differs from the one before it; the first does."""
    differs = np.ones(len(values), dtype=bool)
    differs[1:] = values[1:] != values[:-1]
    return differs


def _ordered_floats(values: pa.Array) -> pa.Array:
    """Whole numbers that compare as the floating point numbers do."""
    bits = np.array(pc.fill_null(in_one_form(values.cast(pa.float64())), 0.0)).view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ _SIGN, bits), mask=np.asarray(values.is_null()))


WEIGHT = "weight"
"""Column of a sample: the number of rows that the row stands for."""
_SAMPLE = 256


def sample_of(rows: pa.Table, keys: pa.Schema) -> pa.Table:
    """Keys of a few of the rows, evenly spaced, each with `WEIGHT`."""
    count = min(_SAMPLE, rows.num_rows)
    at = np.linspace(0, rows.num_rows - 1, count).astype(np.int64)
    found = by_name(rows.take(pa.array(at)), keys)
    return found.append_column(WEIGHT, pa.repeat(rows.num_rows / max(1, count), count))


def cuts_of(samples: Sequence[pa.Table], keys: pa.Schema, ranges: int) -> pa.Table:
    """The first key of each range but the first; fewer ranges where few keys have most rows.

    Args:
        samples: see `sample_of`.
        ranges: number wanted.
    """
    rows = pa.concat_tables(samples) if samples else keys.empty_table()
    if not rows.num_rows:
        return keys.empty_table()
    order = _columns(rows.select(keys.names))
    at = sorted_rows(order)
    passed = np.cumsum(np.asarray(rows.column(WEIGHT))[at])
    ends = passed[-1] * np.arange(1, ranges) / ranges
    chosen = rows.select(keys.names).take(pa.array(at[np.minimum(np.searchsorted(passed, ends), len(at) - 1)]))
    places = ranks(_columns(chosen), chosen.num_rows) if chosen.num_rows else np.zeros(0, np.int64)
    return chosen.take(pa.array(np.unique(places, return_index=True)[1]))


def range_of(rows: pa.Table, cuts: pa.Table) -> np.ndarray:
    """The number of each row's range, from 0 on.

    Args:
        rows: with the columns of `cuts`, and others.
        cuts: see `cuts_of`.
    """
    if not cuts.num_rows:
        return np.zeros(rows.num_rows, np.int64)
    joined = pa.concat_tables([cuts, by_name(rows, cuts.schema)])
    place = ranks(_columns(joined), joined.num_rows)
    return np.searchsorted(place[: cuts.num_rows], place[cuts.num_rows :], side="right")


def _columns(rows: pa.Table) -> list[pa.Array]:
    return [part for column in rows.columns for part in sortable(column)]
