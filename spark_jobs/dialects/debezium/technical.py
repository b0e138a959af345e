"""The columns that this dialect adds to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.durations import moment_of
from spark_jobs.dialects.debezium.position import Source, commit_time, is_placed, position
from spark_jobs.dialects.debezium.values import Values
from spark_jobs.dialects.roles import match
from spark_jobs.plan.columns import landed_name
from spark_jobs.plan.sequence import EPOCH

OP, SEQUENCE, TIME, CARRIED = "_dbz_op", "_dbz_sequence", "_dbz_ts", "_dbz_carried"
_TIME = pa.timestamp("us", "UTC")

Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class Translated:
    """Rows of a file; `stated`: columns of text with a misfit, to the types that their schema states; `sources`: of the
    events, a row each.
    """

    table: pa.Table
    stated: Mapping[str, pa.DataType]
    sources: Sequence[Source]


def with_technical(
    ops: Sequence[str | None],
    data: Mapping[str, Values],
    sources: Sequence[Source],
    kept: Mapping[str, Sequence[bool]],
) -> Translated:
    """Rows with their operation first and their log position last.

    Args:
        kept: column to a mask of rows that lack its value: an update keeps the stored value, a delete needs none.

    Raises:
        ValueError: a column of the source has the name of one that is added; rows are of several connectors.
    """
    if taken := [name for name in data if name.lower() in (OP, SEQUENCE, TIME, CARRIED)]:
        raise ValueError(f"the source has a column {taken[0]!r}, which is reserved by this dialect")
    added: Columns = {}
    sequence = [position(source) for source in sources]
    if len({len(place) for place in sequence if place is not None}) > 1:
        raise ValueError("its events are of several connectors, whose log positions do not compare")
    if any(map(is_placed, sources)):
        added[SEQUENCE] = pa.array(sequence, pa.string())
    times: list[datetime | None] = [commit_time(source) for source in sources]
    added[TIME] = pa.array(times, _TIME)
    ops = _as_updates(ops, kept)
    names = [*data, *added]
    listed = [_listed(names, kept, at) if op == "U" else None for at, op in enumerate(ops)]
    if any(listed):
        added[CARRIED] = pa.array(listed, pa.string())
    arrays = {name: values.array for name, values in data.items()}
    stated = {name: values.stated for name, values in data.items() if values.stated is not None}
    return Translated(pa.table({OP: pa.array(ops, pa.string()), **arrays, **added}), stated, sources)


def _listed(names: Sequence[str], kept: Mapping[str, Sequence[bool]], row: int) -> str | None:
    """Comma-separated names of the columns that the row carries; null: all."""
    if not any(flags[row] for flags in kept.values()):
        return None
    return ",".join(landed_name(name) for name in names if not (name in kept and kept[name][row]))


def _as_updates(ops: Sequence[str | None], kept: Mapping[str, Sequence[bool]]) -> list[str | None]:
    """An insert that lacks a value (Debezium writes one for an updated key) is not complete: it becomes an update."""
    return ["U" if op == "I" and any(flags[at] for flags in kept.values()) else op for at, op in enumerate(ops)]


def with_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Where no row is named (tombstones, truncates, deletes without a row), add key columns of nulls.

    Without them the file would be refused as another table's.
    """
    given = [name for name in table.column_names if name not in (OP, SEQUENCE, TIME, CARRIED)]
    if given and pc.any(pc.is_in(table.column(OP), value_set=pa.array(["I", "U", "D"]))).as_py():
        return table
    for key in keys:
        if match(table.column_names, key) is None:
            table = table.append_column(key, pa.nulls(table.num_rows))
    return table


def with_epochs(table: pa.Table, began: Sequence[str]) -> pa.Table:
    """Rows with the epoch of their commit time in their position: how often the source's log was reset before it.

    Positions of different epochs don't compare. From the first reset on they are prefixed with the epoch's number,
    which sorts after every position without one.

    Args:
        began: ISO 8601, oldest first.
    """
    if not began or not {SEQUENCE, TIME} <= set(table.column_names):
        return table
    times, positions = table.column(TIME), table.column(SEQUENCE)
    for number, text in enumerate(began, start=1):
        since = pa.scalar(moment_of(text), _TIME)
        named = pc.binary_join_element_wise(f"log{number:04d}", table.column(SEQUENCE), ":")
        positions = pc.if_else(pc.fill_null(pc.greater_equal(times, since), False), named, positions)
    return table.set_column(table.column_names.index(SEQUENCE), SEQUENCE, positions)


def with_other_epochs(rows: pa.Table, began: Sequence[str]) -> pa.Table:
    """Stored changes as `with_epochs` of these moments gives them, whatever moments they were stored with."""
    if SEQUENCE not in rows.column_names:
        return rows
    bare = pc.replace_substring_regex(rows.column(SEQUENCE), EPOCH, "")
    return with_epochs(rows.set_column(rows.column_names.index(SEQUENCE), SEQUENCE, bare), began)
