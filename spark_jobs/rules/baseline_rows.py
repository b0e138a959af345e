"""Rows that a replica had before its first batch, with the `_gddl` that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.sql_types import SqlType
from spark_jobs.plan.baseline import Baseline
from spark_jobs.plan.sequence import greater
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.arrays import arrow_type, flat, is_text, recast, sortable, sorted_rows, with_values
from spark_jobs.rules.texts import forms, json_writer, normal_form


def completed(rows: pa.Table, baseline: Baseline) -> pa.Table:
    """Stored rows, each with `_gddl`.

    Args:
        rows: `_gddl`, and `Baseline.sequence`, besides others.
    """
    gddl = flat(rows.column(GDDL))
    if not gddl.null_count:
        return rows
    made = gddl_of(rows, baseline, gddl.type)
    whole = made if gddl.null_count == len(gddl) else pc.if_else(gddl.is_valid(), gddl, made)
    return with_values(rows, {GDDL: whole})


def gddl_of(
    rows: pa.Table, baseline: Baseline, kind: pa.StructType, positions: pa.Array | None = None
) -> pa.StructArray:
    """`_gddl` of rows of the baseline in a type that the tables have.

    Args:
        positions: see `positions`; None: none, since only rows of one batch are told apart by them.
    """
    count = rows.num_rows
    sequence = sequence_of(rows, baseline, kind.field("sequence").type)
    applied = pa.scalar(datetime.fromisoformat(baseline.applied_at), pa.timestamp("us", "UTC"))
    values = {
        "sequence": sequence,
        "op": pc.if_else(sequence.is_valid(), pa.scalar("I"), pa.scalar("R")),
        "source_file": pa.repeat(baseline.source_file, count),
        "position": positions,
        "batch_id": pa.repeat(baseline.batch_id, count),
        "generation": pa.repeat(baseline.generation, count),
        "applied_at": pa.repeat(applied, count),
        "schema": pa.repeat(baseline.schema, count),
        "deleted": pa.repeat(False, count),
    }
    parts = []
    for one in kind:
        value = values.get(one.name)
        parts.append(pa.nulls(count, one.type) if value is None else recast(value, one.type))
    return pa.StructArray.from_arrays(parts, fields=list(kind))


def sequence_of(rows: pa.Table, baseline: Baseline, kind: pa.DataType) -> pa.Array:
    """The sequence of each row's last change; null where a column of it is null or blank, and where none is known."""
    if not baseline.sequence:
        return pa.nulls(rows.num_rows, kind)
    kinds = [one.type for one in kind] if pt.is_struct(kind) else [kind]
    parts = [_part(rows, name, baseline, part) for name, part in zip(baseline.sequence, kinds, strict=True)]
    if not pt.is_struct(kind):
        return parts[0]
    lacking = np.logical_or.reduce([np.asarray(part.is_null()) for part in parts])
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(lacking))


def _part(rows: pa.Table, name: str, baseline: Baseline, kind: pa.DataType) -> pa.Array:
    values = flat(rows.column(name))
    if is_text(values.type):
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), False)
        values = pc.if_else(blank, pa.scalar(None, values.type), values)
    values = recast(values, kind)
    return normal_form(values) if name in baseline.ordered_text else values


@dataclass(frozen=True, kw_only=True)
class BaselineFigures:
    """What the rows of a baseline are like.

    Attributes:
        nulls: key column to the number of rows in which it is null; others are left out.
        without_sequence: number of rows without one.
        highest: JSON form of the greatest sequence; None: no row has one.
        forms: column of `Baseline.ordered_text` to the forms of its text; an empty one has no known order.
    """

    rows: int = 0
    nulls: Mapping[str, int] = field(default_factory=dict)
    without_sequence: int = 0
    highest: str | None = None
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def figures_of_part(rows: pa.Table, keys: Iterable[str], baseline: Baseline, kind: SqlType) -> dict[str, Any]:
    """`BaselineFigures` of some rows, as JSON values.

    Args:
        rows: keys and `Baseline.sequence`.
        kind: of `_gddl.sequence`.
    """
    sequence = sequence_of(rows, baseline, arrow_type(kind))
    known = sequence.filter(sequence.is_valid())
    highest = None
    if len(known):
        write = json_writer(kind)
        highest = write(known[int(sorted_rows(sortable(known))[-1])].as_py())
    parts = dict(zip(baseline.sequence, _parts_of(known), strict=False))
    found = {name: sorted(set(forms(parts[name]).to_pylist())) for name in baseline.ordered_text if len(known)}
    nulls = {key: rows.column(key).null_count for key in keys if rows.column(key).null_count}
    return {
        "rows": rows.num_rows, "nulls": nulls, "without_sequence": sequence.null_count, "highest": highest,
        "forms": found,
    }  # fmt: skip


def _parts_of(sequence: pa.Array) -> list[pa.Array]:
    return list(sequence.flatten()) if pt.is_struct(sequence.type) else [sequence]


def figures_together(parts: Iterable[Mapping[str, Any]]) -> BaselineFigures:
    """Figures of all rows, from those of the parts."""
    whole = BaselineFigures()
    for part in parts:
        nulls = {key: whole.nulls.get(key, 0) + part["nulls"].get(key, 0) for key in {**whole.nulls, **part["nulls"]}}
        found = {
            name: tuple(sorted({*whole.forms.get(name, ()), *part["forms"].get(name, ())}))
            for name in {**whole.forms, **part["forms"]}
        }
        whole = BaselineFigures(
            rows=whole.rows + part["rows"], nulls=nulls,
            without_sequence=whole.without_sequence + part["without_sequence"],
            highest=greater(whole.highest, part["highest"]), forms=found,
        )  # fmt: skip
    return whole
