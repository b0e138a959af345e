"""Changes that arrived before, and ties (docs/semantics.md, section 4).

Needs all changes of an identity (key, sequence, operation) together; holds for any partition of the keys.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.sql_types import ScalarType, SqlType, StructType
from spark_jobs.plan.discover import RecordedFile
from spark_jobs.plan.planned_batch import number_of
from spark_jobs.plan.table_schema import GDDL, RESCUED, TableSchema
from spark_jobs.rules.arrays import flat
from spark_jobs.rules.codes import changes, row_codes, sortable, sorted_rows
from spark_jobs.rules.errors_table import without_files
from spark_jobs.rules.order import file_places, gddl_fields, that_count
from spark_jobs.rules.texts import MILLIS, json_writer, object_json

SAMPLE = 5
TIED = f"{GDDL}__tied"
"""Column of new changes: the tie policy decides between it and another change of its key and sequence."""


def new_changes(batch: pa.Table, stored: pa.Table | None, schema: TableSchema) -> pa.Table:
    """Changes of a batch that did not arrive before, with `TIED`.

    The n-th of equal changes in a file is a re-delivery where n equal ones are known from other files: rows of one
    file are never one row, unless their sequence says so (`TableSchema.one_change`). Of several in a batch the first is
    kept. Full-load rows of a keyless table all are.

    Args:
        stored: rows of the change table that may equal some, of other batches; null: there are none.
    """
    count = batch.num_rows
    joined = batch if stored is None else pa.concat_tables([batch, that_count(stored).select(batch.column_names)])
    gddl = gddl_fields(joined)
    group = _groups(joined, gddl, schema)
    kept = _first_deliveries(joined, gddl, group, schema, count)
    rows = batch.filter(pa.array(kept))
    tied = _tied(gddl, group, np.concatenate([kept, np.ones(joined.num_rows - count, dtype=bool)]), schema)
    return rows.append_column(TIED, pa.array(tied[:count][kept], pa.bool_()))


def _groups(rows: pa.Table, gddl: dict[str, pa.Array], schema: TableSchema) -> np.ndarray:
    """Changes that share key and sequence; full-load rows only within their generation."""
    generation = gddl["generation"]
    of_load = pc.if_else(pc.equal(gddl["op"], "R"), generation, pa.scalar(None, generation.type))
    columns = [rows.column(k) for k in schema.keys]
    return row_codes([*columns, of_load, gddl["sequence"]], rows.num_rows)


def _first_deliveries(
    rows: pa.Table, gddl: dict[str, pa.Array], group: np.ndarray, schema: TableSchema, count: int
) -> np.ndarray:
    """Which of the first `count` rows are no re-deliveries; the others are stored."""
    content = [without_files(flat(rows.column(name))) if name == RESCUED else rows.column(name)
               for name in schema.content if name not in schema.keys]  # fmt: skip
    same = row_codes([pa.array(group), gddl["op"], *content], rows.num_rows)
    known = np.bincount(same[count:], minlength=rows.num_rows)
    same, mine = same[:count], {name: part.slice(0, count) for name, part in gddl.items()}
    nth = np.zeros(count, np.int64) if schema.one_change else _number_in_file(same, mine)
    at = sorted_rows([pa.array(same), pa.array(nth), mine["position"]])
    first = np.zeros(count, dtype=bool)
    first[at] = changes(same[at]) | changes(nth[at])
    kept = first & (nth >= known[same])
    result: np.ndarray = kept if schema.keys else kept | np.asarray(pc.equal(mine["op"], "R"))
    return result


def _number_in_file(same: np.ndarray, gddl: dict[str, pa.Array]) -> np.ndarray:
    """Number of equal changes before each one in its file."""
    file = row_codes([pa.array(same), gddl["source_file"], gddl["batch_id"]], len(same))
    at = sorted_rows([pa.array(file), gddl["position"]])
    numbers = np.arange(len(at))
    found = np.empty(len(at), np.int64)
    found[at] = numbers - np.maximum.accumulate(np.where(changes(file[at]), numbers, 0))
    return found


def _tied(gddl: dict[str, pa.Array], group: np.ndarray, among: np.ndarray, schema: TableSchema) -> np.ndarray:
    """Changes of keys and sequences in several files, some of unknown order."""
    if not schema.keys or not len(group):
        return np.zeros(len(group), dtype=bool)
    chosen = np.flatnonzero(among)
    size = int(group.max()) + 1
    pairs = np.unique(np.stack([group[chosen], row_codes([gddl["source_file"]], len(group))[chosen]]), axis=1)
    several = np.bincount(pairs[0], minlength=size) > 1
    unordered = np.zeros(size, dtype=bool)
    unordered[group[chosen][file_places(gddl["source_file"], schema)[chosen] == 0]] = True
    result: np.ndarray = (several & unordered)[group]
    return result


def tie_warnings(rows: pa.Table, schema: TableSchema) -> tuple[RunWarning, ...]:
    """`SEQUENCE_TIE` where there are ties.

    Args:
        rows: see `new_changes`.
    """
    tied = rows.filter(flat(rows.column(TIED)))
    return sequence_tie(tied.num_rows, sample_keys(tied, schema), schema) if tied.num_rows else ()


def sequence_tie(count: int, sample: tuple[str, ...], schema: TableSchema) -> tuple[RunWarning, ...]:
    message = (
        "different changes, in files whose names give no order, share key and sequence; decided by tie_break "
        f"{schema.spec.tie_break}"
    )
    return (RunWarning(code="SEQUENCE_TIE", message=message, count=count, sample=sample),)


def sample_keys(rows: pa.Table, schema: TableSchema) -> tuple[str, ...]:
    """A few keys as JSON objects, least first, each once."""
    return tuple(keys_json(least_keys(rows, schema), schema))


def least_keys(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """A few keys, least first, each once; nested ones, which have no order, by their JSON text. Without keys, none."""
    keys = rows.select(schema.keys)
    if not schema.keys:
        return keys.slice(0, 0)
    at = np.unique(row_codes(keys.columns, rows.num_rows), return_index=True)[1]
    keys = keys.take(pa.array(at))
    if any(pt.is_nested(kind) for kind in keys.schema.types):
        texts = keys_json(keys, schema)
        return keys.take(pa.array(sorted(range(len(texts)), key=texts.__getitem__)[:SAMPLE], pa.int64()))
    return keys.sort_by([(k, "ascending") for k in schema.keys]).slice(0, SAMPLE)


def keys_json(rows: pa.Table, schema: TableSchema) -> list[str]:
    """Keys as JSON objects."""
    kinds = {column.name: column.type for column in schema.data}
    writers = {k: json_writer(kinds[k], times=MILLIS) for k in schema.keys}
    keys = rows.select(schema.keys).to_pylist()
    return [object_json(((k, row[k], w) for k, w in writers.items()), nulls=False) for row in keys]


def recorded_files(parts: Iterable[pa.Table], gddl: SqlType) -> list[RecordedFile]:
    """Each file and generation, as often as it is found in another part.

    Args:
        parts: rows of a change table; only `_gddl` is needed. Archived ones are left out.
        gddl: type of that.
    """
    return [file for part in parts for file in _of_part(part, gddl)]


def _of_part(rows: pa.Table, gddl: SqlType) -> Iterable[RecordedFile]:
    sequence = gddl.field("sequence") if isinstance(gddl, StructType) else None
    write = json_writer(ScalarType("string") if sequence is None else sequence.type)
    fields = gddl_fields(that_count(rows.select([GDDL])))
    file = row_codes([fields["source_file"], fields["generation"]], len(fields["generation"]))
    names = ("applied_at", "batch_id", "sequence")
    latest, newest, highest = (_greatest(file, sortable(fields[name])) for name in names)
    lowest = _least(file, sortable(fields["sequence"]))
    columns = [fields["source_file"].take(latest), fields["generation"].take(latest), fields["applied_at"].take(latest),
               fields["batch_id"].take(newest), fields["sequence"].take(highest),
               fields["sequence"].take(lowest)]  # fmt: skip
    for path, generation, applied_at, batch_id, greatest, least in zip(*(c.to_pylist() for c in columns), strict=True):
        yield RecordedFile(
            path=path,
            generation=generation,
            applied_at=applied_at.isoformat(),
            batch=number_of(batch_id),
            max_sequence=None if greatest is None else write(greatest),
            min_sequence=None if least is None else write(least),
        )


def _greatest(group: np.ndarray, values: list[pa.Array]) -> pa.Array:
    """For each group, in order, the row with its greatest value."""
    at = sorted_rows([pa.array(group), *values])
    return pa.array(at[np.roll(changes(group[at]), -1)])


def _least(group: np.ndarray, values: list[pa.Array]) -> pa.Array:
    """For each group, in order, the row with its least value; null counts as least."""
    at = sorted_rows([pa.array(group), *values])
    return pa.array(at[changes(group[at])])
