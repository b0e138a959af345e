"""Figures of a decoded batch: per file for the ledger, and what the dedupe and the merge may skip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.plan.types import parse_type
from spark_jobs.rules.figures import Figures, FileFigures
from spark_jobs.rules.sequence_text import width
from spark_jobs.rules.value_text import json_writer
from spark_jobs.table.table_schema import GDDL, TableSchema


def measure(groups: Iterable[tuple[str, pa.Table, Sequence[int]]], table_schema: TableSchema) -> Figures:
    """
    Args:
        groups: kind, decoded rows, and numbers of the bad ones.
    """
    files: dict[str, FileFigures] = {}
    good, loads, total = [], 0, 0
    widths: dict[str, set[int]] = {}
    for kind, rows, bad in groups:
        total += rows.num_rows
        kept = _without(rows, bad)
        good.append(kept)
        loads += kept.num_rows if kind == "load" else 0
        for path, mine, count in _by_file(rows, kept):
            files[path] = _figures(mine, count, table_schema, change=kind == "change")
        if kind == "change":
            for column in table_schema.text_sequence:
                widths.setdefault(column, set()).update(_widths(kept, column))
    whole = pa.concat_tables(good) if good else None
    identities, keys = _distinct(whole, table_schema) if whole is not None else (0, 0)
    return Figures(
        files=files,
        rows=total,
        quarantined=total - sum(g.num_rows for g in good),
        identities=identities,
        keys=keys,
        low=None,
        high=None,
        widths={column: (min(found), max(found)) for column, found in widths.items() if found},
        loads=loads,
    )


def _without(rows: pa.Table, bad: Sequence[int]) -> pa.Table:
    if not bad:
        return rows
    left = sorted(set(range(rows.num_rows)) - set(bad))
    return rows.take(pa.array(left, pa.int64()))


def _by_file(rows: pa.Table, good: pa.Table) -> Iterable[tuple[str, pa.Table, int]]:
    """Path, good rows and number of all rows of each file."""
    source = pc.struct_field(rows.column(GDDL), "source_file")
    counts = {c["values"]: c["counts"] for c in source.value_counts().to_pylist()}
    if len(counts) == 1:
        yield next(iter(counts)), good, rows.num_rows
        return
    mine = pc.struct_field(good.column(GDDL), "source_file")
    for path, count in counts.items():
        yield path, good.filter(pc.equal(mine, path)), count


def _figures(good: pa.Table, count: int, table_schema: TableSchema, *, change: bool) -> FileFigures:
    low, high, first, last = None, None, None, None
    if change and good.num_rows:
        low, high = _ends(pc.struct_field(good.column(GDDL), "sequence"))
        first, last = _ends(pc.struct_field(good.column(GDDL), "commit_ts"))
    write = json_writer(parse_type(table_schema.sequence_type))
    return FileFigures(
        rows=count,
        quarantined=count - good.num_rows,
        min_sequence=None if low is None else write(low),
        max_sequence=None if high is None else write(high),
        min_commit_ts=None if first is None else _iso(first),
        max_commit_ts=None if last is None else _iso(last),
    )


def _ends(values: pa.ChunkedArray) -> tuple[Any, Any]:
    if pt.is_struct(values.type):
        found = [v for v in values.to_pylist() if v is not None]
        by = [tuple(v.values()) for v in found]
        if not by:
            return None, None
        return found[by.index(min(by))], found[by.index(max(by))]
    ends = pc.min_max(values)
    return ends["min"].as_py(), ends["max"].as_py()


def _iso(value: Any) -> str:
    return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _widths(good: pa.Table, column: str) -> set[int]:
    """Least and greatest length of a sequence column's text; empty without any."""
    values = pc.struct_field(good.column(GDDL), "sequence")
    ends = pc.min_max(width(pc.struct_field(values, column) if pt.is_struct(values.type) else values))
    return {v for v in (ends["min"].as_py(), ends["max"].as_py()) if v is not None}


def _distinct(good: pa.Table, table_schema: TableSchema) -> tuple[int, int]:
    """Distinct identities and distinct keys; zero where it can't be told, which only makes the batch take longer."""
    if not table_schema.keys:
        return 0, 0
    keys = [good.column(k) for k in table_schema.keys]
    sequence = pc.struct_field(good.column(GDDL), "sequence")
    parts = sequence.combine_chunks().flatten() if pt.is_struct(sequence.type) else [sequence]
    if any(pt.is_nested(c.type) or pt.is_floating(c.type) for c in (*keys, *parts)):
        return 0, 0
    return _count([*keys, *parts]), _count(keys)


def _count(columns: Sequence[pa.ChunkedArray]) -> int:
    names = [str(i) for i in range(len(columns))]
    if len(columns) == 1:
        return int(pc.count_distinct(columns[0], mode="all").as_py())
    return int(pa.table(list(columns), names=names).group_by(names, use_threads=False).aggregate([]).num_rows)
