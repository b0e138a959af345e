"""Columns of a table's Delta tables, the same whichever engine creates them."""

from __future__ import annotations

from spark_jobs.engines.shape import GDDL, RESCUED, Shape
from spark_jobs.plan.columns import Column
from spark_jobs.plan.types import ScalarType, parse_type

START, END = "__start_at", "__end_at"
_FORCED = f"{GDDL}__forced"
_INDEXABLE = ("tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz", "string")


def replica_columns(shape: Shape) -> tuple[Column, ...]:
    deleted = ",deleted:boolean" if shape.spec.delete == "soft" else ""
    return (*data_columns(shape), Column(GDDL, parse_type(shape.gddl_type[:-1] + deleted + ">")))


def change_columns(shape: Shape) -> tuple[Column, ...]:
    return (*data_columns(shape), *shape.before, _gddl(shape))


def tombstone_columns(shape: Shape) -> tuple[Column, ...]:
    """Keys, the delete's `_gddl`, and under `force_update` whether it was forced."""
    columns = {c.name: c for c in shape.data}
    forced = (Column(_FORCED, ScalarType("boolean")),) if shape.spec.force_update else ()
    return (*(columns[key] for key in shape.keys), _gddl(shape), *forced)


def history_columns(shape: Shape) -> tuple[Column, ...]:
    kind = parse_type(shape.sequence_type)
    return (*data_columns(shape), _gddl(shape), Column(START, kind), Column(END, kind))


def data_columns(shape: Shape) -> tuple[Column, ...]:
    return (*shape.data, Column(RESCUED, ScalarType("string"))) if shape.rescues else shape.data


def skipping_columns(shape: Shape) -> str:
    """Columns whose statistics are wanted, wherever they stand in a wide table; as Delta's property takes them."""
    kinds = {c.name: str(c.type) for c in shape.data}
    keys = [k for k in shape.keys if kinds[k] in _INDEXABLE or kinds[k].startswith("decimal")]
    ours = [f"{GDDL}.{f}" for f in ("sequence", "op", "source_file", "batch_id", "generation")]
    return ",".join([*(f"`{k}`" for k in keys), *ours])


def _gddl(shape: Shape) -> Column:
    return Column(GDDL, parse_type(shape.gddl_type))
