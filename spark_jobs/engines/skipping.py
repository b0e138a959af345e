"""Indexed columns of a table: Delta's property `delta.dataSkippingStatsColumns`.

A reader may take a missing bound for a null bound, and then skips files that have rows:
the pyarrow dataset of `deltalake` does. So the property names only columns whose bounds every file can have.
Excluded are booleans and binaries, for which Spark writes no bounds, floating-point numbers, whose bounds are
undefined with NaN, and decimals of more than six digits after the point: Spark writes bounds below 0.000001 with an
exponent (`0E-10`), which `deltalake` reads as null. A struct is named with all its fields or not at all: Polars refuses
partial statistics.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence

from airflow_gddl.contract.sql_types import DecimalType, ScalarType, SqlType, StructType, quoted
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL

COLUMNS = "delta.dataSkippingStatsColumns"
COUNT = "delta.dataSkippingNumIndexedCols"
MOST = 32
"""Delta's default; more columns would lengthen the log and help few readers."""
_PLAIN_SCALE = 6
"""Java writes no decimal of this scale or a lower one with an exponent."""
ColumnPath = tuple[str, ...]

_EXACT = {"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string"}
_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.,]+)")


def skipping_columns(columns: Sequence[Column], first: Sequence[str] = ()) -> str:
    """The property's value for a new table.

    Args:
        columns: of the table, in order.
        first: columns to index at any position of a wide table; `_gddl` is excluded unless listed here.
    """
    kinds = {c.name: c.type for c in columns}
    others = [c.name for c in columns if c.name != GDDL and c.name not in first]
    chosen: list[ColumnPath] = []
    for name in (*first, *others):
        leaves = list(_leaves((name,), kinds[name]))
        fits = name in first or len(chosen) + len(leaves) <= MOST
        if fits and (name == GDDL or all(_is_exact(kind) for _, kind in leaves)):
            chosen += (path for path, _ in leaves)
    return ",".join(_text(path) for path in dict.fromkeys(chosen))


def indexed_columns(columns: Sequence[Column], properties: Mapping[str, str | None]) -> tuple[ColumnPath, ...]:
    """Paths of the columns that a table's properties index, structs as their fields."""
    leaves = _all_leaves(columns)
    named = properties.get(COLUMNS)
    if named is None:
        count = int(properties.get(COUNT) or MOST)
        return tuple(leaves if count < 0 else leaves[:count])
    wanted = _named(named)
    return tuple(x for x in leaves if not wanted.isdisjoint(_prefixes(x)))


@functools.lru_cache(maxsize=512)
def _named(text: str) -> frozenset[ColumnPath]:
    return frozenset(_folded(path) for path in _paths(text))


def restricted(named: str, columns: Sequence[Column] | None) -> str:
    """A value of the property without unknown columns; null: it needs no change."""
    paths = list(_paths(named))
    if columns is None:
        return ",".join(map(_text, paths))
    there = {path for leaf in _all_leaves(columns) for path in _prefixes(leaf)}
    return ",".join(_text(path) for path in paths if _folded(path) in there)


def readable(named: str, columns: Sequence[Column]) -> str:
    """A value of the property without columns whose bounds some reader can't read; `_gddl` stays whole."""
    bad = {
        column.name.lower()
        for column in columns
        if column.name != GDDL and not all(_is_exact(kind) for _, kind in _leaves((column.name,), column.type))
    }
    return ",".join(_text(path) for path in _paths(named) if path[0].lower() not in bad)


def left_readable(named: str | None, columns: Sequence[Column]) -> str | None:
    """The value of the property to set, so that it names no column whose bounds some reader can't read.

    Args:
        named: its value; null: the table lacks the property.

    Returns:
        None where it names no such column.
    """
    left = None if named is None else readable(named, columns)
    return None if named is None or left == restricted(named, None) else left


def usual(named: str, columns: Sequence[Column]) -> str:
    """Those columns of a value of the property that Delta indexes without the property, too."""
    others = indexed_columns(columns, {})
    return ",".join(_text(path) for path in _paths(named) if path in others)


def _is_exact(kind: SqlType) -> bool:
    if isinstance(kind, DecimalType):
        return kind.scale <= _PLAIN_SCALE
    return isinstance(kind, ScalarType) and kind.name in _EXACT


def _all_leaves(columns: Sequence[Column]) -> list[ColumnPath]:
    return [leaf for column in columns for leaf, _ in _leaves((column.name,), column.type)]


def _leaves(path: ColumnPath, kind: SqlType) -> Iterator[tuple[ColumnPath, SqlType]]:
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _leaves((*path, field.name), field.type)
    else:
        yield path, kind


def _folded(path: ColumnPath) -> ColumnPath:
    """Names are compared without regard to case."""
    return tuple(part.lower() for part in path)


def _prefixes(leaf: ColumnPath) -> list[ColumnPath]:
    """The leaf and all structs that it is in."""
    folded = _folded(leaf)
    return [folded[:n] for n in range(1, len(folded) + 1)]


def _text(path: ColumnPath) -> str:
    return ".".join(map(quoted, path))


def _paths(text: str) -> Iterator[ColumnPath]:
    """Names between commas, their parts between dots; either may be in backticks."""
    path: list[str] = []
    at = 0
    while found := _PART.match(text, at):
        path.append(found[1].replace("``", "`") if found[1] else found[2].strip())
        at = found.end()
        if text[at : at + 1] != ".":
            yield tuple(path)
            path = []
        at += 1
